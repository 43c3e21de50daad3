//! Stores the end of an attempt, and acknowledges its launch or returns it to the queue.

use std::time::Duration;

use aod_domain::error_code::ErrorCode;
use aod_domain::id::RunId;
use aod_domain::run::{Command, Ended, Refused, RunError};
use aod_ports::work_queue::Delivery;
use aod_services::runs::HandleError;
use aod_services::writer::LoadError;
use tracing::{debug, warn};

use super::leftover::Leftover;
use super::{Attempt, Finish, REST_AFTER_FAILURE, lease};
use crate::shared::Shared;
use aod_services::error::chain;

/// Pause between two tries to append a result.
const APPEND_RETRY: Duration = Duration::from_millis(250);

impl Attempt {
    /// Appends the end of the attempt to the log, and acknowledges or returns the launch; returns a description.
    pub(crate) async fn settle(
        &self,
        delivery: &Delivery,
        finish: Finish,
        leftover: &mut Leftover,
    ) -> &'static str {
        let (command, pause) = match finish {
            Finish::Fenced => return "another attempt holds the run",
            Finish::Ended(ended) => return self.end(delivery, ended, leftover).await,
            Finish::Failed(mut failed) => {
                failed.error = failed.error.bounded();
                let pause = Duration::from_millis(failed.pause_ms);
                (Command::FailAttempt(failed), pause)
            }
            Finish::Refused(refused) => {
                let Refused { error, .. } = refused.as_ref();
                warn!(code = error.code, message = error.message, "run refused");
                (Command::Refuse(*refused), Duration::ZERO)
            }
            Finish::Lost(error) => {
                let (code, message) = (&error.code, &error.message);
                warn!(code, message, "the attempt failed");
                let (attempt, error) = (self.number, error.bounded());
                (Command::LoseAttempt { attempt, error }, REST_AFTER_FAILURE)
            }
        };
        if !self.append(&command).await {
            return "the lease was lost";
        }
        // The queue redelivers the launch after the pause.
        let (queue, left) = (self.shared.ports.queue.as_ref(), self.lease.remaining());
        lease::give_back(queue, &delivery.ack_subject, pause, left).await;
        "returned to the queue"
    }

    /// Ends the run.
    async fn end(
        &self,
        delivery: &Delivery,
        mut ended: Box<Ended>,
        leftover: &mut Leftover,
    ) -> &'static str {
        if self.number > 1 && !leftover.adopt_children(self).await {
            return "the lease was lost while callees ended";
        }
        ended.set_children(&leftover.children);
        ended.fit();
        if !self.append(&Command::End(ended)).await {
            return "the lease was lost before the result was stored";
        }
        let queue = &self.shared.ports.queue;
        if let Err(error) = queue.acknowledge(&delivery.ack_subject).await {
            debug!(error = %chain(&error), "the launch was not acknowledged; the queue redelivers it, and the run has ended");
        }
        "ended"
    }

    /// Appends, and retries while the lease lasts. Whether the event is stored.
    async fn append(&self, command: &Command) -> bool {
        let lost = self.lease.lost();
        let mut known = Some(self.run.clone());
        loop {
            let handled = self.shared.runs.handle(self.run.id, command, known.take());
            match lost.run_until_cancelled(handled).await {
                Some(Ok(_)) => return true,
                Some(Err(HandleError::Rejected { rejection, .. })) => {
                    warn!(%rejection, "the log rejected an event of this attempt");
                    self.lease.give_up();
                    return false;
                }
                Some(Err(error)) => warn!(error = %chain(&error), "event not stored; retrying"),
                None => return false,
            }
            tokio::time::sleep(APPEND_RETRY).await;
        }
    }
}

/// Stores the attempt as lost once none of its processes run. If the queue has forgotten the launch and the log still
/// names this node as the holder, no other node would take over.
pub(crate) async fn store_loss(shared: &Shared, id: RunId, attempt: u32) {
    let error = RunError::new(ErrorCode::NodeLost, "the lease was not confirmed in time");
    let command = Command::LoseAttempt { attempt, error };
    while !shared.lifetime.stop.is_cancelled() {
        match shared.runs.handle(id, &command, None).await {
            Ok(_)
            | Err(HandleError::Rejected { .. } | HandleError::Load(LoadError::Damaged { .. })) => {
                return;
            }
            Err(error) => debug!(run = %id, error = %chain(&error), "loss not stored; retrying"),
        }
        tokio::time::sleep(APPEND_RETRY).await;
    }
}
