//! A disk that is soon full.

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
            "a test of a full disk must be root, to mount one of 8 MiB"
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
