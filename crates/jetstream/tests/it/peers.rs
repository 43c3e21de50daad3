//! Nodes that fetch an artifact from each other: a real broker, a real S3 server behind a meter, and peers that fail.

mod attentive;
mod failures;
mod meter;

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aod_artifacts::CacheConfig;
use aod_domain::digest::Digest;
use aod_domain::id::NodeId;
use aod_domain::peers::ANSWERS_WITHIN;
use aod_jetstream::rights::{Part, User, configuration};
use aod_jetstream::{Broker, Config, Credentials, NatsPeers};
use aod_ports::artifact_store::{ArtifactStore, Stored};
use aod_ports::peers::Peers;
use aod_testkit::artifacts::{bytes, check_all, put};
use aod_testkit::{NatsConfig, NatsServer, S3Server, Scratch};
use bytes::Bytes;
use futures::future::join_all;
use futures::{FutureExt as _, StreamExt as _};
use serde_json::json;
use tokio::sync::Barrier;
use uuid::Uuid;

use self::attentive::Attentive;
use self::meter::Meter;

const MIB: u64 = 1 << 20;

/// More than the answers to the requests for sizes.
const SLACK_BYTES: u64 = MIB / 4;

/// A broker, and a store that every node reaches through a meter.
pub(crate) struct Scene {
    nats: NatsServer,
    s3: S3Server,
    pub(crate) meter: Meter,
    scratch: Scratch,
}

impl Scene {
    async fn start() -> Self {
        Self::start_with(String::new()).await
    }

    async fn start_with(configuration: String) -> Self {
        let s3 = S3Server::start();
        let scratch = Scratch::new("peers");
        let credentials = format!(
            "[default]\naws_access_key_id = {}\naws_secret_access_key = {}\n",
            S3Server::ACCESS_KEY,
            S3Server::SECRET_KEY
        );
        fs::write(scratch.path().join("credentials"), credentials).unwrap();
        let address = s3.endpoint().replace("http://", "");
        Self {
            nats: NatsServer::start(NatsConfig {
                extra: configuration,
                ..NatsConfig::default()
            }),
            meter: Meter::start(address.parse().unwrap()).await,
            s3,
            scratch,
        }
    }

    fn url(&self, endpoint: &str) -> String {
        format!(
            "s3://{}/artifacts?endpoint={endpoint}&region=us-east-1&credentials={}",
            S3Server::BUCKET,
            self.scratch.path().join("credentials").display()
        )
    }

    fn cache(&self, name: &str) -> CacheConfig {
        CacheConfig {
            directory: self.scratch.path().join(name),
            bytes_max: 1 << 30,
        }
    }

    /// Stores `content` past the meter and the caches of nodes.
    pub(crate) async fn put(&self, content: &Bytes) -> Stored {
        let cache = self.cache("writer");
        let store = aod_artifacts::open(&self.url(&self.s3.endpoint()), &cache).unwrap();
        put(&*store, content).await.unwrap()
    }

    /// What a node needs to open its store, also on another runtime.
    pub(crate) fn ticket(&self, number: u128, user: Option<&str>) -> Ticket {
        let name = format!("node-{number}");
        Ticket {
            node: node(number),
            url: self.url(&format!("http://{}", self.meter.address())),
            cache: self.cache(&name),
            broker: config(&self.nats, &name, user),
        }
    }

    pub(crate) async fn open(&self, number: u128) -> Arc<dyn ArtifactStore> {
        self.ticket(number, None).open().await
    }

    /// A client of the broker for messages by hand.
    pub(crate) async fn client(&self) -> async_nats::Client {
        async_nats::connect(self.nats.url()).await.unwrap()
    }
}

/// Opens the store of a node.
pub(crate) struct Ticket {
    node: NodeId,
    url: String,
    cache: CacheConfig,
    broker: Config,
}

impl Ticket {
    pub(crate) async fn open(self) -> Arc<dyn ArtifactStore> {
        self.open_as(|peers| Arc::new(peers)).await
    }

    /// As [`Self::open`], with the peers that `wrap` returns.
    async fn open_as(
        self,
        wrap: impl FnOnce(NatsPeers) -> Arc<dyn Peers>,
    ) -> Arc<dyn ArtifactStore> {
        let broker = Broker::connect(self.broker).await.unwrap();
        let peers = wrap(broker.open_peers(self.node).await.unwrap());
        let opened = aod_artifacts::open_among(&self.url, &self.cache, Some(peers)).unwrap();
        opened.images
    }
}

pub(crate) fn node(number: u128) -> NodeId {
    NodeId::new(Uuid::from_u128(number))
}

fn config(nats: &NatsServer, name: &str, user: Option<&str>) -> Config {
    let mut config = Config::new(nats.url(), name);
    if let Some(user) = user {
        config.makes_streams = user == "gateway";
        config.credentials = Credentials::UserPassword {
            user: user.to_owned(),
            password: format!("secret-of-{user}"),
        };
    }
    config
}

/// Fetches the artifact and compares its bytes.
pub(crate) async fn check_get(store: &dyn ArtifactStore, stored: Stored, content: &Bytes) {
    let file = store
        .get_file(stored.digest, stored.size_bytes)
        .await
        .unwrap();
    assert!(fs::read(file.path()).unwrap() == *content, "other bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn six_nodes_fetch_new_artifact_and_store_is_read_at_most_twice() {
    let scene = Scene::start().await;
    let content = bytes(32 << 20, 1);
    let stored = scene.put(&content).await;
    let askers = Arc::new(Barrier::new(6));
    let open = |number, others, askers: &Arc<Barrier>| {
        let askers = Arc::clone(askers);
        let attentive = move |peers| Arc::new(Attentive::new(peers, others, askers)) as _;
        scene.ticket(number, None).open_as(attentive)
    };
    let nodes = join_all((1..=6).map(|number| open(number, 5, &askers))).await;
    let gets = nodes
        .iter()
        .map(|node| check_get(&**node, stored, &content));
    join_all(gets).await;
    let sent = scene.meter.sent_bytes();
    println!(
        "the store sent {sent} bytes for {} bytes",
        stored.size_bytes
    );
    assert!(sent >= stored.size_bytes);
    assert!(sent <= 2 * stored.size_bytes + SLACK_BYTES);

    // A later node needs only the size from the store.
    let later = open(7, 6, &Arc::new(Barrier::new(1))).await;
    check_get(&*later, stored, &content).await;
    let more = scene.meter.sent_bytes() - sent;
    assert!(more < SLACK_BYTES, "the store sent {more} bytes more");
}

#[tokio::test(flavor = "multi_thread")]
async fn artifact_that_a_node_has_put_is_not_read_from_the_store() {
    let scene = Scene::start().await;
    // The last piece is small.
    let content = bytes((3 << 20) + 1, 2);
    let (one, other) = (scene.open(1).await, scene.open(2).await);
    let stored = put(&*one, &content).await.unwrap();
    check_get(&*other, stored, &content).await;
    let sent = scene.meter.sent_bytes();
    assert!(sent < SLACK_BYTES, "the store sent {sent} bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn node_waits_for_answers_only_if_there_are_other_nodes() {
    let scene = Scene::start().await;
    let broker = |number: u128| Broker::connect(config(&scene.nats, &format!("n{number}"), None));
    let one = broker(1).await.unwrap().open_peers(node(1)).await.unwrap();
    let mut shortest = Duration::MAX;
    for _ in 0..10 {
        let begun = Instant::now();
        let answers = one.ask(Digest::of("any"), &|_| false).await.unwrap();
        assert_eq!(answers, []);
        shortest = shortest.min(begun.elapsed());
    }
    assert!(shortest < ANSWERS_WITHIN, "{shortest:?}");

    let _other = broker(2).await.unwrap().open_peers(node(2)).await.unwrap();
    let begun = Instant::now();
    let answers = one.ask(Digest::of("any"), &|_| false).await.unwrap();
    assert_eq!(answers, []);
    assert!(begun.elapsed() >= ANSWERS_WITHIN);
}

#[tokio::test(flavor = "multi_thread")]
async fn store_of_a_node_among_peers_conforms() {
    let scene = Scene::start().await;
    let _other = scene.open(1).await;
    check_all(&*scene.open(2).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_serves_only_its_cache_and_few_pieces_at_a_time() {
    let scene = Scene::start().await;
    let content = bytes(2 << 20, 3);
    let unknown = scene.put(&bytes(2 << 20, 4)).await;
    let store = scene.open(1).await;
    let stored = put(&*store, &content).await.unwrap();
    let client = scene.client().await;
    let before = scene.meter.sent_bytes();

    let question = |digest: Digest| json!({"node": node(9), "artifact": digest}).to_string();
    let mut answers = client.subscribe("answers").await.unwrap();
    let asked = client.publish_with_reply("peer.ask", "answers", question(unknown.digest).into());
    asked.await.unwrap();
    let known = client.request("peer.ask", question(stored.digest).into());
    let known: serde_json::Value = serde_json::from_slice(&known.await.unwrap().payload).unwrap();
    assert_eq!(known, json!({"node": node(1), "standing": "whole"}));
    // A node answers in order.
    let earlier = answers.next().now_or_never();
    assert!(earlier.is_none(), "{earlier:?}");

    let request = |digest: Digest, start: u64, end: u64| {
        let wanted = json!({"artifact": digest, "start": start, "end": end}).to_string();
        let subject = aod_domain::subject::peer(node(1));
        let client = client.clone();
        async move { client.request(subject, wanted.into()).await.unwrap() }
    };
    assert!(request(unknown.digest, 0, 9).await.payload.is_empty());
    for (start, end) in [
        (0, 512 * 1024 + 1),
        (5, 5),
        (9, 5),
        (2 << 20, (2 << 20) + 1),
    ] {
        let piece = request(stored.digest, start, end).await;
        assert!(piece.payload.is_empty() && piece.headers.is_none());
    }
    let pieces = join_all((0..200).map(|_| request(stored.digest, 7, 512 * 1024))).await;
    let (served, told_to_wait): (Vec<_>, Vec<_>) = pieces
        .into_iter()
        .partition(|piece| piece.headers.is_none());
    assert!(!served.is_empty() && !told_to_wait.is_empty());
    assert!(
        served
            .iter()
            .all(|piece| piece.payload == content[7..512 * 1024])
    );
    assert_eq!(scene.meter.sent_bytes(), before);
}

fn users() -> String {
    let user = |(name, part): (&str, Part)| User {
        name: name.to_owned(),
        password: format!("secret-of-{name}"),
        part,
    };
    let all = [
        ("admin", Part::Admin),
        ("gateway", Part::Gateway),
        ("node", Part::Node),
        ("node-berlin", Part::Node),
    ];
    configuration(&all.map(user))
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_of_nodes_suffice_within_one_user() {
    let scene = Scene::start_with(users()).await;
    let gateway = config(&scene.nats, "gateway", Some("gateway"));
    let _gateway = Broker::connect(gateway).await.unwrap();
    let content = bytes(4 << 20, 5);
    let [one, other, berlin] = [(1, "node"), (2, "node"), (3, "node-berlin")];
    let open = |(number, user)| scene.ticket(number, Some(user)).open();
    let one = open(one).await;
    let stored = put(&*one, &content).await.unwrap();
    check_get(&*open(other).await, stored, &content).await;
    assert!(scene.meter.sent_bytes() < SLACK_BYTES);
    check_get(&*open(berlin).await, stored, &content).await;
    assert!(
        scene.meter.sent_bytes() >= stored.size_bytes,
        "it hears no other user"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn node_with_rights_of_an_earlier_version_reads_the_store() {
    let earlier = users().replace("\"peer.*\"", "\"other.*\"");
    assert_ne!(earlier, users(), "the right has another name");
    let scene = Scene::start_with(earlier).await;
    let gateway = config(&scene.nats, "gateway", Some("gateway"));
    let _gateway = Broker::connect(gateway).await.unwrap();
    let content = bytes(4 << 20, 6);
    let stored = scene.put(&content).await;
    let store = scene.ticket(1, Some("node")).open().await;
    check_get(&*store, stored, &content).await;
    assert!(scene.meter.sent_bytes() >= stored.size_bytes);
}
