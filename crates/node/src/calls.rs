//! The calls of one attempt: keys, joining, waiting, answers with their files.
//!
//! A call continues when the connection of the capsule breaks; the capsule joins it by repeating the request.
//! A capsule waits while it has an open request: [`Activity::waiting`].

mod activity;
mod book;
mod bring_home;
mod call;
mod files;
mod grants;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use aod_api::internal::{CallLine, CallRequest};
use aod_api::problem::Problem;
use aod_domain::contract::canonical;
use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_domain::handoff::Call;
use aod_domain::id::RunId;
use aod_domain::manifest::slug;
use aod_domain::run::FileEntry;
use aod_services::program::inherit;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use self::activity::{Activity, Waiting};
use self::book::Book;
#[cfg_attr(
    not(feature = "fuzzing"),
    expect(unreachable_pub, reason = "public for the fuzz targets")
)]
pub use self::call::Wish;
pub(crate) use self::call::{Answer, CallEnd, CallState, Progress};
pub(crate) use self::files::CallFiles;
use self::grants::Bounds;
pub(crate) use self::grants::Grants;
use crate::gateways::speaker::Speaker;
use crate::lock::lock;
use crate::record::notes::FactNotes;

/// Arguments of the calls that one attempt has in flight, in KiB: the node keeps them until the callees end, to repeat
/// the calls at other gateways.
const ARGUMENTS_KIBIBYTES_MAX: usize = 64 << 10;

/// The calls of one attempt.
pub(crate) struct Calls {
    pub(crate) speaker: Speaker,
    pub(crate) activity: Activity,
    files: CallFiles,
    permissions: Permissions,
    book: Mutex<Book>,
    memory: Arc<Semaphore>,
    /// Accepts no new calls.
    is_closed: AtomicBool,
    stopped: CancellationToken,
    tasks: TaskTracker,
}

/// The grants of an attempt, and the notes of its refused calls.
pub(crate) struct Permissions {
    pub(crate) grants: Grants,
    pub(crate) notes: FactNotes,
}

impl Calls {
    pub(crate) fn new(speaker: Speaker, files: CallFiles, permissions: Permissions) -> Arc<Self> {
        Arc::new(Self {
            speaker,
            activity: Activity::default(),
            files,
            permissions,
            book: Mutex::default(),
            memory: Arc::new(Semaphore::new(ARGUMENTS_KIBIBYTES_MAX)),
            is_closed: AtomicBool::new(false),
            stopped: CancellationToken::new(),
            tasks: TaskTracker::new(),
        })
    }

    /// A callee that has not ended, if any.
    pub(crate) fn open_callee(&self) -> Option<RunId> {
        let book = lock(&self.book);
        book.by_run.iter().find_map(|(run, call)| {
            matches!(*call.progress.borrow(), Progress::Accepted(_)).then_some(*run)
        })
    }

    /// The number of calls.
    pub(crate) fn count(&self) -> u32 {
        lock(&self.book).calls
    }

    /// The hashes of the results of ended callees.
    pub(crate) fn children(&self) -> BTreeMap<RunId, Digest> {
        lock(&self.book).children.clone()
    }

    /// The call that started `run`.
    pub(crate) fn find(&self, run: RunId) -> Option<Arc<CallState>> {
        lock(&self.book).by_run.get(&run).cloned()
    }

    /// Starts a call, or joins an identical one.
    pub(crate) async fn call(self: &Arc<Self>, wish: Wish) -> Result<Arc<CallState>, Box<Problem>> {
        let target = wish.target.clone();
        let made = self.make(wish).await;
        if let Err(problem) = &made {
            self.refused(&target, problem).await;
        }
        made
    }

    /// Notes the refusal of a request to `target`.
    pub(crate) async fn refused(&self, target: &str, problem: &Problem) {
        self.permissions.notes.call_refused(target, problem).await;
    }

    async fn make(self: &Arc<Self>, wish: Wish) -> Result<Arc<CallState>, Box<Problem>> {
        if self.is_closed.load(Ordering::Relaxed) {
            let text = "the run is ending and accepts no new calls";
            return Err(Box::new(Problem::new(ErrorCode::RunEnded, text)));
        }
        let arguments = Value::Object(wish.arguments.clone());
        let memory = self.memory_for(&arguments)?;
        let files = self.files.stage(&arguments).await?;
        let bounds = self.bounds(&wish.target).await?;
        let request = signature(&wish.target, &arguments, &files);
        let given = wish.idempotency_key.as_deref();
        let claimed = lock(&self.book).claim(request, given, bounds.as_ref());
        let (call, key) = claimed?;
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
            pool: wish.pool,
        };
        let (calls, state) = (Arc::clone(self), Arc::clone(&call));
        self.tasks.spawn(inherit(async move {
            let _memory = memory;
            tokio::select! {
                biased;
                () = calls.stopped.cancelled() => (),
                answer = calls.answer(&request, &state) => {
                    if let Err(problem) = &answer {
                        lock(&calls.book).forget(&request.call_key, &state);
                        calls.refused(&request.target, problem).await;
                    }
                    state.progress.send_replace(Progress::Done(answer));
                }
            }
        }));
        Ok(call)
    }

    /// Space for the arguments of one more call.
    fn memory_for(&self, arguments: &Value) -> Result<OwnedSemaphorePermit, Box<Problem>> {
        let kibibytes = u32::try_from(canonical(arguments).len() / 1_024).unwrap_or(u32::MAX);
        let memory = Arc::clone(&self.memory).try_acquire_many_owned(kibibytes);
        memory.map_err(|_| {
            let text = format!(
                "the arguments of the calls in flight have more than {ARGUMENTS_KIBIBYTES_MAX} KiB; \
                 wait for a call to end, or put large data into files"
            );
            Box::new(Problem::new(ErrorCode::TooManyCalls, text))
        })
    }

    /// The bounds of calls of `target` in the caller's list.
    async fn bounds(&self, target: &str) -> Result<Option<Bounds>, Box<Problem>> {
        let grants = &self.permissions.grants;
        if grants.is_empty() {
            return Ok(None);
        }
        let targets = self.speaker.targets().await?;
        Ok(grants.bounds(target, &targets.targets))
    }

    async fn answer(&self, request: &CallRequest, call: &Arc<CallState>) -> Answer {
        let accepted = |run| {
            lock(&self.book).by_run.insert(run, Arc::clone(call));
            call.progress.send_if_modified(|progress| {
                let is_first = matches!(progress, Progress::Sent);
                if is_first {
                    *progress = Progress::Accepted(run);
                }
                is_first
            });
        };
        let CallLine::Ended { ended, hash } = self.speaker.call(request, accepted).await? else {
            unreachable!("a call ends with its end");
        };
        let Progress::Accepted(run) = *call.progress.borrow() else {
            let text = "the gateway reported the end of a call before its start";
            return Err(Box::new(Problem::new(ErrorCode::Internal, text)));
        };
        lock(&self.book).children.insert(run, hash);
        self.bring_home(run, *ended, &request.target).await
    }

    /// Accepts no new calls, cancels open ones, and returns once all callees have ended.
    pub(crate) async fn end_all(&self, reason: &str) {
        self.is_closed.store(true, Ordering::Relaxed);
        let pending: Vec<Arc<CallState>> = lock(&self.book).by_key.values().cloned().collect();
        for call in pending {
            let mut progress = call.progress();
            // A call that the gateway still checks may become a run: wait for its id.
            let reached = progress
                .wait_for(|progress| !matches!(progress, Progress::Sent))
                .await
                .map(|reached| reached.clone());
            let Ok(Progress::Accepted(run)) = reached else {
                continue;
            };
            // A refusal means that the callee has ended.
            let _ = self.speaker.cancel(run, reason).await;
            let _ = progress
                .wait_for(|progress| matches!(progress, Progress::Done(_)))
                .await;
        }
    }

    /// Stops waiting for callees, which continue: the attempt is over.
    pub(crate) fn stop(&self) {
        self.stopped.cancel();
    }
}

/// Equal for calls with the same target, arguments and files.
fn signature(target: &str, arguments: &Value, files: &[FileEntry]) -> Digest {
    let files: BTreeMap<_, _> = files
        .iter()
        .map(|file| (file.name.clone(), file.digest))
        .collect();
    // A target without a slug is unknown: the gateway reports it.
    let Some(target) = slug(target) else {
        return Digest::of(target);
    };
    Call {
        target: &target,
        arguments,
        files: &files,
    }
    .signature()
}
