//! The calls of one attempt: keys, joining, waiting, answers with their files.
//!
//! A call goes on when the connection of the capsule breaks; asked again in the same words, it is
//! the same call. That the capsule waits is nothing but an open request: [`Calls::waiting`].

mod bring_home;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aod_api::internal::{CallLine, CallRequest};
use aod_api::problem::{Problem, ProblemItem};
use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_domain::file_name::FileName;
use aod_domain::handoff::{CALLS_IN_FLIGHT_MAX, Call, derived_key, given_key};
use aod_domain::id::RunId;
use aod_domain::manifest::slug;
use aod_domain::run::{Ended, FileEntry, Limits, Retries};
use aod_domain::subject::Label;
use aod_ports::artifact_store::ArtifactStore;
use aod_ports::program::inherit;
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::gateway_client::{GatewayClient, Speaker};
use crate::grants::{Bounds, Counted, Grants};
use crate::notes::Refusals;
use crate::stage::{StageError, stage};

/// What a capsule asks for.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) target: String,
    pub(crate) arguments: Map<String, Value>,
    pub(crate) idempotency_key: Option<String>,
    pub(crate) timeout_seconds: Option<u32>,
    pub(crate) retries: Retries,
    pub(crate) limits: Limits,
    pub(crate) label: Option<Label>,
}

/// What came of a call: the callee's end and where its files are, or a refusal.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Ended(Arc<CallEnd>),
    Refused(Box<Problem>),
}

/// The end of a callee as its caller sees it.
#[derive(Debug)]
pub(crate) struct CallEnd {
    pub(crate) run: RunId,
    pub(crate) ended: Ended,
    pub(crate) output: Option<Value>,
    /// The callee's names of its files and what they are called in `incoming/`.
    pub(crate) files: BTreeMap<FileName, FileName>,
}

/// How far a call is.
#[derive(Clone, Debug)]
pub(crate) enum Progress {
    /// Being checked and stored.
    Sent,
    Accepted(RunId),
    Done(Answer),
}

/// The calls of one attempt.
pub(crate) struct Calls {
    pub(crate) speaker: Speaker,
    pub(crate) gateways: Arc<GatewayClient>,
    artifacts: Arc<dyn ArtifactStore>,
    /// Bytes of files that came from elsewhere.
    fetched: Arc<AtomicU64>,
    outgoing: PathBuf,
    incoming: PathBuf,
    bytes_max: u64,
    permissions: Permissions,
    state: Mutex<State>,
    open: watch::Sender<usize>,
    /// Requests of the capsule that are being served, whatever they ask for.
    served: watch::Sender<usize>,
    /// Takes no new calls.
    is_closed: AtomicBool,
    stopped: CancellationToken,
    tasks: TaskTracker,
}

/// What an attempt may call, and where it is told that it tried more.
pub(crate) struct Permissions {
    pub(crate) grants: Grants,
    pub(crate) refusals: Refusals,
}

#[derive(Default)]
struct State {
    by_key: BTreeMap<Digest, Arc<CallState>>,
    by_run: BTreeMap<RunId, Arc<CallState>>,
    occurrences: HashMap<Digest, Vec<Arc<CallState>>>,
    children: BTreeMap<RunId, Digest>,
    incoming_taken: BTreeSet<FileName>,
    counted: Counted,
    calls: u32,
}

/// One call.
pub(crate) struct CallState {
    request: Digest,
    progress: watch::Sender<Progress>,
    /// Nobody listens and the answer was not handed out: the next call in the same words is this one.
    is_abandoned: AtomicBool,
}

/// A request of the capsule that is open: while there is one, the run holds no slot.
pub(crate) struct Waiting {
    open: watch::Sender<usize>,
    call: Arc<CallState>,
    is_delivered: bool,
}

impl Waiting {
    pub(crate) fn delivered(&mut self) {
        self.is_delivered = true;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.open.send_modify(|open| *open -= 1);
        if !self.is_delivered {
            self.call.is_abandoned.store(true, Ordering::Relaxed);
        }
    }
}

/// A request of the capsule that is being served.
pub(crate) struct Serving(Arc<Calls>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.served.send_modify(|served| *served -= 1);
    }
}

impl CallState {
    pub(crate) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }
}

impl Calls {
    pub(crate) fn new(
        speaker: Speaker,
        gateways: Arc<GatewayClient>,
        artifacts: Arc<dyn ArtifactStore>,
        (outgoing, incoming): (PathBuf, PathBuf),
        bytes_max: u64,
        permissions: Permissions,
        fetched: Arc<AtomicU64>,
    ) -> Arc<Self> {
        Arc::new(Self {
            speaker,
            gateways,
            artifacts,
            fetched,
            outgoing,
            incoming,
            bytes_max,
            permissions,
            state: Mutex::default(),
            open: watch::Sender::new(0),
            served: watch::Sender::new(0),
            is_closed: AtomicBool::new(false),
            stopped: CancellationToken::new(),
            tasks: TaskTracker::new(),
        })
    }

    /// How many requests of the capsule are open.
    pub(crate) fn waiting(&self) -> watch::Receiver<usize> {
        self.open.subscribe()
    }

    /// How many requests of the capsule are being served. Each change is a sign of life.
    pub(crate) fn served(&self) -> watch::Receiver<usize> {
        self.served.subscribe()
    }

    /// Takes note of a request of the capsule, until its answer begins.
    pub(crate) fn serve(self: &Arc<Self>) -> Serving {
        self.served.send_modify(|served| *served += 1);
        Serving(Arc::clone(self))
    }

    /// A callee that has not ended, if there is one.
    pub(crate) fn open_callee(&self) -> Option<RunId> {
        let state = self.state();
        state.by_run.iter().find_map(|(run, call)| {
            matches!(*call.progress.borrow(), Progress::Accepted(_)).then_some(*run)
        })
    }

    /// Calls made so far.
    pub(crate) fn count(&self) -> u32 {
        self.state().calls
    }

    /// The hashes of the results of the callees that have ended.
    pub(crate) fn children(&self) -> BTreeMap<RunId, Digest> {
        self.state().children.clone()
    }

    /// Marks a request of the capsule as open.
    pub(crate) fn wait_for(&self, call: &Arc<CallState>) -> Waiting {
        self.open.send_modify(|open| *open += 1);
        call.is_abandoned.store(false, Ordering::Relaxed);
        Waiting {
            open: self.open.clone(),
            call: Arc::clone(call),
            is_delivered: false,
        }
    }

    /// The call that started `run`.
    pub(crate) fn find(&self, run: RunId) -> Option<Arc<CallState>> {
        self.state().by_run.get(&run).cloned()
    }

    /// Starts a call, or joins the one that it repeats.
    pub(crate) async fn call(self: &Arc<Self>, wish: Wish) -> Result<Arc<CallState>, Box<Problem>> {
        let target = wish.target.clone();
        let made = self.make(wish).await;
        if let Err(problem) = &made {
            self.refused(&target, problem).await;
        }
        made
    }

    /// Tells that the capsule was refused what it asked `target` for.
    pub(crate) async fn refused(&self, target: &str, problem: &Problem) {
        self.permissions.refusals.tell(target, problem).await;
    }

    async fn make(self: &Arc<Self>, wish: Wish) -> Result<Arc<CallState>, Box<Problem>> {
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(Box::new(Problem::new(
                ErrorCode::RunEnded,
                "the run is ending and makes no more calls",
            )));
        }
        let arguments = Value::Object(wish.arguments.clone());
        let files = stage(
            &arguments,
            self.outgoing.clone(),
            self.bytes_max,
            &self.artifacts,
        )
        .await
        .map_err(|error| Box::new(stage_problem(error)))?;
        let bounds = self.bounds(&wish.target).await?;
        let (call, key) = self.claim(&wish, &arguments, &files, bounds.as_ref())?;
        let Some(key) = key else { return Ok(call) };
        let longest = bounds.and_then(|bounds| bounds.timeout_seconds);
        let request = CallRequest {
            attempt: self.speaker.attempt,
            target: wish.target,
            arguments: wish.arguments,
            files,
            call_key: key,
            timeout_seconds: wish.timeout_seconds.into_iter().chain(longest).min(),
            retries: wish.retries,
            limits: wish.limits,
            label: wish.label,
        };
        let (calls, state) = (Arc::clone(self), Arc::clone(&call));
        self.tasks.spawn(inherit(async move {
            tokio::select! {
                biased;
                () = calls.stopped.cancelled() => (),
                answer = calls.answer(&request, &state) => {
                    if let Answer::Refused(problem) = &answer {
                        calls.forget(&request.call_key, &state);
                        calls.refused(&request.target, problem).await;
                    }
                    state.progress.send_replace(Progress::Done(answer));
                }
            }
        }));
        Ok(call)
    }

    /// The bounds of calls of `target` by the caller's list.
    async fn bounds(&self, target: &str) -> Result<Option<Bounds>, Box<Problem>> {
        let grants = &self.permissions.grants;
        if grants.is_empty() {
            return Ok(None);
        }
        let targets = self.gateways.targets(&self.speaker).await?;
        Ok(grants.bounds(target, &targets.targets))
    }

    /// Finds the call that `wish` is: a known one, or a new one with its key.
    fn claim(
        &self,
        wish: &Wish,
        arguments: &Value,
        files: &[FileEntry],
        bounds: Option<&Bounds>,
    ) -> Result<(Arc<CallState>, Option<Digest>), Box<Problem>> {
        let by_name: BTreeMap<_, _> = files
            .iter()
            .map(|file| (file.name.clone(), file.digest))
            .collect();
        // A target that has no slug is unknown: the gateway says so in its own words.
        let target = slug(&wish.target);
        let request = target.as_ref().map_or_else(
            || Digest::of(&wish.target),
            |target| {
                Call {
                    target,
                    arguments,
                    files: &by_name,
                }
                .signature()
            },
        );
        let mut state = self.state();
        let key = match &wish.idempotency_key {
            Some(given) => given_key(given),
            None => {
                let occurrences = state.occurrences.entry(request).or_default();
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
        if let Some(call) = state.by_key.get(&key) {
            if call.request == request {
                return Ok((Arc::clone(call), None));
            }
            let text =
                "the Idempotency-Key was used for a call with another target, arguments or files";
            return Err(Box::new(Problem::new(ErrorCode::KeyReused, text)));
        }
        state.admit(key, bounds)?;
        let call = Arc::new(CallState {
            request,
            progress: watch::Sender::new(Progress::Sent),
            is_abandoned: AtomicBool::new(false),
        });
        state.calls += 1;
        state.by_key.insert(key, Arc::clone(&call));
        if wish.idempotency_key.is_none() {
            state
                .occurrences
                .entry(request)
                .or_default()
                .push(Arc::clone(&call));
        }
        Ok((call, Some(key)))
    }

    /// A call that was refused has not come about: the same words may be said again, and then mean the
    /// same callee, if there is one.
    fn forget(&self, key: &Digest, call: &Arc<CallState>) {
        let mut state = self.state();
        state.by_key.remove(key);
        state.counted.remove(key);
        if let Some(occurrences) = state.occurrences.get_mut(&call.request) {
            occurrences.retain(|occurrence| !Arc::ptr_eq(occurrence, call));
        }
    }

    async fn answer(&self, request: &CallRequest, call: &Arc<CallState>) -> Answer {
        let accepted = |run| {
            self.state().by_run.insert(run, Arc::clone(call));
            call.progress.send_if_modified(|progress| {
                let is_first = matches!(progress, Progress::Sent);
                if is_first {
                    *progress = Progress::Accepted(run);
                }
                is_first
            });
        };
        match self.gateways.call(&self.speaker, request, accepted).await {
            Err(problem) => Answer::Refused(problem),
            Ok(CallLine::Accepted { .. }) => unreachable!("a call ends with its end"),
            Ok(CallLine::Ended { ended, hash }) => {
                let Progress::Accepted(run) = *call.progress.borrow() else {
                    return Answer::Refused(Box::new(Problem::new(
                        ErrorCode::Internal,
                        "an end before its start",
                    )));
                };
                self.state().children.insert(run, hash);
                self.bring_home(run, *ended, &request.target).await
            }
        }
    }

    /// Takes no more calls, and returns once those that go on have ended: cancelled, unless they
    /// end by themselves first.
    pub(crate) async fn end_all(&self, reason: &str) {
        self.is_closed.store(true, Ordering::Relaxed);
        let pending: Vec<Arc<CallState>> = self.state().by_key.values().cloned().collect();
        for call in pending {
            let mut progress = call.progress();
            // A call that is only being checked may still become a run: it must be known first.
            let reached = progress
                .wait_for(|progress| !matches!(progress, Progress::Sent))
                .await
                .map(|reached| reached.clone());
            let Ok(Progress::Accepted(run)) = reached else {
                continue;
            };
            // A refusal means that it has ended meanwhile.
            let _ = self.gateways.cancel(&self.speaker, run, reason).await;
            let _ = progress
                .wait_for(|progress| matches!(progress, Progress::Done(_)))
                .await;
        }
    }

    /// Stops waiting for anything: the attempt is over, whatever becomes of its calls.
    pub(crate) fn stop(&self) {
        self.stopped.cancel();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Counts a new call, unless there are too many.
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
        let text = format!(
            "tools.yaml allows {} calls of {}, and as many were made",
            bounds.calls_max.unwrap_or_default(),
            bounds.target
        );
        Err(Box::new(Problem::new(ErrorCode::CallsExhausted, text)))
    }

    fn in_flight(&self) -> usize {
        self.by_key
            .values()
            .filter(|call| !matches!(*call.progress.borrow(), Progress::Done(_)))
            .count()
    }
}

/// An error and all that led to it, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

fn stage_problem(error: StageError) -> Problem {
    match error {
        StageError::Refused(refused) => {
            let items = refused
                .into_iter()
                .map(|(pointer, reason)| {
                    ProblemItem::new(format!("/args{pointer}"), reason.to_string())
                })
                .collect();
            Problem::new(
                ErrorCode::FileRefused,
                "files of the call cannot be handed over",
            )
            .with_errors(items)
        }
        StageError::Store(error) => Problem::new(ErrorCode::StoreUnavailable, chain(&error)),
    }
}
