//! What a later attempt of a caller does with a callee of an earlier attempt: it joins the callee, or renews the call.

use crate::digest::{Digest, Hasher};
use crate::error_code::ErrorSource;
use crate::run::{ATTEMPTS_LOST_MAX, Ended, Outcome, RETRIES_MAX, Run};

/// How often later attempts may renew one call: no run has more attempts than it may lose, and may fail of each kind,
/// and one.
pub const RENEWALS_MAX: u32 = ATTEMPTS_LOST_MAX + 2 * RETRIES_MAX + 1;

/// What a call does with the callee that it finds under its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It waits for the callee, or takes its result.
    Joined,
    /// It starts another callee, under the key of the next renewal.
    Renewed,
}

/// What a call by `attempt` of the caller does with `callee`.
///
/// A callee that has not ended is joined, and so is one that this attempt or a later one has started. A callee of an
/// earlier attempt that ended is joined if its result is [final](is_final).
pub fn found(callee: &Run, attempt: u32) -> Found {
    let parent = callee.launched.event.parent.as_ref();
    let is_of_this_attempt = parent.is_some_and(|parent| parent.attempt >= attempt);
    let ended = callee.ended();
    if is_of_this_attempt || ended.is_none_or(|ended| is_final(&ended.event)) {
        Found::Joined
    } else {
        Found::Renewed
    }
}

/// Whether later attempts reuse a result: successes, and failures of the capsule. Failures of the platform, time-outs
/// and cancellations are retried.
pub fn is_final(ended: &Ended) -> bool {
    let error = ended.error.as_ref();
    match ended.outcome {
        Outcome::Succeeded => true,
        Outcome::Failed => error.is_some_and(|error| error.source == ErrorSource::Capsule),
        Outcome::TimedOut | Outcome::Cancelled => false,
    }
}

/// The key of the `renewal`th renewal (0 is the call itself) of the call with `call_key`.
pub fn renewed_key(call_key: Digest, renewal: u32) -> Digest {
    if renewal == 0 {
        return call_key;
    }
    let mut hasher = Hasher::new();
    hasher.field(b"renewed");
    hasher.field(call_key.as_bytes());
    hasher.field(&renewal.to_be_bytes());
    hasher.finish()
}
