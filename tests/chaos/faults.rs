//! Injects faults into a cluster, repairs them, and records their times.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use aod_tests::hosts::eventually;
use aod_tests::programs::{Program, ProgramCluster};
use jiff::Timestamp;
use reqwest::Client;
use tokio::runtime::Handle;

use crate::kind::{Kind, Part};
use crate::schedule::Fault;

/// Maximum time for a gateway or server to end on request.
const END_PATIENCE: Duration = Duration::from_secs(20);

/// Maximum time for an operator's request to a node; one gateway answers within.
const OPERATOR_PATIENCE: Duration = Duration::from_secs(60);

/// Time limit of a drain, in seconds.
const DRAIN_SECONDS: u64 = 2;

/// An injected fault.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) fault: Fault,
    pub(crate) began: Instant,
    /// The same moment as a timestamp, to compare with events.
    pub(crate) began_at: Timestamp,
    /// Whether no other fault happened for a while before and after.
    pub(crate) is_alone: bool,
}

/// Injects faults into `cluster`.
pub(crate) struct Faults<'a> {
    pub(crate) cluster: &'a mut ProgramCluster,
    runtime: Handle,
    http: Client,
    /// The ids of the nodes, by their number.
    pub(crate) nodes: BTreeMap<usize, String>,
    pub(crate) done: Vec<Done>,
    open: Vec<(Instant, Fault)>,
    pub(crate) last_repair: Instant,
}

impl<'a> Faults<'a> {
    pub(crate) fn new(
        cluster: &'a mut ProgramCluster,
        runtime: Handle,
        nodes: BTreeMap<usize, String>,
    ) -> Self {
        let http = Client::builder()
            .no_proxy()
            .timeout(Duration::from_secs(5))
            .build()
            .expect("an HTTP client");
        Self {
            cluster,
            runtime,
            http,
            nodes,
            done: Vec::new(),
            open: Vec::new(),
            last_repair: Instant::now(),
        }
    }

    /// Whether a part has a fault now. The servers of the broker count as one part, because the broker needs two of
    /// three.
    pub(crate) fn is_busy(&self, part: Part) -> bool {
        let is_same = |other: Part| match (part, other) {
            (Part::Nats(_), Part::Nats(_)) => true,
            (part, other) => part == other,
        };
        self.open.iter().any(|(_, fault)| is_same(fault.part))
    }

    /// When the next repair is due.
    pub(crate) fn next_repair(&self) -> Option<Instant> {
        self.open.iter().map(|(due, _)| *due).min()
    }

    /// Repairs what is due.
    pub(crate) fn repair_due(&mut self) {
        let now = Instant::now();
        let (due, open) = std::mem::take(&mut self.open)
            .into_iter()
            .partition(|(at, _)| *at <= now);
        self.open = open;
        for (_, fault) in due {
            self.repair(fault);
            self.last_repair = Instant::now();
        }
    }

    /// Injects a fault, to be repaired when it is due.
    pub(crate) fn inflict(&mut self, fault: Fault, is_alone: bool) {
        let done = Done {
            fault,
            began: Instant::now(),
            began_at: Timestamp::now(),
            is_alone,
        };
        match (fault.kind, fault.part) {
            (Kind::NodeKilled | Kind::GatewayKilled | Kind::NatsKilled, part) => {
                self.program(part).kill();
            }
            (Kind::NodePaused | Kind::GatewayPaused | Kind::NatsPaused, part) => {
                self.program(part).pause();
            }
            (Kind::HostCutOff | Kind::GatewayCutOff | Kind::NatsCutOff, part) => {
                self.program(part).host().cut();
            }
            (Kind::GatewayRestarted | Kind::NatsRestarted, part) => {
                let ended = self.program(part).terminate(END_PATIENCE);
                assert!(ended, "{part:?} does not end when it is asked to");
            }
            (Kind::DockerKilled, part) => self.program(part).host().kill_engine(),
            (Kind::DockerPaused, part) => self.program(part).host().pause_engine(),
            (Kind::DiskFilled, part) => {
                let host = self.program(part).host().clone();
                host.disk().expect("a disk of its own").fill();
            }
            (Kind::NodeDrained, Part::Node(node)) => {
                self.ask_node(node, &format!("drain?within={DRAIN_SECONDS}"));
            }
            (kind, part) => unreachable!("{kind:?} is not for {part:?}"),
        }
        self.open.push((done.began + fault.length, fault));
        self.done.push(done);
    }

    fn repair(&mut self, fault: Fault) {
        match (fault.kind, fault.part) {
            (
                Kind::NodeKilled
                | Kind::GatewayKilled
                | Kind::NatsKilled
                | Kind::GatewayRestarted
                | Kind::NatsRestarted,
                part,
            ) => self.program(part).restart(),
            (Kind::NodePaused | Kind::GatewayPaused | Kind::NatsPaused, part) => {
                self.program(part).resume();
            }
            (Kind::HostCutOff | Kind::GatewayCutOff | Kind::NatsCutOff, part) => {
                self.program(part).host().join();
            }
            (Kind::DockerKilled, part) => self.program(part).host().start_engine(),
            (Kind::DockerPaused, part) => self.program(part).host().resume_engine(),
            (Kind::DiskFilled, part) => {
                let host = self.program(part).host().clone();
                host.disk().expect("a disk of its own").empty();
            }
            (Kind::NodeDrained, Part::Node(node)) => self.ask_node(node, "resume"),
            (kind, part) => unreachable!("{kind:?} is not for {part:?}"),
        }
    }

    /// Restarts programs that ended by themselves, as a supervisor does. Returns their number.
    pub(crate) fn restart_ended(&mut self) -> usize {
        let faulty: Vec<Part> = self.open.iter().map(|(_, fault)| fault.part).collect();
        let mut restarted = 0;
        for part in self.parts() {
            if !faulty.contains(&part) && self.program(part).ended().is_some() {
                self.program(part).restart();
                restarted += 1;
            }
        }
        restarted
    }

    fn parts(&self) -> Vec<Part> {
        let nodes = (0..self.cluster.nodes.len()).map(Part::Node);
        let gateways = (0..self.cluster.gateways.len()).map(Part::Gateway);
        let servers = (0..self.cluster.brokers.len()).map(Part::Nats);
        nodes.chain(gateways).chain(servers).collect()
    }

    fn program(&mut self, part: Part) -> &mut Program {
        match part {
            Part::Node(node) => &mut self.cluster.nodes[node],
            Part::Gateway(gateway) => &mut self.cluster.gateways[gateway],
            Part::Nats(server) => &mut self.cluster.brokers[server],
        }
    }

    /// The gateway to which nodes have the most connections; `drawn` if they are equal.
    pub(crate) fn busiest_gateway(&self, drawn: usize) -> usize {
        let nodes = self.cluster.nodes.iter();
        let nodes: Vec<String> = nodes
            .map(|node| format!(" {}:", node.host().address()))
            .collect();
        let connections = |gateway: usize| {
            let mut command = self.cluster.gateways[gateway].host().command("ss");
            command.args(["-Htn", "state", "established"]);
            let output = command.output().expect("ss is installed").stdout;
            let text = String::from_utf8_lossy(&output).into_owned();
            let is_of_node = |line: &&str| nodes.iter().any(|node| line.contains(node));
            text.lines().filter(is_of_node).count()
        };
        let gateways = 0..self.cluster.gateways.len();
        gateways
            .max_by_key(|&gateway| (connections(gateway), gateway == drawn))
            .expect("there are gateways")
    }

    /// Whether all nodes are present and take work according to their presence.
    pub(crate) fn all_nodes_take_work(&self) -> bool {
        let person = self.cluster.person(0);
        let request = person.request(&self.http, "GET", "/v1/nodes");
        let nodes: Option<serde_json::Value> = self.runtime.block_on(async {
            let answer = request.send().await.ok()?;
            answer.json().await.ok()
        });
        let nodes = nodes.unwrap_or_default();
        let takes_work =
            |node: &&serde_json::Value| node["draining"] == false && node["not_ready"].is_null();
        let items = nodes["items"].as_array();
        items.is_some_and(|items| items.iter().filter(takes_work).count() == self.nodes.len())
    }

    /// Sends an operator's request about a node to the first gateway that answers.
    fn ask_node(&self, node: usize, what: &str) {
        let path = format!("/v1/nodes/{}/{what}", self.nodes[&node]);
        eventually("an answer to an operator", OPERATOR_PATIENCE, || {
            (0..self.cluster.gateways.len()).find_map(|gateway| {
                let request = self
                    .cluster
                    .person(gateway)
                    .request(&self.http, "POST", &path);
                let sent = self.runtime.block_on(async { request.send().await });
                sent.is_ok_and(|answer| answer.status().is_success())
                    .then_some(())
            })
        });
    }
}
