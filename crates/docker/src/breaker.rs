//! Detects an engine that does not answer, so that the node takes no new work for a while.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Consecutive time-outs after which the engine counts as hanging.
const TIMEOUTS_IN_A_ROW: u32 = 3;

/// Pause before the node uses a hanging engine again.
const COOL_DOWN: Duration = Duration::from_secs(30);

/// Counts consecutive time-outs.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    timeouts_in_a_row: u32,
    open_until: Option<Instant>,
}

impl Breaker {
    /// Records that a call was answered, with success or an error.
    pub(crate) fn answered(&self) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = State::default();
    }

    /// Records that a call timed out at `now`.
    pub(crate) fn timed_out(&self, now: Instant) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.timeouts_in_a_row = state.timeouts_in_a_row.saturating_add(1);
        if state.timeouts_in_a_row >= TIMEOUTS_IN_A_ROW {
            state.open_until = Some(now + COOL_DOWN);
        }
    }

    /// The number of consecutive time-outs during the pause; none outside it. After the pause, one more time-out starts
    /// the next pause.
    pub(crate) fn is_open(&self, now: Instant) -> Option<u32> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let until = state.open_until?;
        (now < until).then_some(state.timeouts_in_a_row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_time_outs_open_breaker_and_time_closes_it() {
        let breaker = Breaker::default();
        let begin = Instant::now();
        for _ in 1..TIMEOUTS_IN_A_ROW {
            breaker.timed_out(begin);
        }
        breaker.answered();
        for _ in 1..TIMEOUTS_IN_A_ROW {
            breaker.timed_out(begin);
        }
        assert_eq!(breaker.is_open(begin), None);
        breaker.timed_out(begin);
        assert_eq!(breaker.is_open(begin), Some(TIMEOUTS_IN_A_ROW));
        let later = begin + COOL_DOWN;
        assert_eq!(breaker.is_open(later), None);
        breaker.timed_out(later);
        assert_eq!(breaker.is_open(later), Some(TIMEOUTS_IN_A_ROW + 1));
        breaker.answered();
        assert_eq!(breaker.is_open(later), None);
    }
}
