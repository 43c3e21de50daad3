//! Notices an engine that no longer answers, so that the node takes no new work for a while.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Calls in a row that must time out before the engine is called hanging: one may be bad luck.
const TIMEOUTS_IN_A_ROW: u32 = 3;

/// How long an engine is then left alone before it gets another chance.
const COOL_DOWN: Duration = Duration::from_secs(30);

/// Counts time-outs.
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
    /// A call was answered, well or badly.
    pub(crate) fn answered(&self) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = State::default();
    }

    /// A call was not answered in its time; `now` it is.
    pub(crate) fn timed_out(&self, now: Instant) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.timeouts_in_a_row = state.timeouts_in_a_row.saturating_add(1);
        if state.timeouts_in_a_row >= TIMEOUTS_IN_A_ROW {
            state.open_until = Some(now + COOL_DOWN);
        }
    }

    /// How many calls in a row were not answered, while the engine is to be left alone. Afterwards
    /// one more time-out suffices to come back here.
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
    fn only_time_outs_in_a_row_open_it_and_time_closes_it() {
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
