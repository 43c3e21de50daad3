//! A cluster of real programs: NATS servers, gateways and nodes on separate hosts, with credentials as an operator
//! would create them.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use aod_jetstream::{Broker, Config, ConnectError, Credentials};
use aod_testkit::S3Server;

use super::person::{GATEWAY_PORT, Person};
use super::{Program, aod, broker};
use crate::cluster::LEASE_SECONDS;
use crate::hosts::Network;

/// Capsules that compute concurrently on a node.
const SLOTS: &str = "4";

/// Maximum start time of programs: a second on an idle machine.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// Log level of programs: detailed enough to show why a call left its gateway.
const LOG: &str = "info,async_nats=warn,aod_node::gateways=debug";

/// Interval between two checks of a condition.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The artifact store of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// In the broker.
    JetStream,
    /// On an S3 server of the machine.
    S3,
}

/// The parts of a cluster.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    pub store: Store,
    /// NATS servers, each with a copy of all streams.
    pub brokers: usize,
    pub gateways: usize,
    /// A node with its own host and Docker for each pool.
    pub pools: &'a [&'a str],
    /// Size of the separate disk of each node and its Docker, in bytes; none for the machine's disk.
    pub disk_bytes: Option<u64>,
}

/// A cluster; everything ends with the value.
#[derive(Debug)]
pub struct ProgramCluster {
    // Dropped in this order: programs before their servers, hosts last.
    pub gateways: Vec<Program>,
    pub nodes: Vec<Program>,
    pub brokers: Vec<Program>,
    s3: Option<S3Server>,
    pub network: Network,
}

impl ProgramCluster {
    /// Starts a cluster with `gateways` gateways, and a node with its own host and Docker for each of `pools`; returns
    /// when all are ready.
    pub async fn start(store: Store, gateways: usize, pools: &[&str]) -> Self {
        Self::start_as(&Plan {
            store,
            brokers: 1,
            gateways,
            pools,
            disk_bytes: None,
        })
        .await
    }

    /// Starts a cluster; returns when it is ready.
    pub async fn start_as(plan: &Plan<'_>) -> Self {
        let network = Network::new();
        let address = IpAddr::V4(network.machine_address());
        make_credentials(&network);
        let hosts: Vec<_> = (0..plan.brokers).map(|_| network.add_host()).collect();
        let users = credentials(&network).join("nats-users.conf");
        let s3 = (plan.store == Store::S3).then(|| S3Server::start_on(address));
        let mut cluster = Self {
            gateways: Vec::new(),
            nodes: Vec::new(),
            brokers: broker::start_all(&hosts, &users),
            s3,
            network,
        };
        cluster
            .wait_until("the broker is ready", async |cluster| {
                cluster.brokers.iter().all(broker::is_ready)
            })
            .await;
        for _ in 0..plan.gateways {
            cluster.add_gateway().await;
        }
        for pool in plan.pools {
            cluster.add_node(pool, plan.disk_bytes);
        }
        cluster
            .wait_until("nodes are there", async |cluster| {
                cluster.person(0).count_nodes().await == plan.pools.len()
            })
            .await;
        cluster
    }

    /// Starts a gateway on its own host; returns when it is ready.
    pub async fn add_gateway(&mut self) {
        let host = self.network.add_host();
        let mut arguments = vec!["gateway".to_owned()];
        arguments.extend(self.common("gateway", &host.directory().join("aod")));
        arguments.extend([
            "--listen".to_owned(),
            format!("{}:{GATEWAY_PORT}", host.address()),
        ]);
        arguments.extend([
            "--token-file".to_owned(),
            self.token_file().display().to_string(),
        ]);
        self.gateways.push(Program::start(
            &host,
            aod(),
            "gateway",
            arguments,
            self.environment(),
        ));
        let gateway = self.gateways.len() - 1;
        self.wait_until("the gateway is ready", async |cluster| {
            cluster.person(gateway).is_ready().await
        })
        .await;
    }

    /// Starts a node with its own Docker.
    fn add_node(&mut self, pool: &str, disk_bytes: Option<u64>) {
        let host = self.network.add_host();
        if let Some(size) = disk_bytes {
            host.mount_disk(size);
        }
        host.start_engine();
        let mut arguments = vec!["node".to_owned()];
        arguments.extend(self.common("node", &host.data_directory().join("aod")));
        arguments.extend([
            "--docker".to_owned(),
            format!("unix://{}", host.docker_socket().display()),
        ]);
        arguments.extend(["--pool", pool, "--slots", SLOTS].map(str::to_owned));
        let environment = self.environment();
        self.nodes
            .push(Program::start(&host, aod(), "node", arguments, environment));
    }

    /// Returns when all programs run and know each other, and the broker's servers are in sync.
    pub async fn wait_until_whole(&mut self) {
        let http = reqwest::Client::builder().no_proxy().build();
        let http = http.expect("an HTTP client");
        self.wait_until("everything is there again", async |cluster| {
            for broker in &cluster.brokers {
                let health = format!("{}/healthz", broker::monitoring_url(broker));
                let answer = http.get(health).send().await;
                if !answer.is_ok_and(|answer| answer.status().is_success()) {
                    return false;
                }
            }
            for gateway in 0..cluster.gateways.len() {
                let person = cluster.person(gateway);
                if !person.is_ready().await || person.count_nodes().await != cluster.nodes.len() {
                    return false;
                }
            }
            true
        })
        .await;
    }

    /// Polls `condition` until it holds, while all programs run.
    async fn wait_until(&mut self, what: &str, condition: impl AsyncFn(&Self) -> bool) {
        let deadline = tokio::time::Instant::now() + START_PATIENCE;
        while !condition(self).await {
            for program in self.programs() {
                program.check_runs();
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "not in {START_PATIENCE:?}: {what}"
            );
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// All programs.
    pub fn programs(&mut self) -> impl Iterator<Item = &mut Program> {
        let people = self.gateways.iter_mut().chain(&mut self.nodes);
        people.chain(&mut self.brokers)
    }

    /// A person at the gateway with this number.
    pub fn person(&self, gateway: usize) -> Person {
        Person::new(self.gateways[gateway].host().address(), &self.token_file())
    }

    /// The number of the node on the host with this name.
    pub fn node_on(&self, host: &str) -> usize {
        let position = self
            .nodes
            .iter()
            .position(|node| node.host().name() == host);
        position.unwrap_or_else(|| panic!("no host is called {host}"))
    }

    /// An `aod` on the machine for the gateway with this number, as a person would start it.
    pub fn aod(&self, gateway: usize) -> Command {
        let mut command = Command::new(aod());
        command
            .env("AOD_URL", self.person(gateway).url())
            .env("AOD_TOKEN_FILE", self.token_file())
            .env("AOD_FORMAT", "json");
        command
    }

    /// A connection to the broker with all rights; `name` appears in the broker's lists.
    pub async fn broker(&self, name: &str) -> Result<Broker, ConnectError> {
        let file = credentials(&self.network).join("nats-admin.creds");
        Broker::connect(Config {
            servers: self.brokers.iter().map(broker::url).collect(),
            credentials: Credentials::from_file(&file).expect("a file that aod made"),
            lease_seconds: LEASE_SECONDS,
            ..Config::new("", name)
        })
        .await
    }

    fn token_file(&self) -> PathBuf {
        credentials(&self.network).join("token")
    }

    fn common(&self, part: &str, data: &std::path::Path) -> Vec<String> {
        let store = self.s3.as_ref().map_or_else(
            || "jetstream".to_owned(),
            |s3| {
                format!(
                    "s3://{}?endpoint={}&region=us-east-1&allow_http=true",
                    S3Server::BUCKET,
                    s3.endpoint()
                )
            },
        );
        let credentials = credentials(&self.network).join(format!("nats-{part}.creds"));
        [
            (
                "--nats",
                self.brokers
                    .iter()
                    .map(broker::url)
                    .collect::<Vec<_>>()
                    .join(","),
            ),
            ("--nats-replicas", self.brokers.len().to_string()),
            (
                "--nats-monitoring",
                broker::monitoring_url(&self.brokers[0]),
            ),
            ("--nats-credentials", credentials.display().to_string()),
            ("--store", store),
            ("--lease-seconds", LEASE_SECONDS.to_string()),
            ("--data", data.display().to_string()),
        ]
        .into_iter()
        .flat_map(|(flag, value)| [flag.to_owned(), value])
        .collect()
    }

    fn environment(&self) -> Vec<(String, String)> {
        let secrets = [
            ("AWS_ACCESS_KEY_ID", S3Server::ACCESS_KEY),
            ("AWS_SECRET_ACCESS_KEY", S3Server::SECRET_KEY),
        ];
        let used = self.s3.iter().flat_map(|_| secrets);
        used.chain([("AOD_LOG", LOG)])
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }
}

fn credentials(network: &Network) -> PathBuf {
    network.directory().join("credentials")
}

fn make_credentials(network: &Network) {
    let output = Command::new(aod())
        .arg("credentials")
        .arg(credentials(network))
        .output()
        .expect("aod starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
