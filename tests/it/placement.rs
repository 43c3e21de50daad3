//! Where runs start: only on nodes that meet their requirements, and preferably where their files are.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use aod_domain::admission::Capacity;
use aod_domain::capsule::{Needs, Registration};
use aod_domain::manifest::Secret;
use aod_domain::placement::{Devices, Equipment, Name, Requirements};
use aod_node::DirectorySecrets;
use aod_ports::container_runtime::{ContainerRuntime as _, ImagePush};
use aod_testkit::capsules::registration;
use aod_tests::client::{Client, eventually};
use aod_tests::cluster::{Cluster, any_schema, append_registration, store_schema};
use aod_tests::simulated::{Command, Inside, handoff, runtime};
use serde_json::{Value, json};

use crate::flow::{Story, cross, operate};

/// Size of a file that makes a node preferable, in bytes.
const FILE_BYTES: usize = 2 << 20;

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

/// Returns the devices that its node gave it.
fn tell() -> Command {
    Arc::new(|inside: Inside| {
        Box::pin(async move {
            let environment = inside.spec.environment.iter();
            let devices = environment.filter(|(name, _)| name.starts_with("AOD_DEVICE_"));
            let devices: BTreeMap<_, _> = devices.cloned().collect();
            inside.write_output(&json!({"devices": devices}));
            0
        })
    })
}

/// Creates a file and calls itself with it, `depth` levels down; before that, calls `block` if its input says so.
fn pass(story: &Story) -> Command {
    let story = story.clone();
    Arc::new(move |inside: Inside| {
        let story = story.clone();
        Box::pin(async move {
            let input = inside.input();
            let depth = input["depth"].as_u64().expect("a depth");
            if input["is_blocked"] == true {
                let caller = inside.clone();
                tokio::spawn(async move {
                    handoff(&caller, &json!({"target": "block", "args": {}})).await;
                });
                while story.started().is_empty() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
            if depth > 0 {
                let bytes = vec![u8::try_from(depth).expect("a small depth"); FILE_BYTES];
                let file = inside.spec.io.outgoing.join("data.bin");
                std::fs::write(file, bytes).expect("room for a file");
                let args = json!({"depth": depth - 1, "data": "data.bin"});
                let body = json!({"target": "pass", "args": args});
                let (status, answer) = handoff(&inside, &body).await;
                assert_eq!(status, 200, "{answer}");
            }
            inside.write_output(&json!({}));
            0
        })
    })
}

/// A gateway, and capsules as functions.
struct Place {
    cluster: Cluster,
    client: Client,
    story: Story,
}

impl Place {
    async fn new() -> Self {
        let cluster = Cluster::start(1).await;
        let client = cluster.client(0);
        let place = Self {
            cluster,
            client,
            story: Story::new(),
        };
        for name in ["tell", "pass", "hold", "cross"] {
            place.cluster.register(name, &any_schema()).await;
        }
        place
    }

    fn capsules(&self) -> [(String, Command); 6] {
        [
            ("tell", tell()),
            ("pass", pass(&self.story)),
            ("hold", self.story.hold()),
            ("block", self.story.hold()),
            ("cross", cross(&self.story)),
            ("keyed", tell()),
        ]
        .map(|(name, command)| (name.to_owned(), command))
    }

    async fn add_node(&mut self, slots: usize, attributes: &[&str], devices: &[(&str, &[&str])]) {
        let read = |text: &&str| Equipment::read_attribute(text).expect("an attribute");
        let devices = devices.iter().map(|(kind, files)| {
            let files = files.iter().map(|file| Some((*file).to_owned()));
            (name(kind), files.collect())
        });
        let devices = Devices::new(devices.collect());
        self.cluster.equipment = Equipment {
            attributes: attributes.iter().map(read).collect(),
            devices: devices.counts(),
            ..Equipment::default()
        };
        self.cluster.devices = devices;
        let capacity = Capacity {
            slots,
            containers_max: 64,
            memory_bytes: 64 << 30,
        };
        let runtime = runtime(self.capsules());
        self.cluster.add_node(&["any"], capacity, runtime).await;
        let expected = self.cluster.nodes.len();
        eventually("presence", async || {
            let (_, nodes) = self.client.get("/v1/nodes").await;
            nodes["items"].as_array().map(Vec::len) == Some(expected)
        })
        .await;
    }

    fn node(&self, index: usize) -> String {
        self.cluster.nodes[index].id().to_string()
    }

    async fn register_with_needs(&self, capsule: &str, needs: Needs) {
        let schema = store_schema(self.cluster.artifacts.as_ref(), &any_schema()).await;
        let registration = Registration {
            needs,
            ..registration(capsule, schema)
        };
        let broker = self.cluster.broker("registrar").await;
        append_registration(&broker, registration).await;
        let known = async || {
            let (status, _) = self.client.get(&format!("/v1/capsules/{capsule}")).await;
            status == 200
        };
        eventually("the capsule", known).await;
    }

    async fn view(&self, run: &str) -> Value {
        self.client.get(&format!("/v1/runs/{run}")).await.1
    }

    async fn waits(&self, run: &str, why: &str) {
        let told = std::sync::Mutex::new(Value::Null);
        let looking = eventually("the reason", async || {
            let reason = self.view(run).await["waits_for"].clone();
            let is_it = reason == why;
            *told.lock().expect("no panic with the lock") = reason;
            is_it
        });
        // The test below prints another reason.
        drop(tokio::time::timeout(Duration::from_secs(20), looking).await);
        assert_eq!(told.into_inner().expect("no panic with the lock"), why);
    }

    /// The node on which `run` has succeeded.
    async fn node_of(&self, run: &str) -> String {
        let result = self.client.result(run).await;
        assert_eq!(result["state"], "succeeded", "{result}");
        self.view(run).await["node"]
            .as_str()
            .expect("a node")
            .to_owned()
    }

    async fn start(&self, capsule: &str, body: Value) -> String {
        self.client.start_with(capsule, json!({}), body).await
    }

    /// The nodes of a root and of its descendants, in their order.
    async fn nodes_below(&self, root: &str) -> Vec<String> {
        let (_, tree) = self.client.get(&format!("/v1/runs/{root}/tree")).await;
        let mut nodes = Vec::new();
        let mut next = Some(&tree);
        while let Some(branch) = next {
            let node = branch["run"]["node"].as_str().or(branch["node"].as_str());
            nodes.push(node.unwrap_or_else(|| panic!("{branch}")).to_owned());
            let mut children = branch["children"].as_array().into_iter().flatten();
            next = children.rfind(|child| child.to_string().contains("\"pass\""));
        }
        nodes
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_start_only_on_nodes_that_meet_their_requirements() {
    let mut place = Place::new().await;
    place.add_node(4, &["zone=us"], &[]).await;
    let eu = json!({"require": ["gpu_memory>=24", "zone=eu"]});
    let early = place.start("tell", eu.clone()).await;
    let why = "no node in pool any meets the requirements: node-0 has no gpu_memory>=24, zone=us not zone=eu";
    place.waits(&early, why).await;
    // Of the nodes that join later, the suitable one takes it.
    place.add_node(4, &["zone=eu", "gpu_memory=16"], &[]).await;
    let why = "no node in pool any meets the requirements: node-0 has no gpu_memory>=24, zone=us not zone=eu; \
               node-1 has gpu_memory=16 not gpu_memory>=24";
    place.waits(&early, why).await;
    place
        .add_node(4, &["zone=eu", "gpu_memory=24.0"], &[])
        .await;
    assert_eq!(place.node_of(&early).await, place.node(2));
    for (body, nodes) in [
        (eu, vec![2]),
        (json!({"require": ["zone!=us"]}), vec![1, 2]),
        (json!({"require": ["gpu_memory<20"]}), vec![1]),
        (json!({"require": ["zone"]}), vec![0, 1, 2]),
    ] {
        let allowed: BTreeSet<String> = nodes.into_iter().map(|index| place.node(index)).collect();
        for _ in 0..10 {
            let run = place.start("tell", body.clone()).await;
            let node = place.node_of(&run).await;
            assert!(allowed.contains(&node), "{body}: {node} of {allowed:?}");
            let view = place.view(&run).await;
            assert_eq!(view["requires"]["attributes"], body["require"], "{view}");
        }
    }
    // Requirements of the capsule and of the request add up.
    let needs = Needs {
        placement: Requirements {
            attributes: BTreeSet::from(["zone=eu".parse().expect("a requirement")]),
            ..Requirements::default()
        },
        ..Needs::default()
    };
    place.register_with_needs("keyed", needs).await;
    let run = place
        .start("keyed", json!({"require": ["gpu_memory<20"]}))
        .await;
    assert_eq!(place.node_of(&run).await, place.node(1));
    let body = json!({"capsule": "tell", "require": ["Zone=eu", "a>b"], "devices": {"gpu": 0}});
    let (status, refusal) = place.client.post_json("/v1/runs", &body).await;
    assert_eq!(
        (status, refusal["errors"].as_array().map(Vec::len)),
        (400, Some(3)),
        "{refusal}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_are_exclusive_and_a_waiting_run_reports_the_reason() {
    let mut place = Place::new().await;
    place.add_node(8, &[], &[]).await;
    place
        .add_node(8, &[], &[("gpu", &["/dev/null", "/dev/zero"])])
        .await;
    let both = place.start("tell", json!({"devices": {"gpu": 2}})).await;
    assert_eq!(place.node_of(&both).await, place.node(1));
    let result = place.client.result(&both).await;
    let devices = &result["output"]["devices"]["AOD_DEVICE_GPU"];
    assert_eq!(*devices, "/dev/null,/dev/zero", "{result}");
    let one = json!({"devices": {"gpu": 1}});
    let holders = [
        place.start("hold", one.clone()).await,
        place.start("hold", one.clone()).await,
    ];
    eventually("both hold", async || place.story.started().len() == 2).await;
    let third = place.start("tell", one).await;
    let why = "other runs use the devices: node-1 has 0 of 1 gpu free";
    place.waits(&third, why).await;
    let many = place.start("tell", json!({"devices": {"gpu": 3}})).await;
    let why =
        "no node in pool any meets the requirements: node-0 has 0 of 3 gpu; node-1 has 2 of 3 gpu";
    place.waits(&many, why).await;
    let (_, nodes) = place.client.get("/v1/nodes").await;
    assert_eq!(
        nodes["items"][1]["devices"],
        json!({"gpu": {"count": 2, "free": 0}}),
        "{nodes}"
    );
    // The lists, from which the wait reasons are taken, lag a moment behind.
    eventually("the figures", async || {
        let metrics = place.client.bytes("/metrics").await;
        let metrics = String::from_utf8_lossy(&metrics).into_owned();
        let name = "pool=\"any\",requirements=\"3 gpu\"";
        metrics.contains(&format!("aod_gateway_queue_oldest_seconds{{{name}}} "))
            && metrics.contains(&format!(
                "aod_gateway_queue_pending{{{name},class=\"root\"}} 1"
            ))
    })
    .await;
    place.story.release_all();
    for run in holders.iter().chain([&third]) {
        assert_eq!(place.node_of(run).await, place.node(1));
    }
}

/// One run is admitted and waits for the device of another, whose callee waits for the bucket of the first.
#[tokio::test(flavor = "multi_thread")]
async fn run_waiting_for_a_device_does_not_block_callees() {
    let mut place = Place::new().await;
    place.add_node(4, &[], &[("gpu", &["/dev/null"])]).await;
    let set = [
        "rules",
        "set",
        "one",
        "--capsule",
        "hold",
        "--concurrency",
        "1",
    ];
    operate(&place.cluster, &set).await;
    let start = async |capsule: &str, number: u32| {
        let body = json!({"devices": {"gpu": 1}});
        let arguments = json!({"number": number});
        place.client.start_with(capsule, arguments, body).await
    };
    let holder = start("cross", 1).await;
    eventually("it has the device", async || place.story.started() == [1]).await;
    let waiting = start("hold", 2).await;
    let why = "other runs use the devices: node-0 has 0 of 1 gpu free";
    place.waits(&waiting, why).await;
    place.story.release_all();
    for run in [&holder, &waiting] {
        assert_eq!(place.node_of(run).await, place.node(0));
    }
    assert_eq!(place.story.started(), [1, 101, 2]);
}

/// A capsule that needs a secret, and a node that has it.
async fn with_secret(place: &Place) -> Needs {
    let directory = place.cluster.data("secrets");
    let path = directory.join("API_KEY");
    std::fs::write(&path, "what nobody knows").expect("a test directory");
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("a test file");
    let secret = Secret {
        name: "API_KEY".into(),
        env: "API_KEY".into(),
        required: true,
    };
    let needs = Needs {
        secrets: vec![secret],
        ..Needs::default()
    };
    place.register_with_needs("keyed", needs.clone()).await;
    needs
}

#[tokio::test(flavor = "multi_thread")]
async fn run_moves_to_a_node_that_has_its_secret() {
    let mut place = Place::new().await;
    with_secret(&place).await;
    place.add_node(1, &[], &[]).await;
    let directory = place.cluster.data("secrets");
    place.cluster.secrets = Arc::new(DirectorySecrets::new(directory));
    place.add_node(1, &["is_kept"], &[]).await;
    let holder = place.start("hold", json!({"require": ["is_kept"]})).await;
    eventually("it holds", async || place.story.started().len() == 1).await;
    let run = place.start("keyed", json!({})).await;
    let told = eventually("a refusal", async || {
        place.view(&run).await["refusals"][0]["code"] == "secret_missing"
    });
    told.await;
    let view = place.view(&run).await;
    assert_eq!(
        view["refusals"][0]["node"],
        place.node(0).as_str(),
        "{view}"
    );
    let message = view["refusals"][0]["message"]
        .as_str()
        .expect("a message")
        .to_owned();
    assert!(message.contains("API_KEY"), "{message}");
    place
        .waits(
            &run,
            &format!("node-0 refused the run: {message}; all 1 slots busy"),
        )
        .await;
    place.story.release_all();
    place.node_of(&holder).await;
    assert_eq!(place.node_of(&run).await, place.node(1));
    let view = place.view(&run).await;
    assert_eq!(
        (&view["attempts_lost"], &view["attempts"]),
        (&json!(0), &json!(2)),
        "{view}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn unstartable_run_fails_with_the_reason_of_the_last_node() {
    let mut place = Place::new().await;
    with_secret(&place).await;
    for _ in 0..2 {
        place.add_node(1, &[], &[]).await;
    }
    let run = place.start("keyed", json!({})).await;
    let result = place.client.result(&run).await;
    let error = &result["error"];
    assert_eq!(
        (&result["state"], &error["code"]),
        (&json!("failed"), &json!("secret_missing")),
        "{result}"
    );
    let message = error["message"].as_str().expect("a message");
    assert!(
        message.ends_with("; earlier refusals by other nodes: 1"),
        "{message}"
    );
    let refusals = error["detail"]["refusals"].as_array().map(Vec::len);
    assert_eq!(refusals, Some(1), "{result}");
    // A missing device is reported in the same way.
    place
        .add_node(1, &[], &[("card", &["/dev/aod-is-not-there"])])
        .await;
    let run = place.start("tell", json!({"devices": {"card": 1}})).await;
    let result = place.client.result(&run).await;
    assert_eq!(result["error"]["code"], "node_unfit", "{result}");
    let message = result["error"]["message"].as_str().expect("a message");
    assert!(
        message.starts_with("/dev/aod-is-not-there: No such file"),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn callees_follow_their_files_and_leave_a_full_node() {
    let mut place = Place::new().await;
    place.add_node(1, &["here"], &[]).await;
    for _ in 0..3 {
        place.add_node(8, &[], &[]).await;
    }
    let here = json!({"require": ["here"]});
    let root = place
        .client
        .start_with("pass", json!({"depth": 10}), here.clone())
        .await;
    assert_eq!(place.node_of(&root).await, place.node(0));
    let nodes = place.nodes_below(&root).await;
    assert_eq!(nodes, vec![place.node(0); 11]);
    // Another callee takes the only slot: the chain continues on another node, and stays there.
    let needs = Needs {
        placement: Requirements {
            attributes: BTreeSet::from(["here".parse().expect("a requirement")]),
            ..Requirements::default()
        },
        ..Needs::default()
    };
    place.register_with_needs("block", needs).await;
    let arguments = json!({"depth": 10, "is_blocked": true});
    let root = place.client.start_with("pass", arguments, here).await;
    assert_eq!(place.node_of(&root).await, place.node(0));
    place.story.release_all();
    let nodes = place.nodes_below(&root).await;
    assert!(!nodes[1..].contains(&place.node(0)), "{nodes:?}");
    let others: BTreeSet<&String> = nodes[1..].iter().collect();
    assert_eq!(others.len(), 1, "{nodes:?}");
}

/// A node on which a capsule ran fetches the capsule's next version before a run asks for it; other nodes do not.
#[tokio::test(flavor = "multi_thread")]
async fn node_fetches_the_next_version_of_a_capsule_that_ran_on_it() {
    let mut place = Place::new().await;
    let capacity = Capacity {
        slots: 4,
        containers_max: 64,
        memory_bytes: 64 << 30,
    };
    let mut engines = Vec::new();
    for attribute in ["used", "idle"] {
        let all = [("tell", tell()), ("next", tell())];
        let engine = runtime(all.map(|(name, command)| (name.to_owned(), command)));
        engine.images().forget("next");
        let attribute = Equipment::read_attribute(attribute).expect("an attribute");
        place.cluster.equipment.attributes = BTreeMap::from([attribute]);
        let on_node = Arc::clone(&engine);
        place.cluster.add_node(&["any"], capacity, on_node).await;
        engines.push(engine);
    }
    let used = json!({"require": ["used"]});
    let run = place.client.start_with("tell", json!({}), used).await;
    assert_eq!(place.node_of(&run).await, place.node(0));

    let builder = runtime([("next".to_owned(), tell())]);
    let artifacts = Arc::clone(&place.cluster.artifacts);
    let (progress, _) = tokio::sync::mpsc::channel(1);
    let push = ImagePush {
        image: "next",
        artifacts: &artifacts,
        progress,
    };
    let stored = builder.store_image(push).await;
    let schema = store_schema(artifacts.as_ref(), &any_schema()).await;
    let next = Registration {
        image: stored.expect("it is stored"),
        ..registration("tell", schema)
    };
    let broker = place.cluster.broker("tests").await;
    append_registration(&broker, next).await;
    eventually("the next version", async || {
        engines[0].has_image("next").await.expect("an answer")
    })
    .await;
    assert!(!engines[1].has_image("next").await.expect("an answer"));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_roots_are_spread_over_nodes() {
    let mut place = Place::new().await;
    for _ in 0..2 {
        place.add_node(8, &[], &[]).await;
    }
    for number in 0..8 {
        let arguments = json!({"number": number + 1});
        place.client.start_with("hold", arguments, json!({})).await;
    }
    eventually("all hold", async || place.story.started().len() == 8).await;
    let running = async || {
        let (_, nodes) = place.client.get("/v1/nodes").await;
        let items = nodes["items"].as_array().cloned().unwrap_or_default();
        let running = items.iter().filter_map(|node| node["running"].as_u64());
        running.collect::<Vec<u64>>()
    };
    eventually("presence", async || {
        running().await.iter().sum::<u64>() == 8
    })
    .await;
    let running = running().await;
    assert!(
        running.iter().all(|count| (2..=6).contains(count)),
        "{running:?}"
    );
    place.story.release_all();
}
