//! The limit of the cache, and its state after a restart.

use aod_testkit::Scratch;

use super::*;
use crate::spool::Spool;

struct Fixture {
    scratch: Scratch,
    cache: Arc<Cache>,
    spool: Spool,
}

impl Fixture {
    fn new(bytes_max: u64) -> Self {
        let scratch = Scratch::new("cache");
        let cache = Cache::open(&scratch.path().join("cache"), bytes_max).expect("a cache");
        let spool = Spool::open(&scratch.path().join("spool")).expect("a spool");
        Self {
            scratch,
            cache,
            spool,
        }
    }

    /// Inserts 100 bytes and pins them.
    fn put(&self, byte: u8) -> Pinned {
        let spooled = self
            .spool
            .write_reader(&mut &[byte; 100][..])
            .expect("a file");
        self.cache.insert(&spooled, None).expect("room")
    }

    fn has(&self, byte: u8) -> bool {
        self.cache
            .get(digest(byte))
            .expect("a readable cache")
            .is_some()
    }
}

fn digest(byte: u8) -> Digest {
    Digest::of([byte; 100])
}

#[test]
fn least_recently_used_file_is_evicted_first() {
    let fixture = Fixture::new(300);
    for byte in 1..=3 {
        drop(fixture.put(byte));
    }
    assert!(fixture.has(1), "the last use counts");
    drop(fixture.put(4));
    assert!(!fixture.has(2));
    assert!(fixture.has(1) && fixture.has(3) && fixture.has(4));
}

#[test]
fn pinned_files_stay_above_limit() {
    let fixture = Fixture::new(150);
    let held: Vec<Pinned> = (1..=4).map(|byte| fixture.put(byte)).collect();
    for pinned in &held {
        assert!(pinned.path.exists(), "{pinned:?}");
    }
    drop(held);
    let left = (1..=4).filter(|&byte| fixture.has(byte)).count();
    assert_eq!(left, 1, "the limit counts again without pins");
}

#[test]
fn reservation_evicts_files_before_fetch() {
    let fixture = Fixture::new(300);
    for byte in 1..=3 {
        drop(fixture.put(byte));
    }
    let reservation = fixture.cache.reserve(150);
    assert!(!fixture.has(1) && !fixture.has(2) && fixture.has(3));
    drop(reservation);
}

#[test]
fn later_process_finds_files_in_order_of_use() {
    let fixture = Fixture::new(300);
    for byte in 1..=3 {
        drop(fixture.put(byte));
        let path = fixture.cache.shelf.path(digest(byte));
        let accessed = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(u64::from(byte));
        let times = FileTimes::new().set_accessed(accessed);
        File::open(path)
            .and_then(|file| file.set_times(times))
            .expect("a file of ours");
    }
    assert!(fixture.has(1), "the file stores its last use");
    let Fixture {
        scratch,
        cache,
        spool,
    } = fixture;
    let directory = scratch.path().join("cache");
    assert!(matches!(
        Cache::open(&directory, 300),
        Err(OpenError::CacheInUse { .. })
    ));
    drop(cache);
    std::fs::write(directory.join("sha256/00/nonsense"), "").expect("a file");
    let cache = Cache::open(&directory, 200).expect("a cache that was left");
    assert!(!directory.join("sha256/00/nonsense").exists());
    let fixture = Fixture {
        scratch,
        cache,
        spool,
    };
    assert!(!fixture.has(2), "the oldest");
    assert!(fixture.has(1) && fixture.has(3));
}

#[test]
fn damaged_file_counts_as_missing() {
    let fixture = Fixture::new(300);
    let held = fixture.put(1);
    std::fs::remove_file(&held.path).expect("a file of ours");
    std::fs::write(&held.path, [2; 100]).expect("other bytes");
    assert!(!fixture.has(1));
    assert!(!held.path.exists());
    let successor = fixture.put(1);
    drop(held);
    let _others: Vec<Pinned> = (2..=5).map(|byte| fixture.put(byte)).collect();
    assert!(
        successor.path.exists(),
        "pins of the damaged file do not count for the new one"
    );
}
