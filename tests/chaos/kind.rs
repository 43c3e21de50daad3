//! The kinds of faults: the only list, from which they are drawn, counted and judged.

use std::time::Duration;

use fastrand::Rng;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    NodeKilled,
    /// Stopped for longer than its leases, then continued.
    NodePaused,
    HostCutOff,
    NodeDrained,
    DiskFilled,
    DockerKilled,
    DockerPaused,
    GatewayKilled,
    GatewayPaused,
    GatewayCutOff,
    /// Orderly, with SIGTERM.
    GatewayRestarted,
    NatsKilled,
    NatsPaused,
    NatsCutOff,
    NatsRestarted,
}

/// The target of a fault. Each part has at most one fault at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// A node with its host, its disk and its Docker.
    Node(usize),
    Gateway(usize),
    Nats(usize),
}

impl Kind {
    /// All kinds.
    pub(crate) const ALL: [Self; 15] = [
        Self::NodeKilled,
        Self::NodePaused,
        Self::HostCutOff,
        Self::NodeDrained,
        Self::DiskFilled,
        Self::DockerKilled,
        Self::DockerPaused,
        Self::GatewayKilled,
        Self::GatewayPaused,
        Self::GatewayCutOff,
        Self::GatewayRestarted,
        Self::NatsKilled,
        Self::NatsPaused,
        Self::NatsCutOff,
        Self::NatsRestarted,
    ];

    /// The kinds of the short chaos: each part dies once, and a node and a host are silent for longer than their
    /// leases.
    pub(crate) const SHORT: [Self; 6] = [
        Self::NodeKilled,
        Self::NodePaused,
        Self::HostCutOff,
        Self::DockerKilled,
        Self::GatewayKilled,
        Self::NatsKilled,
    ];

    /// Kinds whose cost is measured, without other faults around them.
    pub(crate) const MEASURED: [Self; 4] = [
        Self::NodeKilled,
        Self::GatewayKilled,
        Self::GatewayPaused,
        Self::GatewayCutOff,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::NodeKilled => "node_killed",
            Self::NodePaused => "node_paused",
            Self::HostCutOff => "host_cut_off",
            Self::NodeDrained => "node_drained",
            Self::DiskFilled => "disk_filled",
            Self::DockerKilled => "docker_killed",
            Self::DockerPaused => "docker_paused",
            Self::GatewayKilled => "gateway_killed",
            Self::GatewayPaused => "gateway_paused",
            Self::GatewayCutOff => "gateway_cut_off",
            Self::GatewayRestarted => "gateway_restarted",
            Self::NatsKilled => "nats_killed",
            Self::NatsPaused => "nats_paused",
            Self::NatsCutOff => "nats_cut_off",
            Self::NatsRestarted => "nats_restarted",
        }
    }

    /// Draws the time until the repair. Pauses and cuts of nodes are longer than a lease (5 s), those of gateways
    /// longer than presence (5 s): shorter ones are mere slowness.
    pub(crate) fn draw_length(self, random: &mut Rng) -> Duration {
        let milliseconds = match self {
            Self::NodeKilled => 8_000..9_000,
            Self::NodePaused
            | Self::HostCutOff
            | Self::DiskFilled
            | Self::NodeDrained
            | Self::GatewayPaused
            | Self::GatewayCutOff
            | Self::DockerPaused => 6_500..9_000,
            Self::GatewayKilled | Self::NatsKilled | Self::NatsPaused | Self::NatsCutOff => {
                3_000..8_000
            }
            Self::DockerKilled => 1_000..6_000,
            Self::GatewayRestarted | Self::NatsRestarted => 0..1_000,
        };
        Duration::from_millis(random.u64(milliseconds))
    }

    /// Draws the target from the existing nodes, gateways and servers.
    pub(crate) fn draw_part(self, random: &mut Rng, size: Size) -> Part {
        match self {
            Self::NodeKilled
            | Self::NodePaused
            | Self::HostCutOff
            | Self::NodeDrained
            | Self::DiskFilled
            | Self::DockerKilled
            | Self::DockerPaused => Part::Node(random.usize(..size.nodes)),
            Self::GatewayKilled
            | Self::GatewayPaused
            | Self::GatewayCutOff
            | Self::GatewayRestarted => Part::Gateway(random.usize(..size.gateways)),
            Self::NatsKilled | Self::NatsPaused | Self::NatsCutOff | Self::NatsRestarted => {
                Part::Nats(random.usize(..size.servers))
            }
        }
    }
}

/// The number of parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) nodes: usize,
    pub(crate) gateways: usize,
    pub(crate) servers: usize,
}
