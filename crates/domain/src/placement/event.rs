//! What nodes must know of queues that are for more than a label.

use serde::{Deserialize, Serialize};

use super::Requirements;
use crate::subject::{self, Label, Subject};

/// What is stored about such a queue; the latest counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data")]
pub enum Event {
    /// Runs that require this are about to wait, or wait still.
    #[serde(rename = "dev.aod.placement.asked.v1")]
    Asked {
        label: Label,
        requirements: Requirements,
    },
}

impl Event {
    /// The queue that it is about.
    pub fn queue(&self) -> Label {
        let Self::Asked {
            label,
            requirements,
        } = self;
        requirements.queue(label)
    }

    pub fn subject(&self) -> Subject {
        subject::placement_event(&self.queue(), "asked")
    }
}
