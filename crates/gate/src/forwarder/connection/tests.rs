//! One connection: its directions end separately, and a slow or deaf end loses nothing.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::*;

/// Maximum wait for bytes within this machine.
const DEADLINE: Duration = Duration::from_secs(10);

/// A connection, and its peers on both sides.
struct Fixture {
    connection: Connection,
    capsule: TcpStream,
    node: UnixStream,
}

impl Fixture {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("bound");
        let capsule = TcpStream::connect(address).expect("listening");
        capsule.set_read_timeout(Some(DEADLINE)).expect("a socket");
        let (accepted, _) = listener.accept().expect("connected");
        let (node, inner) = UnixStream::pair().expect("a pair");
        node.set_read_timeout(Some(DEADLINE)).expect("a socket");
        inner.set_nonblocking(true).expect("a socket");
        let connection = Connection::open(accepted, inner.into()).expect("a connection");
        Self {
            connection,
            capsule,
            node,
        }
    }

    /// Pumps whenever something is ready, until `is_done`.
    fn pump_until(&mut self, mut is_done: impl FnMut(&mut Self) -> bool) {
        let mut scratch = [0; 1000];
        let begin = std::time::Instant::now();
        while !is_done(self) {
            assert!(
                begin.elapsed() < DEADLINE,
                "no progress: {:?}",
                self.connection
            );
            let mut interests = Interests::default();
            self.connection
                .add_interests(&mut interests, Source::Connection(0));
            interests
                .wait(Some(Duration::from_millis(10)))
                .expect("poll");
            self.connection.pump(&mut scratch);
        }
    }
}

/// Reads the available bytes without waiting.
fn read_some(stream: &mut (impl io::Read + std::os::fd::AsFd), into: &mut Vec<u8>) {
    rustix::io::ioctl_fionbio(&*stream, true).expect("a socket");
    let mut piece = [0; 4096];
    while let Ok(size_bytes @ 1..) = stream.read(&mut piece) {
        into.extend_from_slice(&piece[..size_bytes]);
    }
    rustix::io::ioctl_fionbio(&*stream, false).expect("a socket");
}

#[test]
fn request_with_ended_half_gets_its_answer() {
    let mut fixture = Fixture::new();
    fixture.capsule.write_all(b"request").expect("connected");
    fixture
        .capsule
        .shutdown(Shutdown::Write)
        .expect("connected");
    fixture.pump_until(|fixture| fixture.connection.to_node.stage == Stage::Ended);
    let mut request = Vec::new();
    fixture
        .node
        .read_to_end(&mut request)
        .expect("an end, not a reset");
    assert_eq!(request, b"request");
    assert!(!fixture.connection.is_over());

    fixture.node.write_all(b"answer").expect("connected");
    fixture.node.shutdown(Shutdown::Write).expect("connected");
    fixture.pump_until(|fixture| fixture.connection.is_over());
    let mut answer = Vec::new();
    fixture
        .capsule
        .read_to_end(&mut answer)
        .expect("an end, not a reset");
    assert_eq!(answer, b"answer");
}

#[test]
fn answer_that_ends_first_leaves_request_half_open() {
    let mut fixture = Fixture::new();
    fixture.node.write_all(b"early").expect("connected");
    fixture.node.shutdown(Shutdown::Write).expect("connected");
    fixture.pump_until(|fixture| fixture.connection.to_capsule.stage == Stage::Ended);
    let mut answer = Vec::new();
    fixture
        .capsule
        .read_to_end(&mut answer)
        .expect("an end, not a reset");
    assert_eq!(answer, b"early");

    fixture.capsule.write_all(b"late").expect("connected");
    fixture
        .capsule
        .shutdown(Shutdown::Write)
        .expect("connected");
    fixture.pump_until(|fixture| fixture.connection.is_over());
    let mut request = Vec::new();
    fixture
        .node
        .read_to_end(&mut request)
        .expect("an end, not a reset");
    assert_eq!(request, b"late");
}

#[test]
fn late_reader_receives_all_bytes() {
    const SENT_BYTES: usize = 8 * 1024 * 1024;
    let mut fixture = Fixture::new();
    let sent: Vec<u8> = (0..=250_u8).cycle().take(SENT_BYTES).collect();
    let expected = sent.clone();
    let mut node = fixture.node.try_clone().expect("a socket");
    let sender = std::thread::spawn(move || {
        node.write_all(&sent).expect("a patient reader");
        node.shutdown(Shutdown::Write).expect("connected");
    });
    // The capsule reads nothing: the connection fills up and holds one piece.
    fixture.pump_until(|fixture| fixture.connection.to_capsule.writes());
    assert!(fixture.connection.to_capsule.pending.len() <= 1000);
    let mut received = Vec::new();
    fixture.pump_until(|fixture| {
        read_some(&mut fixture.capsule, &mut received);
        received.len() == SENT_BYTES
    });
    sender.join().expect("a sender that has sent all");
    assert!(received == expected, "the received bytes differ");
}

#[test]
fn answer_of_node_that_does_not_read_is_complete() {
    let mut fixture = Fixture::new();
    fixture.node.write_all(b"refused").expect("connected");
    fixture.node.shutdown(Shutdown::Both).expect("connected");
    // More than the sockets hold: the capsule can read the answer only after the gate has read this.
    let mut capsule = fixture.capsule.try_clone().expect("a socket");
    let sender = std::thread::spawn(move || {
        capsule
            .write_all(&vec![0; 16 * 1024 * 1024])
            .expect("discarded, not reset");
        capsule.shutdown(Shutdown::Write).expect("connected");
    });
    let is_sent = |fixture: &mut Fixture| fixture.connection.to_node.stage == Stage::Ended;
    fixture.pump_until(is_sent);
    sender.join().expect("a sender that has sent all");
    let mut answer = Vec::new();
    fixture
        .capsule
        .read_to_end(&mut answer)
        .expect("an end, not a reset");
    assert_eq!(answer, b"refused");
}

#[test]
fn reset_by_capsule_ends_connection() {
    let mut fixture = Fixture::new();
    fixture.node.write_all(b"unread").expect("connected");
    fixture.connection.pump(&mut [0; 1000]);
    assert_eq!(fixture.capsule.peek(&mut [0; 6]).expect("passed on"), 6);
    // A close with unread bytes is a reset.
    fixture.capsule = Fixture::new().capsule;
    fixture.pump_until(|fixture| fixture.connection.is_over());
}
