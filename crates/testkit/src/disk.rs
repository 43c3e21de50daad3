//! A small disk of a test, which can be filled without filling the disk of the machine.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;
use std::process::Command;

use crate::scratch::Scratch;

/// The file that fills the disk.
const FILLER: &str = "filler";

/// A file system in memory; unmounted on drop. Needs root.
#[derive(Debug)]
pub struct TinyDisk(Scratch);

impl TinyDisk {
    /// Mounts a disk of `size_bytes`.
    pub fn mount(size_bytes: u64) -> Self {
        let scratch = Scratch::new("tiny");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size_bytes}"), "tmpfs"])
            .arg(scratch.path())
            .status()
            .expect("mount(8)");
        assert!(mounted.success(), "this test needs root to mount a disk");
        Self(scratch)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Fills the disk, except for `bytes`.
    pub fn leave(&self, bytes: u64) {
        self.empty();
        let size_bytes = self.measure("avail").saturating_sub(bytes);
        let mut file = File::create(self.path().join(FILLER)).expect("a file");
        let written = io::copy(&mut io::repeat(1).take(size_bytes), &mut file);
        assert_eq!(written.expect("the disk has space"), size_bytes);
    }

    /// Frees the space that [`leave`](Self::leave) has taken.
    pub fn empty(&self) {
        // The disk may not be filled.
        let _ = fs::remove_file(self.path().join(FILLER));
    }

    /// Size of all files, in bytes.
    pub fn used_bytes(&self) -> u64 {
        self.measure("used")
    }

    /// A column of `df`, in bytes.
    fn measure(&self, column: &str) -> u64 {
        let output = Command::new("df")
            .args(["--block-size=1", &format!("--output={column}")])
            .arg(self.path())
            .output()
            .expect("df(1)");
        let text = String::from_utf8_lossy(&output.stdout);
        let value = text.lines().nth(1).map(str::trim).map(str::parse);
        value.and_then(Result::ok).expect("a number")
    }
}

impl Drop for TinyDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount")
            .arg("--lazy")
            .arg(self.path())
            .status();
    }
}
