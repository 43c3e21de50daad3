//! The simulated cluster: its hosts and programs, and operations on them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aod_domain::admission::Capacity;
use aod_domain::audit::SealKey;
use aod_domain::capsule::ImageContent;
use aod_domain::digest::Digest;
use aod_domain::event::{CloudEvent, Header};
use aod_domain::flow;
use aod_domain::id::NodeId;
use aod_domain::subject::Pool;
use aod_gateway::{Access, Gateway};
use aod_node::Node;
use aod_ports::clock::Clock;
use aod_ports::event_log::{Append, Guard};
use aod_services::program::Program;
use aod_services::runs::Runs;
use aod_testkit::capsules::{registered, registered_for, registration};
use jiff::SignedDuration;

use crate::broker::Broker;
use crate::broker::feed::SimulatedFeed;
use crate::broker::live::{SimulatedLogs, SimulatedPresence};
use crate::broker::log::SimulatedLog;
use crate::broker::queue::SimulatedQueue;
use crate::capsule as planned;
use crate::clock::HostClock;
use crate::engine::{Alive, Engine};
use crate::link::{Link, Switch};
use crate::network::{Listening, Network, Route};
use crate::plan::{equipment, required_of_all, rules};
use crate::store::{Objects, SimulatedStore};
use crate::tenants;
use crate::world::World;

/// Lease of simulated clusters, in seconds.
pub(crate) const LEASE_SECONDS: u32 = 5;

pub(crate) const GATEWAYS: usize = 2;
pub(crate) const NODES: usize = 3;

/// One cluster in this number has two tenants.
const TENANTS_ONE_IN: u64 = 8;

/// One cluster in this number has rules.
const RULES_ONE_IN: u64 = 3;

/// One cluster in this number has different nodes, and runs with requirements.
const PLACED_ONE_IN: u64 = 3;

/// Size of the capsule's image: large enough to prefer a node that has it.
const IMAGE_BYTES: u64 = 2 << 20;

/// One cluster in this number keeps nothing of ended trees.
const KEPT_ONE_IN: u64 = 3;

/// Minimum age of unnamed artifacts before deletion, in seconds: longer than a put artifact waits for its event,
/// despite all faults.
pub(crate) const UNNAMED_SECONDS: u64 = 60;

/// Runs that compute concurrently on one node.
const SLOTS: usize = 2;

/// A host with one program on it.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) clock: Arc<HostClock>,
    pub(crate) network: Switch,
    data: PathBuf,
    /// The current process of the program.
    running: Mutex<Option<Program>>,
}

impl Host {
    fn new(world: &World, directory: &Path, name: String) -> Self {
        let data = directory.join(&name);
        std::fs::create_dir_all(&data).expect("a directory of a simulation");
        Self {
            name,
            clock: Arc::new(HostClock::new(world)),
            network: Switch::new(),
            data,
            running: Mutex::default(),
        }
    }

    /// Ends the program immediately; false if it was not running.
    pub(crate) fn kill(&self) -> bool {
        let program = self.running().take();
        if let Some(program) = &program {
            program.kill();
        }
        program.is_some()
    }

    fn running(&self) -> MutexGuard<'_, Option<Program>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) world: World,
    pub(crate) broker: Broker,
    pub(crate) objects: Objects,
    pub(crate) network: Network,
    pub(crate) gateways: Vec<Host>,
    pub(crate) nodes: Vec<Host>,
    pub(crate) engines: Vec<Engine>,
    ids: Vec<NodeId>,
    /// How long the broker keeps events, if they are archived.
    log_age: Option<SignedDuration>,
    /// Whether users belong to two tenants; otherwise there are no tokens, and everything belongs to the default
    /// tenant.
    pub(crate) has_tenants: bool,
    pub(crate) is_placed: bool,
    /// Whether garbage is collected.
    pub(crate) is_kept: bool,
}

/// One cluster in this number archives its log; its simulation takes a third longer.
const ARCHIVED_ONE_IN: u64 = 16;

/// Age of events in the broker: short compared with a history, so that most events are read from the archive.
const LOG_AGE: SignedDuration = SignedDuration::from_secs(20);

/// Maximum wait for the release: gateways check old events every ten seconds, and wait one minute between announcement
/// and release.
const RELEASE_SECONDS_MAX: u64 = 120;

impl Cluster {
    pub(crate) fn new(world: &World, directory: &Path) -> Self {
        let alive = Alive::default();
        let lease = Duration::from_secs(LEASE_SECONDS.into());
        let host = |name: String| Host::new(world, directory, name);
        let nodes: Vec<Host> = (0..NODES)
            .map(|index| host(format!("node-{index}")))
            .collect();
        let engine = |(index, node): (usize, &Host)| {
            let clock = Arc::clone(&node.clock) as _;
            Engine::new(world, &format!("engine-{index}"), clock, &alive)
        };
        let engines = nodes.iter().enumerate().map(engine).collect();
        let ids = nodes
            .iter()
            .map(|node| NodeId::new(node.clock.fresh_uuid()))
            .collect();
        let cluster = Self {
            world: world.clone(),
            broker: Broker::new(world, lease),
            objects: Objects::new(world),
            network: Network::default(),
            gateways: (0..GATEWAYS)
                .map(|index| host(format!("gateway-{index}")))
                .collect(),
            nodes,
            engines,
            ids,
            log_age: (world.below(ARCHIVED_ONE_IN) == 0).then_some(LOG_AGE),
            has_tenants: world.below(TENANTS_ONE_IN) == 0,
            is_placed: world.below(PLACED_ONE_IN) == 0,
            is_kept: world.below(KEPT_ONE_IN) == 0,
        };
        if cluster.is_placed {
            world.count("placed");
            let ids = cluster.ids.iter().copied().enumerate();
            let equipment = ids.map(|(index, id)| (id, equipment(index).0));
            let equipment = equipment.collect();
            cluster.broker.check_placement(equipment, alive);
        }
        cluster.register();
        if world.below(RULES_ONE_IN) == 0 {
            cluster.store_rules();
        }
        cluster
    }

    /// Waits until the broker has released old events, if it does at all: clocks that were set may prevent the release.
    pub(crate) async fn grow_old(&self) {
        for _ in 0..RELEASE_SECONDS_MAX {
            if self.log_age.is_none() || self.broker.has_released() {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// Registers the capsule in the log, as a gateway does at the end of a build.
    fn register(&self) {
        let schema = self.objects.put(planned::schema().to_string().into());
        let clock: Arc<dyn Clock> = Arc::clone(&self.gateways[0].clock) as _;
        let runs = Runs::new(
            Arc::new(self.log("simulator", &Switch::new())),
            clock,
            "/simulator",
        );
        let mut registration = registration(planned::NAME, schema.digest);
        registration.image.content = ImageContent::Archive {
            archive: Digest::of(planned::NAME),
            archive_size_bytes: IMAGE_BYTES,
        };
        if self.is_placed {
            registration.needs.placement = required_of_all();
        }
        if !self.has_tenants {
            self.broker.store(&registered(runs.header(), registration));
            return;
        }
        for tenant in tenants::BOTH {
            let of_tenant = registration.clone();
            let append = registered_for(&tenant.name(), runs.header(), of_tenant);
            self.broker.store(&append);
            self.broker.store(&tenant.issued(runs.header()));
        }
    }

    /// Stores the rules, as an operator does, before the first request.
    fn store_rules(&self) {
        for rule in rules() {
            let clock = &self.gateways[0].clock;
            let header = Header {
                id: clock.fresh_event_id(),
                source: "/simulator".into(),
                time: clock.now(),
            };
            let requested_by = "operator".to_owned();
            let event = flow::Event::Set { rule, requested_by };
            let subject = event.subject();
            let event = CloudEvent::new(header, "rule".into(), None, event);
            let append = Append::of(subject, Guard::None, &event);
            self.broker.store(&append.expect("a small event"));
        }
    }

    fn link(&self, who: &str, host: &Switch) -> Link {
        Link::new(&self.world, who, host, &self.broker.switch)
    }

    fn log(&self, who: &str, host: &Switch) -> SimulatedLog {
        SimulatedLog {
            broker: self.broker.clone(),
            link: self.link(who, host),
        }
    }

    fn queue(&self, who: &str, host: &Switch) -> Arc<SimulatedQueue> {
        Arc::new(SimulatedQueue {
            broker: self.broker.clone(),
            link: self.link(who, host),
        })
    }

    fn presence(&self, who: &str, host: &Switch) -> Arc<SimulatedPresence> {
        Arc::new(SimulatedPresence {
            broker: self.broker.clone(),
            link: self.link(who, host),
        })
    }

    fn logs(&self, who: &str, host: &Switch) -> Arc<SimulatedLogs> {
        Arc::new(SimulatedLogs {
            broker: self.broker.clone(),
            link: self.link(who, host),
        })
    }

    fn store(&self, host: &Host) -> Arc<SimulatedStore> {
        let directory = host.data.join("cache");
        std::fs::create_dir_all(&directory).expect("a directory of a simulation");
        Arc::new(SimulatedStore {
            objects: self.objects.clone(),
            broker: self.broker.clone(),
            // The store is a separate server: it stays up when the broker is down.
            link: Link::new(&self.world, &host.name, &host.network, &Switch::new()),
            directory,
        })
    }

    /// The route for the plan with `number`, with the token of its tenant if there are several.
    pub(crate) fn route_of(&self, who: &str, number: u64) -> Route {
        let bearer = self.has_tenants.then(|| tenants::of(number).token());
        Route {
            bearer,
            ..self.route(who, &Switch::new())
        }
    }

    /// The route of the user `who` to the gateways.
    pub(crate) fn route(&self, who: &str, host: &Switch) -> Route {
        Route {
            bearer: None,
            network: self.network.clone(),
            world: self.world.clone(),
            who: who.to_owned(),
            host: host.clone(),
        }
    }

    /// Starts a gateway if none runs; it is ready some time later.
    pub(crate) fn start_gateway(self: &Arc<Self>, index: usize) {
        let (cluster, program) = (Arc::clone(self), Program::default());
        {
            let mut running = self.gateways[index].running();
            if running.is_some() {
                return;
            }
            *running = Some(program.clone());
        }
        self.world.step(&self.gateways[index].name, "starts");
        tokio::spawn(program.clone().run(async move {
            loop {
                match cluster.gateway(index, &program).await {
                    Ok(gateway) => {
                        std::future::pending::<()>().await;
                        drop(gateway);
                    }
                    // The supervisor restarts it.
                    Err(error) => cluster.world.step(&cluster.gateways[index].name, &error),
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }));
    }

    async fn gateway(&self, index: usize, program: &Program) -> Result<Gateway, String> {
        let host = &self.gateways[index];
        let (name, network) = (&host.name, &host.network);
        let seed = [u8::try_from(index).unwrap_or_default(); 32];
        let config = aod_gateway::Config {
            listen: ([127, 0, 0, 1], 0).into(),
            public_url: None,
            access: Access::Development,
            data_directory: host.data.clone(),
            lease_seconds: LEASE_SECONDS,
            // No part of a simulation reads lists.
            lists_delay: Duration::from_secs(4),
            wait_seconds_max: 3_600,
            upload_bytes_max: 1 << 20,
            disk_reserve: Some(0),
            unnamed_for: SignedDuration::from_secs(UNNAMED_SECONDS.cast_signed()),
            seal_key: Arc::new(SealKey::from_seed(&seed)),
            log_age: self.log_age,
            tls: None,
        };
        let ports = aod_gateway::Ports {
            log: Arc::new(self.log(name, network)),
            queue: self.queue(name, network),
            logs: self.logs(name, network),
            presence: self.presence(name, network),
            artifacts: self.store(host),
            clock: Arc::clone(&host.clock) as _,
            ends: Arc::new(SimulatedFeed {
                broker: self.broker.clone(),
                link: self.link(name, network),
            }),
        };
        let url = format!("http://{name}");
        let started = Gateway::start_detached(config, ports, url).await;
        let (gateway, router) = started.map_err(|error| error.to_string())?;
        let listening = Listening {
            program: program.clone(),
            router,
            switch: network.clone(),
        };
        self.network.listen(name, listening);
        Ok(gateway)
    }

    pub(crate) fn kill_gateway(&self, index: usize) -> bool {
        let host = &self.gateways[index];
        self.network.close(&host.name);
        host.kill()
    }

    /// Starts a node if none runs.
    pub(crate) fn start_node(self: &Arc<Self>, index: usize) {
        let (cluster, program) = (Arc::clone(self), Program::default());
        {
            let mut running = self.nodes[index].running();
            if running.is_some() {
                return;
            }
            *running = Some(program.clone());
        }
        self.world.step(&self.nodes[index].name, "starts");
        tokio::spawn(program.run(async move {
            let node = cluster.node(index).await;
            std::future::pending::<()>().await;
            drop(node);
        }));
    }

    async fn node(&self, index: usize) -> Node {
        let host = &self.nodes[index];
        let (name, network) = (&host.name, &host.network);
        let (equipment, devices) = if self.is_placed {
            equipment(index)
        } else {
            Default::default()
        };
        let config = aod_node::Config {
            data: host.data.clone(),
            pools: vec![Pool::any()],
            capacity: Capacity {
                slots: SLOTS,
                containers_max: SLOTS,
                memory_bytes: 1 << 30,
            },
            equipment,
            devices,
            lease: Duration::from_secs(LEASE_SECONDS.into()),
            grace: Duration::from_secs(1),
            log_bytes_max: 1 << 16,
            // Simulations write little.
            disk_look: Duration::from_secs(10),
            disk_reserve: Some(0),
            image_keep: Duration::from_secs(24 * 3_600),
            models: Arc::default(),
            keep_model_contents: false,
            egress: Vec::new(),
            host: name.clone(),
        };
        let ports = aod_node::Ports {
            queue: self.queue(name, network),
            logs: self.logs(name, network),
            presence: self.presence(name, network),
            artifacts: self.store(host),
            images: self.store(host),
            runtime: Arc::new(self.engines[index].clone()),
            gateways: Arc::new(self.route(name, network)),
            secrets: Arc::new(aod_ports::secrets::NoSecrets),
            network: Arc::new(aod_node::SystemNetwork),
        };
        let log = Arc::new(self.log(name, network));
        let clock = Arc::clone(&host.clock) as _;
        let started = Node::start(config, self.ids[index], ports, log, clock).await;
        started.expect("the directories of a simulation can be made")
    }
}
