//! A small disk.

use std::path::Path;
use std::process::Command;

use aod_testkit::Scratch;

/// A file system of 8 MiB, unmounted on drop.
pub(crate) struct TinyDisk(Scratch);

impl TinyDisk {
    pub(crate) fn mount() -> Self {
        let scratch = Scratch::new("tiny");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"])
            .arg(scratch.path())
            .status()
            .expect("mount(8)");
        assert!(
            mounted.success(),
            "this test needs root to mount a disk of 8 MiB"
        );
        Self(scratch)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
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
