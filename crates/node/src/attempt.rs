//! One attempt at a run: take the lease, do the work, append the result, clear away.
//!
//! The lease fences: what this attempt decides counts only as long as the log says that it holds
//! the run. When the lease is lost everything is killed and nothing more is said.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aod_domain::capsule::Needs;
use aod_domain::digest::Digest;
use aod_domain::error_code::{ErrorCode, ErrorSource};
use aod_domain::event::Recorded;
use aod_domain::id::RunId;
use aod_domain::run::{
    AttemptFailed, Command, DELIVERIES_UNCOUNTED, Delivered as DeliveryBegun, Ended, Event, Holder,
    Outcome, Placement, Refused, Rejection, Retry, Run, RunError, Timings, Work,
};
use aod_ports::presence::Member;
use aod_ports::program::spawn;
use aod_ports::runs::HandleError;
use aod_ports::work_queue::Delivery;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, info_span, warn};

use crate::calls::chain;
use crate::gateway_client::Speaker;
use crate::lease::{self, LeaseKeeper};
use crate::ledger::Seat;
use crate::shared::Shared;
use crate::{build_run, capsule_run, children};

/// How long a launch rests after a failure of the platform before it is delivered again.
const REST_AFTER_FAILURE: Duration = Duration::from_secs(2);

/// Looks in a lease time whether the run was cancelled or taken over: whoever takes over while the
/// queue still knows this holder relies on it.
const LOOKS_A_LEASE: u32 = 3;

/// Between two tries to append a result.
const APPEND_RETRY: Duration = Duration::from_millis(250);

/// How the work of an attempt ended.
pub(crate) enum Finish {
    /// With the run's result.
    Ended(Box<Ended>),
    /// By a failure that the request wants to be tried again.
    Failed(Box<AttemptFailed>),
    /// This node cannot run it, another may.
    Refused(Box<Refused>),
    /// By a failure of the platform: another attempt may do better.
    Lost(RunError),
    /// The lease is gone: nothing may be said.
    Fenced,
}

/// The end of an attempt whose node is being stopped, or has drained for long enough: another node
/// goes on at once.
pub(crate) fn stopped() -> Finish {
    Finish::Lost(RunError::new(
        ErrorCode::NodeLost,
        "the node was stopped or drained",
    ))
}

/// An attempt that has the lease.
pub(crate) struct Attempt {
    pub(crate) shared: Arc<Shared>,
    pub(crate) run: Run,
    pub(crate) number: u32,
    pub(crate) speaker: Speaker,
    pub(crate) lease: LeaseKeeper,
    pub(crate) cancelled: CancellationToken,
    pub(crate) timings: Timings,
}

/// A launch as it came from the queue.
pub(crate) struct Delivered {
    pub(crate) delivery: Delivery,
    /// As it was read.
    pub(crate) launch: Option<Recorded<Event>>,
    /// Since the boot of the host.
    pub(crate) received: Duration,
}

impl Delivered {
    pub(crate) fn read(delivery: Delivery, received: Duration) -> Self {
        let launch = delivery.launch.decode();
        Self {
            launch: launch.ok(),
            delivery,
            received,
        }
    }

    /// Where the run may start; none of a launch that cannot be read.
    pub(crate) fn placement(&self) -> Option<&Placement> {
        match &self.launch.as_ref()?.event {
            Event::Launched(launched) => Some(&launched.placement),
            Event::Admitted(admitted) => Some(&admitted.placement),
            _ => None,
        }
    }
}

/// Sees a launch through; `seat` is given back when nothing of it is left on this host.
pub(crate) async fn attempt(shared: Arc<Shared>, delivered: Delivered, seat: Seat) {
    let span = info_span!("run", id = %delivered.delivery.run);
    run_delivery(shared, delivered, seat).instrument(span).await;
}

async fn run_delivery(shared: Arc<Shared>, delivered: Delivered, seat: Seat) {
    let Delivered {
        delivery,
        launch,
        received,
    } = delivered;
    let lease = LeaseKeeper::start(
        Arc::clone(&shared.ports.queue),
        Arc::clone(shared.runs.clock()),
        delivery.ack_subject.clone(),
        shared.config.lease,
        received,
    );
    // The hash of a secret is as hard to guess, and is text.
    let token = Digest::of(shared.runs.clock().fresh_secret()).to_string();
    let (run, number) = match take_lease(&shared, &delivery, launch, &token).await {
        Ok(taken) => taken,
        Err(refusal) => {
            settle_refusal(&shared, &delivery, &lease, &refusal).await;
            return;
        }
    };
    let cancelled = shared.begin(run.id, number);
    let speaker = Speaker {
        run: run.id,
        attempt: number,
        token,
    };
    let timings = Timings {
        leased_at: Some(shared.runs.clock().now()),
        ..Timings::default()
    };
    let attempt = Attempt {
        shared: Arc::clone(&shared),
        run,
        number,
        speaker,
        lease,
        cancelled,
        timings,
    };
    let watcher = attempt.watch();
    let id = attempt.run.id;
    let (finish, mut leftover) = if attempt.await_predecessor(&delivery).await {
        attempt.work(seat).await
    } else {
        (Finish::Fenced, Leftover::of(seat))
    };
    let settled = attempt.settle(&delivery, finish, &mut leftover).await;
    debug!(attempt = number, settled, "the attempt is over");
    watcher.cancel();
    let is_lost = attempt.lease.lost().is_cancelled();
    drop(attempt);
    // The result is out; what is left is clearing away, while the seat is still taken.
    leftover.clear().await;
    shared.forget(id, number);
    if is_lost {
        give_up(&shared, id, number).await;
    }
}

/// Nothing of the attempt runs any more, but the log may still name this node as the holder: then
/// nobody would take over if the queue has forgotten the launch.
async fn give_up(shared: &Shared, id: RunId, attempt: u32) {
    let error = RunError::new(ErrorCode::NodeLost, "the lease was not confirmed in time");
    let command = Command::LoseAttempt { attempt, error };
    while !shared.stop.is_cancelled() {
        match shared.runs.handle(id, &command, None).await {
            Ok(_) | Err(HandleError::Rejected { .. } | HandleError::Damaged { .. }) => return,
            Err(error) => debug!(run = %id, error = %chain(&error), "not given up yet"),
        }
        tokio::time::sleep(APPEND_RETRY).await;
    }
}

/// Takes the lease; answers with the run and the number of this attempt.
async fn take_lease(
    shared: &Shared,
    delivery: &Delivery,
    launch: Option<Recorded<Event>>,
    token: &str,
) -> Result<(Run, u32), HandleError> {
    let holder = Holder::Node {
        node: shared.id,
        incarnation: shared.incarnation,
        work: delivery.position,
        ack_subject: delivery.ack_subject.clone(),
        token_sha256: Digest::of(token),
    };
    if delivery.position.delivery > DELIVERIES_UNCOUNTED {
        count_delivery(shared, delivery).await?;
    }
    // The launch itself is nearly always all there is, so no read is needed.
    let known = launch.and_then(|launch| Run::replay(delivery.run, [launch]).ok().flatten());
    let lease = |is_holder_gone| Command::Lease {
        holder: holder.clone(),
        is_holder_gone,
    };
    let handled = shared.runs.handle(delivery.run, &lease(false), known).await;
    let run = match handled {
        Err(HandleError::Rejected {
            rejection: Rejection::Held,
            ..
        }) if is_holder_gone(shared, delivery.run).await => {
            shared.runs.handle(delivery.run, &lease(true), None).await?
        }
        handled => handled?,
    };
    let number = run.attempts;
    Ok((run, number))
}

/// Writes down that this node begins on a launch that was delivered very often and never leased: if that
/// is the end of the node, it is known.
async fn count_delivery(shared: &Shared, delivery: &Delivery) -> Result<(), HandleError> {
    let run = shared.runs.load(delivery.run).await?;
    let Some(run) = run.filter(|run| run.is_suspected(&delivery.position)) else {
        return Ok(());
    };
    warn!(
        deliveries = delivery.position.delivery,
        "delivered again and again"
    );
    let command = Command::CountDelivery(DeliveryBegun {
        node: shared.id,
        work: delivery.position,
    });
    let handled = shared.runs.handle(delivery.run, &command, Some(run));
    handled.await.map(drop)
}

/// Whether the holder of `run` is not among those present.
async fn is_holder_gone(shared: &Shared, run: RunId) -> bool {
    let (Ok(Some(run)), Ok(members)) = (
        shared.runs.load(run).await,
        shared.ports.presence.members().await,
    ) else {
        return false;
    };
    let Some(lease) = run.lease() else {
        return true;
    };
    let Holder::Node { incarnation, .. } = &lease.event.holder else {
        return true;
    };
    if *incarnation == shared.incarnation {
        return !shared.mine().contains(&(run.id, lease.event.attempt));
    }
    !members
        .iter()
        .any(|member| matches!(member, Member::Node(node) if node.incarnation == *incarnation))
}

/// What becomes of a delivery whose lease was refused.
async fn settle_refusal(
    shared: &Shared,
    delivery: &Delivery,
    lease: &LeaseKeeper,
    refusal: &HandleError,
) {
    let queue = shared.ports.queue.as_ref();
    let give_back = async |delay| {
        lease::give_back(queue, &delivery.ack_subject, delay, lease.remaining()).await;
        Ok(())
    };
    let result = match refusal {
        // Ended, or launched by an admission that was given back.
        HandleError::Rejected {
            rejection: Rejection::Ended | Rejection::NotAdmitted,
            ..
        } => queue.acknowledge(&delivery.ack_subject).await,
        // Somebody is at it by another message, which may be lost: asked again later.
        HandleError::Rejected {
            rejection: Rejection::Held,
            ..
        } => give_back(shared.config.lease).await,
        // Somebody else is at it, by a later delivery than this one.
        HandleError::Rejected {
            rejection: Rejection::Superseded,
            ..
        } => Ok(()),
        other => {
            warn!(error = %chain(other), "the lease could not be taken");
            give_back(REST_AFTER_FAILURE).await
        }
    };
    if let Err(error) = result {
        debug!(error = %chain(&error), "the delivery comes again");
    }
}

/// What an attempt leaves on its host.
#[derive(Default)]
pub(crate) struct Leftover {
    /// The callees that have ended, with the hashes of their results.
    pub(crate) children: BTreeMap<RunId, Digest>,
    pub(crate) clearing: Option<futures::future::BoxFuture<'static, ()>>,
    pub(crate) seat: Option<Seat>,
}

impl Leftover {
    /// Nothing but the seat.
    pub(crate) fn of(seat: Seat) -> Self {
        Self {
            seat: Some(seat),
            ..Self::default()
        }
    }

    /// As [`children::adopt`]. Meanwhile it holds no slot: who takes a callee on to end it needs one.
    async fn adopt_children(&mut self, attempt: &Attempt) -> bool {
        if let Some(seat) = &mut self.seat {
            seat.set_waiting(true);
        }
        children::adopt(attempt, &mut self.children).await
    }

    async fn clear(self) {
        if let Some(clearing) = self.clearing {
            clearing.await;
        }
        drop(self.seat);
    }
}

impl Attempt {
    /// Whoever is replaced without that the queue has missed it may still run: it finds itself
    /// replaced, or its lease unconfirmed, within a lease time. False if the lease is lost meanwhile.
    async fn await_predecessor(&self, delivery: &Delivery) -> bool {
        match &self.run.replaced {
            Some(Holder::Node { work, .. }) if !work.is_same_message(&delivery.position) => {
                let wait = tokio::time::sleep(self.shared.config.lease);
                self.lease.lost().run_until_cancelled(wait).await.is_some()
            }
            _ => true,
        }
    }

    async fn work(&self, seat: Seat) -> (Finish, Leftover) {
        let now = self.shared.runs.clock().now();
        if let Some((outcome, error)) = self.run.forbids_start(now) {
            let ended = Ended::without_start(self.number, outcome, error);
            return (Finish::Ended(Box::new(ended)), Leftover::of(seat));
        }
        debug!(attempt = self.number, capsule = %self.run.launched.event.work.name(), "taken on");
        match &self.run.launched.event.work {
            Work::Capsule { image, schema, .. } => {
                capsule_run::run(self, image, *schema, seat).await
            }
            Work::Build { name, content } => {
                let finish = build_run::run(self, name, *content).await;
                (finish, Leftover::of(seat))
            }
        }
    }

    /// Looks from time to time whether the run is still this attempt's, and wanted.
    fn watch(&self) -> CancellationToken {
        let stop = CancellationToken::new();
        let (shared, id, number) = (Arc::clone(&self.shared), self.run.id, self.number);
        let (cancelled, lost) = (self.cancelled.clone(), self.lease.lost());
        spawn(stop.clone().run_until_cancelled_owned(async move {
            loop {
                tokio::time::sleep(shared.config.lease / LOOKS_A_LEASE).await;
                let Ok(Some(run)) = shared.runs.load(id).await else {
                    continue;
                };
                if !run.holds(number) {
                    lost.cancel();
                    return;
                }
                if run.cancel.is_some() {
                    cancelled.cancel();
                }
            }
        }));
        stop
    }

    /// Tells the log how it went, and takes the launch out of the queue.
    async fn settle(
        &self,
        delivery: &Delivery,
        finish: Finish,
        leftover: &mut Leftover,
    ) -> &'static str {
        let queue = &self.shared.ports.queue;
        match finish {
            Finish::Fenced => "another attempt has the run",
            Finish::Ended(mut ended) => {
                if self.number > 1 && !leftover.adopt_children(self).await {
                    return "the lease was lost while callees ended";
                }
                ended.set_children(&leftover.children);
                fit(&mut ended);
                if !self.append(&Command::End(ended)).await {
                    return "the lease was lost before the result was stored";
                }
                if let Err(error) = queue.acknowledge(&delivery.ack_subject).await {
                    debug!(error = %chain(&error), "the launch comes again and will be found ended");
                }
                "ended"
            }
            Finish::Failed(mut failed) => {
                failed.error = failed.error.bounded();
                let pause = Duration::from_millis(failed.pause_ms);
                self.give_up_for(delivery, Command::FailAttempt(failed), pause)
                    .await
            }
            Finish::Refused(refused) => {
                let Refused { error, .. } = refused.as_ref();
                warn!(code = error.code, message = error.message, "refused");
                // Others are there, and this node leaves it to them.
                self.give_up_for(delivery, Command::Refuse(*refused), Duration::ZERO)
                    .await
            }
            Finish::Lost(error) => {
                warn!(
                    code = error.code,
                    message = error.message,
                    "the attempt failed"
                );
                let attempt = self.number;
                let error = error.bounded();
                let command = Command::LoseAttempt { attempt, error };
                self.give_up_for(delivery, command, REST_AFTER_FAILURE)
                    .await
            }
        }
    }

    /// Ends the attempt by `command`, and has the launch delivered anew after `pause`.
    async fn give_up_for(
        &self,
        delivery: &Delivery,
        command: Command,
        pause: Duration,
    ) -> &'static str {
        if !self.append(&command).await {
            return "the lease was lost";
        }
        let (queue, left) = (self.shared.ports.queue.as_ref(), self.lease.remaining());
        lease::give_back(queue, &delivery.ack_subject, pause, left).await;
        "given back"
    }

    /// Appends, however long the broker is away, as long as the lease lasts. Whether it is stored.
    async fn append(&self, command: &Command) -> bool {
        let lost = self.lease.lost();
        let mut known = Some(self.run.clone());
        loop {
            let handled = self.shared.runs.handle(self.run.id, command, known.take());
            match lost.run_until_cancelled(handled).await {
                Some(Ok(_)) => return true,
                Some(Err(HandleError::Rejected { rejection, .. })) => {
                    warn!(%rejection, "the log did not take what this attempt says");
                    self.lease.give_up();
                    return false;
                }
                Some(Err(error)) => warn!(error = %chain(&error), "trying again"),
                None => return false,
            }
            tokio::time::sleep(APPEND_RETRY).await;
        }
    }

    /// After which pause another attempt is made if this one ends like this; none if the run ends.
    pub(crate) fn retry_after(&self, outcome: Outcome, error: &RunError) -> Option<Retry> {
        if self.cancelled.is_cancelled() {
            return None;
        }
        let now = self.shared.runs.clock().now();
        self.run.retry_after(outcome, error, now)
    }

    /// A failure sorted by who can mend it: the platform's are tried again.
    pub(crate) fn failed(&self, error: RunError) -> Finish {
        if error.source == ErrorSource::Platform {
            return Finish::Lost(error);
        }
        Finish::Ended(Box::new(self.ended(Outcome::Failed, Some(error))))
    }

    /// What its capsule wants of this node's operator; nothing for a build.
    pub(crate) fn needs(&self) -> Option<&Needs> {
        match &self.run.launched.event.work {
            Work::Capsule { needs, .. } => Some(needs),
            Work::Build { .. } => None,
        }
    }

    /// A result of this attempt with nothing in it yet.
    pub(crate) fn ended(&self, outcome: Outcome, error: Option<RunError>) -> Ended {
        Ended {
            attempt: self.number,
            outcome,
            output: None,
            files: Vec::new(),
            error,
            exit: None,
            children: Vec::new(),
            children_summary: None,
            notes: None,
            logs: None,
            timings: self.timings.clone(),
            usage: aod_domain::run::Usage::default(),
        }
    }
}

/// Makes a result of too many files a failure that says so: an event must hold it.
fn fit(ended: &mut Ended) {
    ended.error = ended.error.take().map(RunError::bounded);
    if ended.fits_event() {
        return;
    }
    let text = format!(
        "{} files do not fit into one result: pack them into fewer",
        ended.files.len()
    );
    ended.files.clear();
    if ended.outcome == Outcome::Succeeded {
        ended.outcome = Outcome::Failed;
        ended.error = Some(RunError::new(ErrorCode::OutputTooLarge, text));
    }
    if !ended.fits_event() {
        ended.output = None;
    }
}
