//! What all parts of a simulation share: random numbers, the trace, the counts, the violations.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aod_domain::digest::{Digest, Hasher};
use aod_domain::id::RunId;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// One simulated world. Cheap to clone.
#[derive(Clone)]
pub(crate) struct World(Arc<Mutex<State>>);

struct State {
    random: fastrand::Rng,
    began: Instant,
    trace: Hasher,
    steps: u64,
    counts: BTreeMap<&'static str, u64>,
    violations: Vec<String>,
    /// How often a run has done what its plan repeats.
    done: BTreeMap<(&'static str, RunId), u64>,
    /// Launches that kill each node that starts on them.
    deadly: BTreeSet<RunId>,
    /// The programs killed by launches.
    kills: mpsc::UnboundedSender<String>,
    killed: Option<mpsc::UnboundedReceiver<String>>,
    /// Whether faults may happen.
    is_hostile: bool,
    is_printed: bool,
}

impl fmt::Debug for World {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("World").finish_non_exhaustive()
    }
}

impl World {
    pub(crate) fn new(seed: u64, is_printed: bool) -> Self {
        let (kills, killed) = mpsc::unbounded_channel();
        Self(Arc::new(Mutex::new(State {
            random: fastrand::Rng::with_seed(seed),
            began: Instant::now(),
            trace: Hasher::new(),
            steps: 0,
            counts: BTreeMap::new(),
            violations: Vec::new(),
            done: BTreeMap::new(),
            deadly: BTreeSet::new(),
            kills,
            killed: Some(killed),
            is_hostile: true,
            is_printed,
        })))
    }

    /// One step of the world: `who` does `what`. Part of the trace.
    pub(crate) fn step(&self, who: &str, what: &str) {
        let mut state = self.state();
        let at = state.began.elapsed();
        state.steps += 1;
        state.trace.field(&at.as_nanos().to_be_bytes());
        state.trace.field(who.as_bytes());
        state.trace.field(what.as_bytes());
        if state.is_printed {
            eprintln!("{:>12.6} {who:<12} {what}", at.as_secs_f64());
        }
    }

    /// Counts an operation or a fault of this kind.
    pub(crate) fn count(&self, kind: &'static str) {
        *self.state().counts.entry(kind).or_default() += 1;
    }

    /// Records a violated invariant.
    pub(crate) fn violation(&self, text: String) {
        self.step("INVARIANT", &text);
        self.state().violations.push(text);
    }

    /// Whether a fault of this kind happens now, with the probability 1 / `one_in`.
    pub(crate) fn strikes(&self, kind: &'static str, one_in: u64) -> bool {
        let mut state = self.state();
        let strikes = state.random.u64(0..one_in) == 0 && state.is_hostile;
        if strikes {
            *state.counts.entry(kind).or_default() += 1;
        }
        drop(state);
        if strikes {
            self.step("FAULT", kind);
        }
        strikes
    }

    /// Whether `run` does this again; at most `max` times.
    pub(crate) fn is_due(&self, what: &'static str, run: RunId, max: u64) -> bool {
        let mut state = self.state();
        let done = state.done.entry((what, run)).or_default();
        let is_due = *done < max;
        *done += u64::from(is_due);
        is_due
    }

    /// From now on `run` kills each node that starts on its launch.
    pub(crate) fn make_deadly(&self, run: RunId) {
        self.state().deadly.insert(run);
    }

    pub(crate) fn is_deadly(&self, run: RunId) -> bool {
        self.state().deadly.contains(&run)
    }

    /// The program on the host `who` dies of its action.
    pub(crate) fn kill(&self, who: &str) {
        self.count("killed by a launch");
        self.step("FAULT", &format!("a launch kills {who}"));
        let _ = self.state().kills.send(who.to_owned());
    }

    /// The hosts of programs that die this way; can be taken once.
    pub(crate) fn killed(&self) -> mpsc::UnboundedReceiver<String> {
        self.state().killed.take().expect("taken once")
    }

    /// A number from 0 to `end`, exclusive.
    pub(crate) fn below(&self, end: u64) -> u64 {
        self.state().random.u64(0..end)
    }

    pub(crate) fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.state().random.fill(&mut bytes);
        bytes
    }

    /// Lets time pass: mostly about a millisecond, sometimes much more.
    pub(crate) async fn pause(&self) {
        let microseconds = match self.below(100) {
            0 if self.is_hostile() => 50_000 + self.below(1_500_000),
            1..10 => 1_000 + self.below(20_000),
            _ => 50 + self.below(1_500),
        };
        tokio::time::sleep(Duration::from_micros(microseconds)).await;
    }

    pub(crate) fn is_hostile(&self) -> bool {
        self.state().is_hostile
    }

    /// From now on no fault happens.
    pub(crate) fn calm(&self) {
        self.state().is_hostile = false;
    }

    /// The time since boot of all hosts.
    pub(crate) fn since_boot(&self) -> Duration {
        self.elapsed() + Duration::from_secs(1_000)
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.state().began.elapsed()
    }

    /// Hash of the trace so far; the steps, counts and violations.
    pub(crate) fn conclude(&self) -> (Digest, u64, BTreeMap<&'static str, u64>, Vec<String>) {
        let mut state = self.state();
        let trace = std::mem::replace(&mut state.trace, Hasher::new());
        (
            trace.finish(),
            state.steps,
            state.counts.clone(),
            state.violations.clone(),
        )
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
