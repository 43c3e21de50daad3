//! Stored events: the envelope, and the state that they result in.

use aod_domain::digest::Digest;
use aod_domain::event::{CloudEvent, Recorded};
use aod_domain::id::RunId;
use aod_domain::run::{Event, Note, Phase, Run};
use aod_domain::subject::Subject;
use aod_domain::{capsule, node};
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

/// Seconds of a lease.
const LEASE_SECONDS: u32 = 30;

/// One event for each line.
pub fn check(bytes: &[u8]) {
    let mut history = Vec::new();
    for (number, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        check_event::<Note>(line);
        check_event::<capsule::Event>(line);
        check_event::<node::Event>(line);
        if check_event::<Event>(line) {
            let sequence = number as u64 + 1;
            history.push(Recorded::<Event>::decode(sequence, line).expect("read before"));
        }
        check_subject(line);
    }
    check_history(history.clone());
    // A fuzzer cannot create a chain of hashes: it is created here.
    let mut previous = None;
    for event in &mut history {
        event.previous = previous;
        previous = Some(event.hash);
    }
    check_history(history);
}

/// Whether `line` is an `E`; then its encoding decodes to the same event.
fn check_event<E: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(line: &[u8]) -> bool {
    let Ok(event) = CloudEvent::<E>::decode(line) else {
        return false;
    };
    if let Ok(bytes) = event.encode() {
        let read = CloudEvent::<E>::decode(&bytes).expect("what was written is read");
        assert_eq!(read, event);
        assert_eq!(read.encode().expect("as before"), bytes);
    }
    true
}

/// For each valid prefix of the events, the resulting state is consistent.
fn check_history(history: Vec<Recorded<Event>>) {
    let id = RunId::root_of(Uuid::from_u128(1));
    let mut events = history.into_iter();
    let Some(first) = events.next() else { return };
    let Ok(Some(mut run)) = Run::replay(id, [first]) else {
        return;
    };
    check_run(&run);
    for event in events {
        let before = run.clone();
        match run.apply(event) {
            Ok(()) => check_step(&before, &run),
            Err(error) => assert!(!error.reason.is_empty()),
        }
        check_run(&run);
    }
}

/// Only a seal follows the end, and attempts only grow.
fn check_step(before: &Run, after: &Run) {
    assert!(after.attempts >= before.attempts);
    assert!(after.attempts_lost >= before.attempts_lost);
    if before.ended().is_some() {
        assert_eq!(
            (&before.phase, before.attempts),
            (&after.phase, after.attempts)
        );
    }
}

fn check_run(run: &Run) {
    assert!(run.attempts_lost <= run.attempts);
    if let Phase::Leased(lease) = &run.phase {
        assert!(run.holds(run.attempts) && lease.event.attempt == run.attempts);
    }
    for now in [Timestamp::MIN, Timestamp::UNIX_EPOCH, Timestamp::MAX] {
        let _ = run.forbids_start(now);
    }
    assert!(run.abandoned_at(LEASE_SECONDS) >= run.deadline());
    assert_eq!(run.last.hash.to_string().parse(), Ok(run.last.hash));
}

/// A line as a subject, an id and a digest: each has exactly one spelling.
fn check_subject(line: &[u8]) {
    let Ok(text) = str::from_utf8(line) else {
        return;
    };
    let _ = (
        Subject::run_of(text),
        Subject::is_state(text),
        Subject::is_result(text),
    );
    if let Ok(run) = text.parse::<RunId>() {
        assert_eq!(run.to_string(), text);
    }
    if let Ok(digest) = text.parse::<Digest>() {
        assert_eq!(digest.to_string(), text);
    }
}
