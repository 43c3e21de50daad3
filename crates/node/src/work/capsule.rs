//! Runs a capsule: prepares, starts, watches, stops if necessary, collects.
//!
//! ```text
//! prepare    image, files, schema                  start       the container, with environment, devices, secrets
//! watch      output, limits, lease                 heartbeat, run_clock   two of the limits
//! task       for a task: its steps, as processes (`processes`, `tail`) of the container
//! judgement  how the container ended               finish      the result      leave   logs, clean-up
//! ```

mod devices;
mod environment;
mod finish;
mod heartbeat;
mod judgement;
mod leave;
mod prepare;
mod processes;
mod run_clock;
mod start;
mod tail;
mod task;
mod watch;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use aod_domain::capsule::{Handoffs, Image, ModelGrant, Needs};
use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_domain::run::RunError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use self::processes::Processes;
use self::start::Started;
use self::task::{Sandbox, TaskEnd};
use self::watch::{Watch, Watched};
use crate::attempt::leftover::Leftover;
use crate::attempt::{Attempt, Finish};
use crate::calls::{CallFiles, Calls, Grants, Permissions};
use crate::channel::{self, Channel};
use crate::egress::Egress;
use crate::files::workdir::WorkDirectory;
use crate::models::access::{Asker, ModelAccess};
use crate::record::logs::Logs;
use crate::record::notes::{Notes, Phase};
use crate::secrets::redaction::Redaction;
use crate::shared::ledger::Seat;
use aod_services::error::chain;

/// The capsule that a run starts, as it was registered.
#[derive(Clone, Copy)]
pub(super) struct Capsule<'a> {
    pub(super) image: &'a Image,
    pub(super) schema: Digest,
    pub(super) handoffs: &'a Handoffs,
    pub(super) models: Option<&'a ModelGrant>,
    pub(super) needs: &'a Needs,
    /// For a task: its workflow.
    pub(super) workflow: Option<Digest>,
}

/// An attempt while its capsule runs.
struct Active<'a> {
    attempt: &'a Attempt,
    capsule: Capsule<'a>,
    directory: WorkDirectory,
    services: Services,
    records: Records,
    /// Start of the attempt, since the boot of the host.
    began: Duration,
    /// Deadline for storing outputs and logs, set when the capsule ends.
    collected_by: Option<Instant>,
}

/// The services for the capsule.
struct Services {
    channel: Channel,
    /// Bytes of files and image that came from the artifact store.
    fetched: Arc<AtomicU64>,
    /// Closes the channel.
    stop: CancellationToken,
}

/// The records of the attempt.
struct Records {
    notes: Notes,
    logs: Logs,
    redaction: Redaction,
}

/// Runs `capsule`; returns the end of the attempt and the leftover to clean up.
pub(super) async fn run(attempt: &Attempt, capsule: Capsule<'_>, seat: Seat) -> (Finish, Leftover) {
    match Active::open(attempt, capsule) {
        Ok(active) => active.run(seat).await,
        Err(error) => {
            let text = format!("the node cannot create the directories of the run: {error}");
            let finish = attempt.failed(RunError::new(ErrorCode::RuntimeFailed, text));
            (finish, Leftover::of(seat))
        }
    }
}

impl<'a> Active<'a> {
    fn open(attempt: &'a Attempt, capsule: Capsule<'a>) -> std::io::Result<Self> {
        let shared = &attempt.shared;
        let directory = shared
            .host
            .directories
            .make(attempt.run.id, attempt.number)?;
        let records = Records::open(attempt, &directory);
        let services = Services::open(attempt, capsule, &directory, &records)?;
        Ok(Self {
            attempt,
            capsule,
            directory,
            services,
            records,
            began: shared.runs.clock().since_boot(),
            collected_by: None,
        })
    }

    async fn run(mut self, mut seat: Seat) -> (Finish, Leftover) {
        let mut started = match self.start(seat.devices()).await {
            Ok(started) => started,
            Err(finish) => return self.leave(finish, None, seat).await,
        };
        let finish = match self.watch(&mut started, &mut seat).await {
            Ok((watched, Some(Err(error)))) if watched.stop.is_none() => Finish::Lost(error),
            Ok((watched, end)) => {
                started.task_end = end.and_then(Result::ok).flatten();
                self.records.notes.tell(Phase::Collecting);
                let limits = &self.attempt.run.launched.event.limits;
                self.collected_by = limits.collection().map(|limit| Instant::now() + limit);
                self.finish(&started, &watched, &mut seat).await
            }
            Err(finish) => finish,
        };
        self.leave(finish, Some(started.container), seat).await
    }

    /// Watches the container to its end; a task runs its steps meanwhile.
    async fn watch(
        &mut self,
        started: &mut Started,
        seat: &mut Seat,
    ) -> Result<(Watched, Option<Driven>), Finish> {
        let processes = Processes::default();
        let watch = Watch {
            attempt: self.attempt,
            calls: &self.services.channel.calls,
            notes: &self.records.notes,
            paths: self.directory.paths(),
            processes: &processes,
        };
        let events = started.container.events();
        let container = started.container.as_ref();
        let mut watched = pin!(watch.run(container, events, &mut self.records.logs, seat));
        let Some(task) = &mut started.task else {
            return Ok((watched.await?, None));
        };
        let sandbox = Sandbox {
            attempt: self.attempt,
            container,
            processes: &processes,
            paths: self.directory.paths(),
            redaction: &self.records.redaction,
            began: self.began,
        };
        let mut driven = pin!(async {
            let driven = task.drive(sandbox).await;
            if let Err(error) = container.finish().await {
                debug!(error = %chain(&error), "the container of a task did not get the order to end");
            }
            driven
        });
        tokio::select! {
            biased;
            watched = &mut watched => Ok((watched?, None)),
            end = &mut driven => Ok((watched.await?, Some(end))),
        }
    }
}

/// The end of a task; none if its attempt has lost its lease.
type Driven = Result<Option<TaskEnd>, RunError>;

impl Records {
    fn open(attempt: &Attempt, directory: &WorkDirectory) -> Self {
        let redaction = Redaction::default();
        let runs = attempt.shared.runs.clone();
        Self {
            notes: Notes::start(runs, &attempt.run, attempt.number, redaction.clone()),
            logs: attempt.logs(&directory.private("log"), redaction.clone()),
            redaction,
        }
    }
}

impl Services {
    fn open(
        attempt: &Attempt,
        capsule: Capsule<'_>,
        directory: &WorkDirectory,
        records: &Records,
    ) -> std::io::Result<Self> {
        let (shared, paths, notes) = (&attempt.shared, directory.paths(), &records.notes);
        let fetched = Arc::new(AtomicU64::default());
        let files = CallFiles {
            artifacts: Arc::clone(&shared.ports.artifacts),
            outgoing: paths.outgoing.clone(),
            incoming: paths.incoming.clone(),
            bytes_max: attempt.run.launched.event.resources.disk_bytes,
            fetched: Arc::clone(&fetched),
        };
        let permissions = Permissions {
            grants: Grants::of(capsule.handoffs),
            notes: notes.facts(),
        };
        let channel = Channel {
            calls: Calls::new(attempt.speaker.clone(), files, permissions),
            models: ModelAccess::new(
                Arc::clone(&shared.models),
                Asker::of(&attempt.run, attempt.number, capsule.models),
                notes.facts(),
                records.redaction.clone(),
            ),
            egress: Egress::new(
                capsule.needs.egress.clone(),
                shared.config.egress.clone(),
                Arc::clone(&shared.ports.network),
                notes.facts(),
            ),
        };
        let stop = CancellationToken::new();
        channel::serve(directory.listener()?, channel.clone(), stop.clone())?;
        Ok(Self {
            channel,
            fetched,
            stop,
        })
    }
}
