//! The end of an output.

use std::os::unix::net::{UnixListener, UnixStream};

use rustix::io::ioctl_fionbio;
use rustix::pipe::pipe;

use super::*;

/// A link and the node's end of its connection.
fn link() -> (Link, UnixStream) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).expect("a short path");
    let link = Link::connect(&path).expect("listening");
    (link, listener.accept().expect("connected").0)
}

/// A socket can transfer a descriptor, which then outlives its process.
#[test]
fn pipe_held_outside_ends_when_all_writers_are_dead() {
    let (mut link, node) = link();
    let (stdout, held) = pipe().expect("a pipe");
    ioctl_fionbio(&stdout, true).expect("a pipe");
    rustix::io::write(&held, b"last").expect("room");
    let mut outputs = Outputs {
        stdout: Some(stdout),
        stderr: None,
    };
    let mut scratch = [0; 16];
    for _ in 0..3 {
        outputs.pump(Writer::Command, &mut link, Writers::Living, &mut scratch);
        assert!(!outputs.are_complete());
    }
    outputs.pump(Writer::Command, &mut link, Writers::Dead, &mut scratch);
    assert!(outputs.are_complete());
    let mut sent = [0; 9];
    std::io::Read::read_exact(&mut &node, &mut sent).expect("sent");
    assert_eq!(&sent, b"O\0\0\0\x04last");
    drop(held);
}

#[test]
fn gate_reads_no_output_while_node_does_not_read() {
    let (mut link, _node) = link();
    let (stdout, held) = pipe().expect("a pipe");
    ioctl_fionbio(&stdout, true).expect("a pipe");
    ioctl_fionbio(&held, true).expect("a pipe");
    let mut outputs = Outputs {
        stdout: Some(stdout),
        stderr: None,
    };
    let mut scratch = [0; 4096];
    // A socket buffers a few hundred KiB; the bound only ends a failing test.
    for _ in 0..10_000 {
        let _ = rustix::io::write(&held, &[7; 4096]);
        outputs.pump(Writer::Command, &mut link, Writers::Living, &mut scratch);
    }
    assert!(!link.has_room());
    assert!(link.is_pending());
    assert!(!outputs.are_complete());
}
