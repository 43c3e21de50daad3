//! Capsules of tests: directories below `tests/capsules`, built from a static busybox only, so that no registry is
//! needed and a build takes a second; and the capsules of the product.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use aod_testkit::Scratch;

use crate::hosts::Host;

/// A static busybox, from Debian's package `busybox-static`.
const BUSYBOX: &str = "/bin/busybox";

/// The users in test containers: root and one other.
const USERS: &str = "root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n";

/// A capsule directory as a user submits it: the content of `tests/capsules/<name>`, and `rootfs.tar` with busybox in
/// it.
#[derive(Debug)]
pub struct CapsuleDirectory {
    directory: Scratch,
    name: String,
}

impl CapsuleDirectory {
    pub fn new(name: &str) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("capsules")
            .join(name);
        let capsule = Self {
            directory: Scratch::new("capsule"),
            name: name.to_owned(),
        };
        let target = capsule.path();
        fs::create_dir(&target).expect("a test directory");
        for entry in
            fs::read_dir(&source).unwrap_or_else(|error| panic!("{}: {error}", source.display()))
        {
            let entry = entry.expect("an entry of the sources");
            fs::copy(entry.path(), target.join(entry.file_name())).expect("a file of the sources");
        }
        make_root(&capsule.directory.path().join("root"));
        pack(
            &capsule.directory.path().join("root"),
            &target.join("rootfs.tar"),
        );
        capsule
    }

    /// Only the content of `tests/capsules/<path>`, with the name of its directory, and what the directory `common`
    /// beside it has for all capsules there.
    pub fn as_it_stands(path: &str) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("capsules")
            .join(path);
        let name = source.file_name().expect("a path has an end");
        let capsule = Self {
            directory: Scratch::new("capsule"),
            name: name.to_string_lossy().into_owned(),
        };
        let common = source.with_file_name("common");
        if common.is_dir() {
            copy_tree(&common, &capsule.path());
        }
        copy_tree(&source.join("."), &capsule.path());
        capsule
    }

    /// A capsule of the product, `capsules/<name>`, with its image transferred to `host`.
    pub fn of_product(name: &str, host: &Host) -> Self {
        let capsule = Self::of_product_here(name);
        let archive = capsule.directory.path().join("image.tar");
        docker(&["save", &product_image(name), "--output"], &archive);
        host.docker(&["load", "--input", archive.to_str().expect("a test path")]);
        fs::remove_file(&archive).expect("a test file");
        capsule
    }

    /// As [`Self::of_product`], on this machine. This machine's Docker builds the image with its packages, so that the
    /// remaining build is one line. The wheel of the SDK is put into its directory as `aod` does.
    pub fn of_product_here(name: &str) -> Self {
        let capsule = Self {
            directory: Scratch::new("capsule"),
            name: name.to_owned(),
        };
        let capsules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../capsules");
        copy_tree(&capsules.join(name), &capsule.path());
        make_wheel(
            &capsules.join("sdk"),
            capsule.directory.path(),
            &capsule.path().join("vendor"),
        );
        let image = product_image(name);
        docker(&["build", "--quiet", "--tag", &image], &capsule.path());
        capsule.write("Dockerfile", &format!("FROM {image}\n"));
        capsule
    }

    /// Writes a file into the directory, or replaces it.
    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path().join(name), text).expect("a test directory");
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join(&self.name)
    }

    /// The directory as a tar file for a gateway; always the same bytes.
    pub fn packed(&self) -> Vec<u8> {
        let package = self.directory.path().join("package.tar");
        pack(&self.path(), &package);
        fs::read(package).expect("a test file")
    }
}

/// The name of a product capsule's image on this machine.
fn product_image(name: &str) -> String {
    format!("aod-capsule-test-{name}")
}

fn copy_tree(source: &Path, target: &Path) {
    let copied = Command::new("cp")
        .arg("--archive")
        .args([source, target])
        .status();
    let status = copied.expect("cp is installed");
    assert!(status.success(), "{} cannot be copied", source.display());
}

/// Builds the wheel of the SDK into `target`, from a copy below `work`: setuptools leaves files in its source
/// directory.
fn make_wheel(sdk: &Path, work: &Path, target: &Path) {
    let copy = work.join("sdk");
    copy_tree(sdk, &copy);
    let output = Command::new("python3")
        .args(["-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir"])
        .args([target, &copy])
        // The same bytes each time, for Docker's build cache.
        .env("SOURCE_DATE_EPOCH", "1700000000")
        .output()
        .expect("python3 is installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "no wheel: {errors}");
}

/// Runs this machine's Docker with a file or directory.
fn docker(arguments: &[&str], path: &Path) {
    let output = Command::new("docker").args(arguments).arg(path).output();
    let output = output.expect("docker is installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "docker {arguments:?}: {errors}");
}

/// Busybox under all its names.
fn make_root(root: &Path) {
    let programs = root.join("bin");
    fs::create_dir_all(&programs).expect("a test directory");
    fs::create_dir_all(root.join("etc")).expect("a test directory");
    fs::write(root.join("etc/passwd"), USERS).expect("a test directory");
    let busybox = programs.join("busybox");
    fs::copy(BUSYBOX, &busybox)
        .unwrap_or_else(|error| panic!("{BUSYBOX}: {error}; install busybox-static"));
    fs::set_permissions(&busybox, fs::Permissions::from_mode(0o755)).expect("a test file");
    let names = Command::new(BUSYBOX)
        .arg("--list")
        .output()
        .expect("a busybox that runs")
        .stdout;
    for name in String::from_utf8(names)
        .expect("names are text")
        .lines()
        .filter(|&name| name != "busybox")
    {
        symlink("busybox", programs.join(name)).expect("a test directory");
    }
}

/// Packs a directory so that the same files give the same bytes.
fn pack(directory: &Path, archive: &Path) {
    let status = Command::new("tar")
        .args([
            "--sort=name",
            "--mtime=@0",
            "--owner=0",
            "--group=0",
            "--numeric-owner",
            "--create",
        ])
        .arg("--file")
        .arg(archive)
        .arg("--directory")
        .arg(directory)
        .arg(".")
        .status()
        .expect("tar is installed");
    assert!(status.success(), "{} cannot be packed", directory.display());
}
