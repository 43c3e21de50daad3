//! Events about queues for requirements.

use serde::{Deserialize, Serialize};

use super::Requirements;
use crate::subject::{self, Pool, Subject};

/// An event about such a queue; the latest counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data")]
pub enum Event {
    /// Runs with these requirements wait, or are about to wait.
    #[serde(rename = "dev.aod.placement.queue_opened.v1")]
    QueueOpened {
        pool: Pool,
        requirements: Requirements,
    },
}

impl Event {
    /// The queue of the event.
    pub fn queue(&self) -> Pool {
        let Self::QueueOpened { pool, requirements } = self;
        requirements.queue(pool)
    }

    pub fn subject(&self) -> Subject {
        subject::placement_event(&self.queue(), "queue_opened")
    }
}
