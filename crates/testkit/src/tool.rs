//! Finds the programs that tests start.

use std::path::PathBuf;

/// The program `name`: from the environment variable `variable`, else the first on `PATH`, else the one in
/// `~/.cache/aod/tools/bin`, where `make` puts downloaded tools.
///
/// Panics with `how_to_get` if there is none: a missing server is a failing test.
pub(crate) fn find(name: &str, variable: &str, how_to_get: &str) -> PathBuf {
    if let Some(path) = std::env::var_os(variable).map(PathBuf::from) {
        assert!(
            path.is_file(),
            "{variable} names {}, which is not a file",
            path.display()
        );
        return path;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(cache("bin"))
        .map(|directory| directory.join(name))
        .find(|candidate| candidate.is_file())
        .unwrap_or_else(|| {
            panic!("no `{name}` in {variable}, on PATH or in ~/.cache/aod/tools/bin; {how_to_get}")
        })
}

/// The directory of the kernel of emulated machines, with `vmlinuz` and `modules`: from the variable
/// `AOD_TEST_KERNEL`, else where `make` puts it.
pub(crate) fn find_kernel() -> PathBuf {
    std::env::var_os("AOD_TEST_KERNEL")
        .map(PathBuf::from)
        .or_else(|| cache("kernel"))
        .filter(|directory| directory.join("vmlinuz").is_file())
        .unwrap_or_else(|| {
            panic!(
                "no vmlinuz in AOD_TEST_KERNEL or ~/.cache/aod/tools/kernel; \
                 run deploy/prerequisites/kernel.sh"
            )
        })
}

/// A directory of the tools that `make` downloads.
fn cache(name: &str) -> Option<PathBuf> {
    let home = std::env::var_os("HOME")?;
    Some(PathBuf::from(home).join(".cache/aod/tools").join(name))
}
