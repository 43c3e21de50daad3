//! The remains of an attempt on its host.

use std::collections::BTreeMap;

use aod_domain::digest::Digest;
use aod_domain::id::RunId;
use futures::future::BoxFuture;

use super::{Attempt, callees};
use crate::shared::ledger::Seat;

/// What the end of an attempt leaves to clean up.
#[derive(Default)]
pub(crate) struct Leftover {
    /// The ended callees, with the hashes of their results.
    pub(crate) children: BTreeMap<RunId, Digest>,
    pub(crate) clearing: Option<BoxFuture<'static, ()>>,
    pub(crate) seat: Option<Seat>,
}

impl Leftover {
    /// Only the seat.
    pub(crate) fn of(seat: Seat) -> Self {
        Self {
            seat: Some(seat),
            ..Self::default()
        }
    }

    /// As [`callees::adopt`]. Frees the slot meanwhile: a node that takes a callee to end it needs a slot.
    pub(super) async fn adopt_children(&mut self, attempt: &Attempt) -> bool {
        if let Some(seat) = &mut self.seat {
            seat.set_waiting(true);
        }
        callees::adopt(attempt, &mut self.children).await
    }

    pub(crate) async fn clear(self) {
        if let Some(clearing) = self.clearing {
            clearing.await;
        }
        drop(self.seat);
    }
}
