//! From a request to a stored launch: reads what the rules of `domain::launch` need, and stores what comes out.

use aod_domain::artifacts::{Role, named_by_launch};
use aod_domain::contract::canonical;
use aod_domain::file_name::Directory;
use aod_domain::id::RunId;
use aod_domain::launch::{self, Checked, Origin, Wanted};
use aod_domain::run::{Command, Launched, Payload, Phase, Run};
use aod_ports::event_log::EventLog;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream;
use tokio::time::Instant;

use crate::admission::admission_of;
use crate::capsules::catalogue::Registered;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::files::deleted_artifacts;
use crate::runs::result_waiters::{RunEnd, Waiter};

/// Checks the arguments and files of `wanted`, whose names are relative to `directory`. `prefix` is
/// where the arguments are in the body.
pub(crate) async fn check(
    context: &Context,
    registration: Registered,
    wanted: &Wanted,
    directory: Directory,
    prefix: &str,
) -> Result<Checked> {
    let schema = context.capsules.schema(&registration.event).await?;
    let registration = registration.event.clone();
    launch::check(registration, &schema.contract, wanted, directory)
        .map_err(|rejection| Error::rejected(&rejection, prefix))
}

/// A run whose result a request may wait for.
pub(crate) struct Started {
    pub(crate) run: Run,
    pub(crate) waiter: Waiter,
}

impl Started {
    /// Waits as [`Waiter::wait`] does; a run that was joined may have ended before.
    pub(crate) async fn end(self, log: &dyn EventLog, until: Option<Instant>) -> Option<RunEnd> {
        match self.run.ended() {
            Some(end) => Some(RunEnd::of(end.clone())),
            None => self.waiter.wait(log, until).await,
        }
    }
}

/// Stores the launch of `id`, or joins the run that is there already.
pub(crate) async fn launch(
    context: &Context,
    id: RunId,
    checked: &Checked,
    origin: Origin,
) -> Result<Started> {
    let launched = launched(context, checked, origin).await?;
    renew_recorded(context, &launched).await?;
    if launched.reuses.is_none() {
        context.queues.ask(context, &launched.placement).await?;
    }
    let waiter = context.waiters.register(id);
    let command = Command::Launch(Box::new(launched));
    let run = context.runs.handle(id, &command, None).await?;
    // A run that waits for admission counts when it is admitted.
    if !matches!(run.phase, Phase::Requested) {
        let class = run.launched.event.placement.class;
        context.metrics.count_launch(class);
    }
    Ok(Started { run, waiter })
}

/// Renews the artifacts of the recorded run that `launched` repeats or reuses: garbage collection may have deleted
/// them.
async fn renew_recorded(context: &Context, launched: &Launched) -> Result<()> {
    let reused = launched.reuses.map(|reuses| reuses.run);
    let repeated = launched.rerun.as_ref();
    let repeated = repeated.map(|rerun| rerun.of.unwrap_or(rerun.tree));
    let Some(recorded) = reused.or(repeated) else {
        return Ok(());
    };
    let what = format!("the record of {recorded}");
    let mut named = named_by_launch(launched);
    // A run that reuses a result starts no container.
    named.retain(|named| reused.is_none() || named.role != Role::Image);
    deleted_artifacts::renew(context, &what, named).await
}

/// Joins the run `id` if it exists.
pub(crate) async fn join(context: &Context, id: RunId) -> Result<Option<Started>> {
    let waiter = context.waiters.register(id);
    let run = context.runs.load(id).await?;
    Ok(run.map(|run| Started { run, waiter }))
}

async fn launched(context: &Context, checked: &Checked, origin: Origin) -> Result<Launched> {
    let (priority, shared) = (origin.priority, origin.shared.clone());
    let (pool, resources) = (checked.pool(), checked.resources());
    let size = context.queues.size(context, pool, resources).await?;
    let mut launched = checked.launch(origin, size);
    let payload = checked.payload();
    if launched.reuses.is_none() {
        launched.admission = admission_of(context, &launched, payload, priority, shared).await?;
    }
    let room =
        launch::room_for_payload(&launched).map_err(|rejection| Error::rejected(&rejection, ""))?;
    let payload_bytes = canonical(payload);
    launched.payload = if payload_bytes.len() <= room {
        Payload::Inline(payload.clone())
    } else {
        store_payload(context, payload_bytes).await?
    };
    Ok(launched)
}

async fn store_payload(context: &Context, bytes: Vec<u8>) -> Result<Payload> {
    let piece = stream::iter([Ok(Bytes::from(bytes))]).boxed();
    let stored = context.ports.artifacts.put_stream(piece).await?;
    Ok(Payload::Artifact {
        digest: stored.digest,
        size_bytes: stored.size_bytes,
    })
}
