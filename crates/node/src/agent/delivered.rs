//! A launch from the queue, or from another node.

use std::time::Duration;

use aod_domain::event::Recorded;
use aod_domain::run::{Event, Placement, Work};
use aod_ports::work_queue::Delivery;

use crate::shared::ledger::Claim;

/// A delivered launch.
pub(crate) struct Delivered {
    pub(crate) delivery: Delivery,
    /// None if unreadable.
    pub(crate) launch: Option<Recorded<Event>>,
    /// From here the lease counts: when this node asked for the launch. Since the boot of the host.
    pub(crate) asked: Duration,
}

impl Delivered {
    pub(crate) fn read(delivery: Delivery, asked: Duration) -> Self {
        let launch = delivery.launch.decode();
        Self {
            launch: launch.ok(),
            delivery,
            asked,
        }
    }

    /// The placement of the run; none if the launch is unreadable.
    pub(crate) fn placement(&self) -> Option<&Placement> {
        match &self.launch.as_ref()?.event {
            Event::Launched(launched) => Some(&launched.placement),
            Event::Admitted(admitted) => Some(&admitted.placement),
            _ => None,
        }
    }

    /// The work of the run; none for an admitted launch, which does not repeat it.
    pub(crate) fn work(&self) -> Option<&Work> {
        match &self.launch.as_ref()?.event {
            Event::Launched(launched) => Some(&launched.work),
            _ => None,
        }
    }

    /// The capacity that the run takes.
    pub(crate) fn claim(&self) -> Claim {
        match self.launch.as_ref().map(|launch| &launch.event) {
            Some(Event::Launched(launched)) => Claim {
                memory_bytes: launched.resources.memory_bytes,
                cpu_millis: launched.resources.cpu_millis,
                devices: launched.placement.requirements.devices.clone(),
            },
            Some(Event::Admitted(admitted)) => Claim {
                memory_bytes: admitted.memory_bytes,
                cpu_millis: admitted.cpu_millis.unwrap_or_default(),
                devices: admitted.placement.requirements.devices.clone(),
            },
            _ => Claim::default(),
        }
    }
}
