//! Builds the gate as a small static binary that the node contains: `include_bytes!(env!("AOD_GATE_BINARY"))`.
//!
//! The gate runs in any container and must not depend on its libraries, so it is linked statically, unlike the rest of
//! the workspace. Cargo cannot do both in one build: this script runs a second cargo with its own target directory. The
//! second cargo needs the toolchain, the sources or a way to fetch them, and glibc's static library (part of
//! `libc6-dev` and the like).

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Variables that the outer cargo, clippy, rust-analyzer or a coverage tool sets, and that would change the inner
/// build.
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

/// Prefixes of further such variables: settings of profiles and builds, and cargo's data about this package. Settings
/// of registries, network and linkers stay.
const FOREIGN_PREFIXES: [&str; 7] = [
    "CARGO_BUILD_",
    "CARGO_CFG_",
    "CARGO_FEATURE_",
    "CARGO_LLVM_COV",
    "CARGO_PKG_",
    "CARGO_PROFILE_",
    "DEP_",
];

/// The profile of the gate: smallest size, and no unwinding, because PID 1 ends with its panic.
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
    // One build for all profiles: `target/PROFILE/build/PACKAGE/out` is `OUT_DIR`.
    let output = directory("OUT_DIR");
    let target_directory = output.ancestors().nth(4).unwrap_or(&output).join("gate");
    build(&gate, &target, &target_directory, lock.exists());
    let binary = target_directory.join(&target).join("release/aod-gate");
    assert!(
        binary.is_file(),
        "the gate was built, but {} does not exist",
        binary.display()
    );
    println!("cargo::rustc-env=AOD_GATE_BINARY={}", binary.display());
}

fn directory(variable: &str) -> PathBuf {
    env::var_os(variable)
        .expect("cargo sets the variable for build scripts")
        .into()
}

/// Runs the inner cargo.
///
/// Always passes a target: only then do the flags not apply to procedural macros, which cannot be static. The inner
/// cargo may fetch libraries of the lock file: an outer cargo that builds one package fetches only its libraries.
/// With all libraries fetched, the build needs no network.
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
        "cargo could not build the gate ({status}); if the linker misses `libc.a`, install glibc's \
         static library (Debian: libc6-dev, Fedora: glibc-static)"
    );
}
