//! Runs a capsule: prepares, starts, watches, stops if necessary, collects.
//!
//! ```text
//! prepare    image, files, schema                  start       the container, with environment, devices, secrets
//! watch      output, limits, lease                 heartbeat, run_clock   two of the limits
//! judgement  how the container ended               finish      the result      leave   logs, clean-up
//! ```

mod devices;
mod environment;
mod finish;
mod heartbeat;
mod judgement;
mod leave;
mod prepare;
mod run_clock;
mod start;
mod watch;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use aod_domain::capsule::{Handoffs, Image, ModelGrant, Needs};
use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_domain::run::RunError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::watch::Watch;
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

/// The capsule that a run starts, as it was registered.
#[derive(Clone, Copy)]
pub(super) struct Capsule<'a> {
    pub(super) image: &'a Image,
    pub(super) schema: Digest,
    pub(super) handoffs: &'a Handoffs,
    pub(super) models: Option<&'a ModelGrant>,
    pub(super) needs: &'a Needs,
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
        let watch = Watch {
            attempt: self.attempt,
            calls: &self.services.channel.calls,
            notes: &self.records.notes,
            paths: self.directory.paths(),
        };
        let container = started.container.as_mut();
        let watched = watch
            .run(container, &mut self.records.logs, &mut seat)
            .await;
        let finish = match watched {
            Ok(watched) => {
                self.records.notes.tell(Phase::Collecting);
                let limits = &self.attempt.run.launched.event.limits;
                self.collected_by = limits.collection().map(|limit| Instant::now() + limit);
                self.finish(&started, &watched, &mut seat).await
            }
            Err(finish) => finish,
        };
        self.leave(finish, Some(started.container), seat).await
    }
}

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
