//! The kinds of work, one module each: it does the work of an attempt and returns its end. `attempt` has everything that
//! is the same for all kinds: lease, cancellation, retries, result.
//!
//! A new kind of work is a module here, and an arm of each `match` below.

mod build;
mod capsule;
mod common;

use aod_domain::capsule::Image;
use aod_domain::run::Work;

use self::capsule::Capsule;
use crate::attempt::leftover::Leftover;
use crate::attempt::{Attempt, Finish};
use crate::shared::ledger::Seat;

/// Does the work of `attempt`; returns its end and the leftover to clean up.
pub(crate) async fn run(attempt: &Attempt, seat: Seat) -> (Finish, Leftover) {
    match &attempt.run.launched.event.work {
        Work::Capsule {
            image,
            schema,
            handoffs,
            models,
            needs,
            workflow,
            ..
        } => {
            let capsule = Capsule {
                image,
                schema: *schema,
                handoffs,
                models: models.as_deref(),
                needs,
                workflow: *workflow,
            };
            capsule::run(attempt, capsule, seat).await
        }
        Work::Build {
            name,
            content,
            updates_bases,
        } => {
            let finish = build::run(attempt, name, *content, *updates_bases).await;
            (finish, Leftover::of(seat))
        }
    }
}

/// The image that a node needs for `work`, if any.
pub(crate) fn image(work: &Work) -> Option<&Image> {
    match work {
        Work::Capsule { image, .. } => Some(image),
        Work::Build { .. } => None,
    }
}
