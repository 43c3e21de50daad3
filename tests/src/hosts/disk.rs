//! The disk of a host: a file system in a file, which can be filled without filling the machine's disk.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::commands::run;
use super::host::Host;

/// The file that fills the disk.
const FILLER: &str = "filler";

/// The disk of a host, visible only there. Deleted with the host.
#[derive(Clone, Copy, Debug)]
pub struct Disk<'a> {
    host: &'a Host,
}

impl<'a> Disk<'a> {
    /// The disk of `host`, which has one.
    pub(super) fn of(host: &'a Host) -> Self {
        Self { host }
    }

    /// Creates it with `size_bytes`, and mounts it.
    pub(super) fn mount(self, size_bytes: u64) {
        let image = self.host.directory().join("disk.img");
        let file = fs::File::create(&image).expect("a test directory");
        file.set_len(size_bytes).expect("a file with a hole");
        run(Command::new("mkfs.ext4")
            .args(["-q", "-m", "0"])
            .arg(&image));
        fs::create_dir_all(self.directory()).expect("a test directory");
        let mut mount = self.host.command("mount");
        run(mount.args(["-o", "loop"]).arg(&image).arg(self.directory()));
    }

    /// Its mount point on the host.
    pub fn directory(self) -> PathBuf {
        self.host.directory().join("disk")
    }

    /// Fills all free space.
    pub fn fill(self) {
        // First in one step, then the remaining blocks.
        let script = "free=$(df -B1 --output=avail \"$1\" | tail -n 1); \
             fallocate -l \"$free\" \"$2\" 2>/dev/null; cat /dev/zero >>\"$2\" 2>/dev/null; exit 0";
        let mut fill = self.host.command("sh");
        run(fill
            .args(["-c", script, "sh"])
            .args([self.directory(), self.directory().join(FILLER)]));
    }

    /// Fills all free space except `bytes`.
    pub fn leave(self, bytes: u64) {
        let script = "free=$(df -B1 --output=avail \"$1\" | tail -n 1); fallocate -l \"$((free - $3))\" \"$2\"";
        let mut fill = self.host.command("sh");
        run(fill
            .args(["-c", script, "sh"])
            .args([self.directory(), self.directory().join(FILLER)])
            .arg(bytes.to_string()));
    }

    /// Frees the space that [`fill`](Self::fill) or [`leave`](Self::leave) has taken.
    pub fn empty(self) {
        let mut remove = self.host.command("rm");
        run(remove.arg("-f").arg(self.directory().join(FILLER)));
    }
}
