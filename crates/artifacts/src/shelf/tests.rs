//! Files that are put and deleted concurrently.

use std::sync::Barrier;

use aod_testkit::Scratch;

use super::*;
use crate::spool::Spool;

/// Number of rounds.
const ROUNDS: usize = 300;

/// Shelves of two processes on one directory, which renew every file that they name.
fn shelves(scratch: &Scratch) -> [Shelf; 2] {
    [(), ()].map(|()| {
        let shelf = Shelf::open(scratch.path(), Durability::Synced).expect("a directory");
        Shelf {
            renewed_after: Duration::ZERO,
            ..shelf
        }
    })
}

#[test]
fn file_put_during_removal_exists() {
    let scratch = Scratch::new("shelf");
    let [one, other] = shelves(&scratch);
    let spool = Spool::open(&scratch.path().join("spool")).expect("a spool");
    let mut removals = 0;
    for round in 0..ROUNDS {
        let content = round.to_be_bytes();
        let file = || spool.write_reader(&mut &content[..]).expect("a file");
        let digest = Digest::of(content);
        one.install(&file()).expect("a put");
        let modified = fs::metadata(one.path(digest)).and_then(|found| found.modified());
        let before = modified.expect("a time") + Duration::from_nanos(1);
        let (again, barrier) = (file(), Barrier::new(3));
        let (removal, renewed) = std::thread::scope(|scope| {
            let removal = scope.spawn(|| {
                barrier.wait();
                other.remove_old(digest, before).expect("an answer")
            });
            let renewed = scope.spawn(|| {
                barrier.wait();
                other.renew(digest).expect("an answer")
            });
            barrier.wait();
            one.install(&again).expect("a put");
            (
                removal.join().expect("no panic"),
                renewed.join().expect("no panic"),
            )
        });
        assert!(
            one.path(digest).exists(),
            "{round}: {removal:?}, {renewed:?}"
        );
        removals += usize::from(removal == Removal::Removed);
    }
    assert!(removals > 0, "nothing was ever removed");
}

#[test]
fn renewed_file_stays_or_was_already_missing() {
    let scratch = Scratch::new("shelf");
    let [one, other] = shelves(&scratch);
    let spool = Spool::open(&scratch.path().join("spool")).expect("a spool");
    let mut outcomes = [0, 0];
    for round in 0..ROUNDS {
        let content = round.to_be_bytes();
        let digest = Digest::of(content);
        let file = spool.write_reader(&mut &content[..]).expect("a file");
        one.install(&file).expect("a put");
        let modified = fs::metadata(one.path(digest)).and_then(|found| found.modified());
        let before = modified.expect("a time") + Duration::from_nanos(1);
        let barrier = Barrier::new(2);
        let renewed = std::thread::scope(|scope| {
            let removal = scope.spawn(|| {
                barrier.wait();
                other.remove_old(digest, before).expect("an answer")
            });
            barrier.wait();
            let renewed = one.renew(digest).expect("an answer");
            removal.join().expect("no panic");
            renewed
        });
        assert_eq!(renewed.is_some(), one.path(digest).exists(), "{round}");
        outcomes[usize::from(renewed.is_some())] += 1;
    }
    assert!(outcomes.iter().all(|count| *count > 0), "{outcomes:?}");
}
