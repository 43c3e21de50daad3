//! A node without containers, as a separate process: everything of a run except Docker.
//!
//! `aod-bench simulated-node NATS STORE DATA POOL SLOTS`

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use aod_domain::admission::Capacity;
use aod_domain::placement::{Devices, Equipment};
use aod_jetstream::{Broker, Config as BrokerConfig, LEASE_SECONDS_DEFAULT};
use aod_node::{
    Config, DISK_LOOK_DEFAULT, GRACE_DEFAULT, HttpGateways, IMAGE_KEEP_DEFAULT,
    LOG_BYTES_MAX_DEFAULT, Node, Ports, load_or_draw,
};
use aod_ports::clock::SystemClock;
use aod_ports::log_stream::Output;
use aod_tests::simulated::{Command, Inside, handoff, runtime};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use crate::site::open_store;

/// The argument that makes this program a node.
pub(crate) const SUBCOMMAND: &str = "simulated-node";

/// Returns its arguments.
pub(crate) const ECHO: &str = "echo";

/// The same as [`ECHO`] under another name.
pub(crate) const LIMITED: &str = "limited";

/// The same as [`ECHO`] after a tenth of a second.
pub(crate) const PAUSE: &str = "pause";

/// Calls [`ECHO`] with its arguments, waits, and returns its answer.
pub(crate) const CALLER: &str = "caller";

/// Creates a file of `megabytes`, hands it to [`RECEIVER`], and returns the time of the call.
pub(crate) const SENDER: &str = "sender";

/// Receives a file and checks its size.
pub(crate) const RECEIVER: &str = "receiver";

/// Writes [`TALKER_LINES`] lines, and returns its arguments.
pub(crate) const TALKER: &str = "talker";

/// A million.
pub(crate) const TALKER_LINES: usize = TALKER_BLOCK_LINES * 1_000;

/// Lines that [`TALKER`] writes together.
const TALKER_BLOCK_LINES: usize = 1_000;

/// The name of the sent file.
const FILE_NAME: &str = "file.bin";

/// Concurrent containers, far above the measured number.
const CONTAINERS_MAX: usize = 1_024;

/// Runs until a signal.
pub(crate) async fn run(arguments: &[String]) -> anyhow::Result<()> {
    let [nats, store, data, pool, slots] = arguments else {
        bail!("{SUBCOMMAND} NATS STORE DATA POOL SLOTS");
    };
    tracing_subscriber::fmt()
        .with_env_filter("info,async_nats=warn")
        .with_writer(std::io::stderr)
        .init();
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    let node = start(nats, store, Path::new(data), pool, slots.parse()?).await?;
    tokio::select! {
        _ = interrupt.recv() => (),
        _ = terminate.recv() => (),
    }
    node.stop().await;
    Ok(())
}

async fn start(
    nats: &str,
    store: &str,
    data: &Path,
    pool: &str,
    slots: usize,
) -> anyhow::Result<Node> {
    let broker = Broker::connect(BrokerConfig::new(nats, format!("node-{pool}"))).await?;
    let artifacts = open_store(store, &broker, data.join("cache")).await?;
    let config = Config {
        data: data.to_owned(),
        pools: vec![pool.parse()?],
        capacity: Capacity {
            slots,
            containers_max: CONTAINERS_MAX,
            memory_bytes: 16 << 30,
        },
        equipment: Equipment::default(),
        devices: Devices::default(),
        lease: Duration::from_secs(LEASE_SECONDS_DEFAULT.into()),
        grace: GRACE_DEFAULT,
        log_bytes_max: LOG_BYTES_MAX_DEFAULT,
        disk_look: DISK_LOOK_DEFAULT,
        disk_reserve: None,
        image_keep: IMAGE_KEEP_DEFAULT,
        models: Arc::default(),
        keep_model_contents: false,
        egress: Vec::new(),
        host: pool.to_owned(),
    };
    let programs = [
        (ECHO, echo()),
        (LIMITED, echo()),
        (PAUSE, pause()),
        (CALLER, caller()),
        (SENDER, sender()),
        (RECEIVER, receiver()),
        (TALKER, talker()),
    ];
    let ports = Ports {
        queue: Arc::new(broker.work_queue()),
        logs: Arc::new(broker.log_stream()),
        presence: Arc::new(broker.presence()),
        images: Arc::clone(&artifacts),
        artifacts,
        runtime: runtime(programs.map(|(name, program)| (name.to_owned(), program))),
        gateways: Arc::new(HttpGateways::new().map_err(anyhow::Error::from_boxed)?),
        secrets: Arc::new(aod_ports::secrets::NoSecrets),
        network: Arc::new(aod_node::SystemNetwork),
    };
    let id = load_or_draw(data, &SystemClock)?;
    Ok(Node::start(
        config,
        id,
        ports,
        Arc::new(broker.event_log()),
        Arc::new(SystemClock),
    )
    .await?)
}

/// The schema of [`ECHO`] and [`CALLER`], with enough properties to check.
pub(crate) fn words_schema() -> Value {
    let words = json!({
        "type": "object",
        "properties": {
            "title": {"type": "string", "maxLength": 100},
            "count": {"type": "integer", "minimum": 0},
            "words": {"type": "array", "items": {"type": "string"}, "maxItems": 100},
        },
        "required": ["title", "count", "words"],
        "additionalProperties": false,
    });
    json!({"input": words.clone(), "output": words})
}

/// Valid arguments for [`words_schema`]; each `count` is another call.
pub(crate) fn words(count: usize) -> Value {
    json!({"title": "a call of the benchmark", "count": count, "words": ["one", "two", "three", "four"]})
}

/// The schema of [`SENDER`].
pub(crate) fn sender_schema() -> Value {
    json!({
        "input": {"type": "object", "properties": {"megabytes": {"type": "integer"}, "seed": {"type": "integer"},
            "pool": {"type": "string"}}, "required": ["megabytes", "seed", "pool"]},
        "output": {"type": "object", "properties": {"seconds": {"type": "number"}}, "required": ["seconds"]},
    })
}

/// The schema of [`RECEIVER`].
pub(crate) fn receiver_schema() -> Value {
    json!({
        "input": {"type": "object", "properties": {"file": {"type": "string", "format": "file"}}, "required": ["file"]},
        "output": {"type": "object", "properties": {"bytes": {"type": "integer"}}, "required": ["bytes"]},
    })
}

fn echo() -> Command {
    Arc::new(|inside: Inside| {
        Box::pin(async move {
            inside.write_output(&inside.input());
            0
        })
    })
}

fn talker() -> Command {
    let line = "a line of the benchmark, forty-eight bytes long\n";
    let block: &'static str = Box::leak(line.repeat(TALKER_BLOCK_LINES).into_boxed_str());
    Arc::new(move |inside: Inside| {
        Box::pin(async move {
            for _ in 0..TALKER_LINES / TALKER_BLOCK_LINES {
                inside.say(Output::Stdout, block);
            }
            inside.write_output(&inside.input());
            0
        })
    })
}

fn pause() -> Command {
    Arc::new(|inside: Inside| {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            inside.write_output(&inside.input());
            0
        })
    })
}

fn caller() -> Command {
    Arc::new(|inside: Inside| {
        Box::pin(async move {
            let (status, answer) =
                handoff(&inside, &json!({"target": ECHO, "args": inside.input()})).await;
            if status != 200 || answer["success"] != true {
                return 1;
            }
            inside.write_output(&answer["output"]);
            0
        })
    })
}

fn sender() -> Command {
    Arc::new(|inside: Inside| {
        Box::pin(async move {
            let input = inside.input();
            let (megabytes, seed) = (input["megabytes"].as_u64(), input["seed"].as_u64());
            let path = inside.spec.io.outgoing.join(FILE_NAME);
            let written = write_file(path, megabytes.unwrap_or(1), seed.unwrap_or_default()).await;
            if written.is_err() {
                return 2;
            }
            let began = Instant::now();
            let body =
                json!({"target": RECEIVER, "args": {"file": FILE_NAME}, "pool": input["pool"]});
            let (status, answer) = handoff(&inside, &body).await;
            let seconds = began.elapsed().as_secs_f64();
            let bytes = megabytes.map(|megabytes| megabytes << 20);
            if status != 200 || answer["output"]["bytes"].as_u64() != bytes {
                inside.write_output(
                    &json!({"error": {"code": "handoff", "message": answer.to_string()}}),
                );
                return 1;
            }
            inside.write_output(&json!({"seconds": seconds}));
            0
        })
    })
}

fn receiver() -> Command {
    Arc::new(|inside: Inside| {
        Box::pin(async move {
            let found = tokio::fs::metadata(inside.spec.io.inputs.join(FILE_NAME)).await;
            let Ok(found) = found else { return 1 };
            inside.write_output(&json!({"bytes": found.len()}));
            0
        })
    })
}

/// Writes a file that no store has seen: bytes of a generator with this `seed`.
pub(crate) async fn write_file(path: PathBuf, megabytes: u64, seed: u64) -> std::io::Result<()> {
    let write = move || {
        let mut file = std::fs::File::create(path)?;
        let mut state = seed.wrapping_mul(2) + 1;
        let mut block = Vec::with_capacity(1 << 20);
        for _ in 0..megabytes {
            block.clear();
            while block.len() < 1 << 20 {
                // Xorshift: random enough to differ and not to compress.
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                block.extend_from_slice(&state.to_le_bytes());
            }
            file.write_all(&block)?;
        }
        // The sync of the source must not be measured.
        file.sync_all()
    };
    tokio::task::spawn_blocking(write)
        .await
        .expect("writing does not panic")
}
