//! Builds the gate, statically and for size, so that the node can carry its bytes:
//! `include_bytes!(env!("AOD_GATE_BINARY"))`.
//!
//! The gate runs in other people's containers and must need nothing of them, so it is linked in
//! another way than everything else here; cargo cannot do both in one build. This runs a second
//! cargo with a target directory of its own. It needs what the first one has (the toolchain, and the
//! sources or a way to fetch them) and glibc's static library (part of `libc6-dev` and the like).

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Variables that the outer cargo, clippy, rust-analyzer or a coverage tool sets for itself, and
/// that would make the inner build another one.
const FOREIGN_VARIABLES: [&str; 9] = [
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_TARGET_DIR",
    "CLIPPY_ARGS",
    "CLIPPY_CONF_DIR",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
    "RUSTDOCFLAGS",
    "RUSTFLAGS",
    "LLVM_PROFILE_FILE",
];

/// The beginnings of further such variables: settings of profiles and builds, and what cargo tells
/// this script about its own package. Registries, network and linkers stay as they are.
const FOREIGN_PREFIXES: [&str; 7] = [
    "CARGO_BUILD_",
    "CARGO_CFG_",
    "CARGO_FEATURE_",
    "CARGO_LLVM_COV",
    "CARGO_PKG_",
    "CARGO_PROFILE_",
    "DEP_",
];

/// The profile of the gate: as small as it gets, and no unwinding, since PID 1 ends with its panic.
const PROFILE: [(&str, &str); 6] = [
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "false"),
    ("CARGO_PROFILE_RELEASE_LTO", "fat"),
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "s"),
    ("CARGO_PROFILE_RELEASE_PANIC", "abort"),
    ("CARGO_PROFILE_RELEASE_STRIP", "symbols"),
];

fn main() {
    let node = directory("CARGO_MANIFEST_DIR");
    let root = node.join("../..");
    let gate = root.join("crates/gate");
    let lock = root.join("Cargo.lock");
    for path in [
        &gate.join("src"),
        &gate.join("Cargo.toml"),
        &root.join("Cargo.toml"),
        &lock,
    ] {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    let target = env::var("TARGET").expect("cargo sets TARGET for build scripts");
    let target_directory = directory("OUT_DIR").join("gate");
    build(&gate, &target, &target_directory, lock.exists());
    let binary = target_directory.join(&target).join("release/aod-gate");
    assert!(
        binary.is_file(),
        "the gate was built, but is not at {}",
        binary.display()
    );
    println!("cargo::rustc-env=AOD_GATE_BINARY={}", binary.display());
}

fn directory(variable: &str) -> PathBuf {
    env::var_os(variable)
        .expect("cargo sets it for build scripts")
        .into()
}

/// Runs the inner cargo.
///
/// A target is always named: only then do the flags keep off procedural macros, which cannot be
/// static. What the lock file names and nobody has fetched yet is fetched: an outer cargo that builds one
/// package brings only that package's libraries. With all of them here no network is needed.
fn build(gate: &Path, target: &str, target_directory: &Path, is_locked: bool) {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    cargo
        .args([
            "build",
            "--release",
            "--bin",
            "aod-gate",
            "--target",
            target,
        ])
        .arg("--manifest-path")
        .arg(gate.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target_directory);
    if is_locked {
        cargo.arg("--locked");
    }
    for (variable, _) in env::vars_os() {
        let name = variable.to_string_lossy();
        let is_foreign = FOREIGN_VARIABLES.contains(&&*name)
            || FOREIGN_PREFIXES
                .iter()
                .any(|prefix| name.starts_with(prefix));
        if is_foreign {
            cargo.env_remove(&variable);
        }
    }
    cargo
        .envs(PROFILE)
        .env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+crt-static");
    let status = cargo
        .status()
        .expect("the cargo that runs this script can be run");
    assert!(
        status.success(),
        "the gate could not be built ({status}); if the linker misses `libc.a`, install glibc's \
         static library (Debian: libc6-dev, Fedora: glibc-static)"
    );
}
