//! Conformance suite of clocks.

use std::collections::BTreeSet;
use std::time::Duration;

use aod_ports::clock::Clock;
use jiff::{SignedDuration, Timestamp};

/// Number of consecutive ids.
const IDS: usize = 1_000;

/// Maximum difference between the time of an id and the clock: the test itself takes some.
const APART_MAX: SignedDuration = SignedDuration::from_secs(5);

/// Runs the whole suite on a clock that is not set in the meantime.
pub async fn check_all(clock: &dyn Clock) {
    time_since_boot_passes_as_time_does(clock).await;
    ids_carry_the_time_and_are_never_the_same(clock).await;
    assert_ne!(clock.fresh_secret(), clock.fresh_secret());
}

async fn time_since_boot_passes_as_time_does(clock: &dyn Clock) {
    let (wall, boot) = (clock.now(), clock.since_boot());
    let wait = Duration::from_millis(200);
    tokio::time::sleep(wait).await;
    let passed = clock
        .since_boot()
        .checked_sub(boot)
        .expect("it never goes back");
    assert!(passed >= wait, "{passed:?} since boot");
    let passed = clock.now().duration_since(wall);
    assert!(passed >= SignedDuration::from_millis(100), "{passed:?}");
}

async fn ids_carry_the_time_and_are_never_the_same(clock: &dyn Clock) {
    let first = clock.fresh_uuid();
    assert_eq!(first.get_version_num(), 7);
    let (seconds, nanoseconds) = first.get_timestamp().expect("a time").to_unix();
    let time = Timestamp::new(
        seconds.try_into().expect("a time of this century"),
        nanoseconds.try_into().expect("below a second"),
    );
    let apart = clock.now().duration_since(time.expect("a time"));
    assert!(apart.abs() < APART_MAX, "{apart:?}");
    let ids: BTreeSet<_> = (0..IDS).map(|_| clock.fresh_uuid()).collect();
    assert_eq!(ids.len(), IDS);
    // A later id sorts later.
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert!(clock.fresh_uuid() > *ids.last().expect("many"));
}
