//! The calls of one attempt by their keys: identical requests join one call.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use aod_api::problem::Problem;
use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_domain::file_name::FileName;
use aod_domain::handoff::{CALLS_IN_FLIGHT_MAX, derived_key, given_key};
use aod_domain::id::RunId;

use super::call::{CallState, Progress};
use super::grants::{Bounds, Counted};

/// The calls of one attempt by their keys.
#[derive(Default)]
pub(super) struct Book {
    pub(super) by_key: BTreeMap<Digest, Arc<CallState>>,
    pub(super) by_run: BTreeMap<RunId, Arc<CallState>>,
    occurrences: HashMap<Digest, Vec<Arc<CallState>>>,
    pub(super) children: BTreeMap<RunId, Digest>,
    pub(super) incoming_taken: BTreeSet<FileName>,
    counted: Counted,
    pub(super) calls: u32,
}

impl Book {
    /// Finds the call of a `request` with its `given` key: a known one, or a new one with its key.
    pub(super) fn claim(
        &mut self,
        request: Digest,
        given: Option<&str>,
        bounds: Option<&Bounds>,
    ) -> Result<(Arc<CallState>, Option<Digest>), Box<Problem>> {
        let key = match given {
            Some(given) => given_key(given),
            None => {
                let occurrences = self.occurrences.entry(request).or_default();
                if let Some(abandoned) = occurrences
                    .iter()
                    .find(|call| call.is_abandoned.swap(false, Ordering::Relaxed))
                {
                    return Ok((Arc::clone(abandoned), None));
                }
                derived_key(
                    &request,
                    u32::try_from(occurrences.len()).unwrap_or(u32::MAX),
                )
            }
        };
        if let Some(call) = self.by_key.get(&key) {
            if call.request == request {
                return Ok((Arc::clone(call), None));
            }
            let text =
                "the Idempotency-Key was used for a call with another target, arguments or files";
            return Err(Box::new(Problem::new(ErrorCode::KeyReused, text)));
        }
        self.admit(key, bounds)?;
        let call = CallState::new(request);
        self.calls += 1;
        self.by_key.insert(key, Arc::clone(&call));
        if given.is_none() {
            self.occurrences
                .entry(request)
                .or_default()
                .push(Arc::clone(&call));
        }
        Ok((call, Some(key)))
    }

    /// Forgets a refused call: the capsule may repeat the request, which then gets the same callee, if any.
    pub(super) fn forget(&mut self, key: &Digest, call: &Arc<CallState>) {
        self.by_key.remove(key);
        self.counted.remove(key);
        if let Some(occurrences) = self.occurrences.get_mut(&call.request) {
            occurrences.retain(|occurrence| !Arc::ptr_eq(occurrence, call));
        }
    }

    /// Counts a new call; fails if the run has too many.
    fn admit(&mut self, key: Digest, bounds: Option<&Bounds>) -> Result<(), Box<Problem>> {
        if self.in_flight() >= CALLS_IN_FLIGHT_MAX {
            let text = format!(
                "{CALLS_IN_FLIGHT_MAX} calls of this run are in flight; wait for one to end"
            );
            return Err(Box::new(Problem::new(ErrorCode::TooManyCalls, text)));
        }
        let Some(bounds) = bounds else { return Ok(()) };
        if self.counted.add(bounds, key) {
            return Ok(());
        }
        let (count, target) = (bounds.calls_max.unwrap_or_default(), &bounds.target);
        let allowed = format!("tools.yaml allows {count} calls of {target}");
        let text = format!("{allowed}, and this attempt has made all of them");
        Err(Box::new(Problem::new(ErrorCode::CallsExhausted, text)))
    }

    fn in_flight(&self) -> usize {
        self.by_key
            .values()
            .filter(|call| !matches!(*call.progress.borrow(), Progress::Done(_)))
            .count()
    }
}
