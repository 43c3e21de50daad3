//! One append, retried until its result is certain.
//!
//! A try whose confirmation is lost may have been stored. The next try then meets its own event: as a `duplicate`
//! answer, or as a conflict with its own guard (a server with one copy checks the guard first, a cluster the id).
//! Therefore, on a conflict, the leader is asked which event followed the guard: if this append was ever stored, it is
//! that event.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{Append, AppendError, EventLog, Guard, Tried};
use crate::BoxError;

/// Maximum time for an append: a server that is killed and restarted after 5 s is back well within, even if it reads a
/// large log.
const PATIENCE: Duration = Duration::from_secs(20);

/// Pauses between tries double from the first to the second of these, in milliseconds.
const PAUSE_MILLISECONDS_MIN: u64 = 10;
const PAUSE_MILLISECONDS_MAX: u64 = 500;

/// Retries after a conflict that no event explains: in a cluster, another append in progress is stored or dropped
/// within milliseconds.
const UNEXPLAINED_CONFLICTS_MAX: u32 = 20;

/// The event after the guard.
enum Following {
    Mine(u64),
    Another,
    Nothing,
}

/// Implements [`EventLog::append`].
///
/// # Errors
/// Those of [`EventLog::append`].
pub(super) async fn append_until_certain<L>(log: &L, append: &Append) -> Result<u64, AppendError>
where
    L: EventLog + ?Sized,
{
    let deadline = Instant::now() + PATIENCE;
    let subject = || append.subject.to_string();
    let unconfirmed = |source| AppendError::Unconfirmed {
        subject: subject(),
        source,
    };
    let mut pause = PAUSE_MILLISECONDS_MIN;
    let mut unexplained_conflicts = 0;
    loop {
        let source = match log.try_append(append, deadline).await {
            Tried::Stored(sequence) => return Ok(sequence),
            Tried::Full => return Err(AppendError::Full),
            Tried::Refused(source) => return Err(unconfirmed(source)),
            Tried::Unknown(source) => source,
            Tried::Conflict => match following(log, append).await {
                Ok(Following::Mine(sequence)) => return Ok(sequence),
                Ok(Following::Nothing) if unexplained_conflicts < UNEXPLAINED_CONFLICTS_MAX => {
                    unexplained_conflicts += 1;
                    "another append is in progress".into()
                }
                Ok(Following::Another | Following::Nothing) => {
                    return Err(AppendError::Conflict { subject: subject() });
                }
                Err(source) => source,
            },
        };
        if Instant::now() >= deadline {
            return Err(unconfirmed(source));
        }
        sleep(part_of(pause, append)).await;
        pause = (pause * 2).min(PAUSE_MILLISECONDS_MAX);
    }
}

/// Half of a pause to all of it. The share differs from event to event, so that writers spread.
fn part_of(pause: u64, append: &Append) -> Duration {
    let mix = |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte));
    let random = append.id.bytes().fold(pause, mix);
    Duration::from_millis(pause / 2 + random % (pause / 2 + 1))
}

async fn following<L>(log: &L, append: &Append) -> Result<Following, BoxError>
where
    L: EventLog + ?Sized,
{
    let Guard::Last { filter, sequence } = &append.guard else {
        return Ok(Following::Another);
    };
    Ok(match log.first_after(filter, *sequence).await? {
        Some((sequence, id)) if id == append.id => Following::Mine(sequence),
        Some(_) => Following::Another,
        None => Following::Nothing,
    })
}
