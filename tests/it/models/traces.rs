//! A tree of runs as a trace at a third-party OTLP receiver: sent by a gateway in the test, and by `aod gateway`.

use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use aod_domain::spending::Budget;
use aod_ports::clock::SystemClock;
use aod_ports::presence::{Member, Presence as _};
use aod_testkit::TraceReceiver;
use aod_testkit::traces::Received;
use aod_tests::client::{Client, eventually};
use aod_tests::cluster::LEASE_SECONDS;
use aod_tests::programs::aod;
use aod_traces::{CONTENT_BYTES_MAX, Exporter, Receiver};
use serde_json::json;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::provider::{self, Reply};
use super::{ALL, Cluster, KEY, Scene, chat};

/// The client's own span, as `traceparent`.
const PLACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// A tree of three runs with a model call.
const TREE: &str = "\
run spread SPAN_KIND_INTERNAL
  attempt 1 SPAN_KIND_INTERNAL
    execute_tool spread SPAN_KIND_CLIENT
      run spread SPAN_KIND_INTERNAL
        attempt 1 SPAN_KIND_INTERNAL
          execute_tool ask SPAN_KIND_CLIENT
            invoke_agent ask SPAN_KIND_INTERNAL
              attempt 1 SPAN_KIND_INTERNAL
                chat tiny SPAN_KIND_CLIENT
                execute_tool search SPAN_KIND_INTERNAL
";

/// Its contents: the client's argument, the model's request and answer.
const SAID: [&str; 3] = ["hello", "requests", "finish_reason"];

/// Exports traces of the scene as a gateway does, while the guard lives.
async fn export(scene: &Scene, receiver: &TraceReceiver, is_told: bool) -> DropGuard {
    let broker = scene.cluster.broker("traces").await;
    let feed = broker.feed("traces").await.expect("a feed");
    let exporter = Exporter {
        feed: Arc::new(feed),
        log: Arc::new(broker.event_log()),
        clock: Arc::new(SystemClock),
        receiver: Receiver::new(&receiver.url(), "").expect("a receiver"),
        contents: is_told.then(|| Arc::clone(&scene.cluster.artifacts)),
    };
    let stop = CancellationToken::new();
    tokio::spawn(exporter.run(stop.clone()));
    stop.drop_guard()
}

/// Draws the spans below `parent`, each on a line below its own parent.
fn drawn(spans: &[Received], parent: &str, depth: usize, text: &mut String) {
    for span in spans.iter().filter(|span| span.parent == parent) {
        let line = format!("{}{} {}\n", "  ".repeat(depth), span.name, span.kind);
        text.push_str(&line);
        drawn(spans, &span.id, depth + 1, text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tree_of_three_levels_is_one_trace_without_contents() {
    let receiver = TraceReceiver::start();
    let scene = Scene::start(ALL, Budget::default()).await;
    let _exporting = export(&scene, &receiver, false).await;
    run_tree(&scene, &scene.client()).await;

    let spans = receiver.wait_for(10);
    let trace = &PLACE[3..35];
    assert!(spans.iter().all(|span| span.trace == trace), "{spans:#?}");
    let mut text = String::new();
    drawn(&spans, &PLACE[36..52], 0, &mut text);
    assert_eq!(text, TREE, "{spans:#?}");
    assert_eq!(spans.len(), 10);

    let asked = spans
        .iter()
        .find(|span| span.name == "chat tiny")
        .expect("it is there");
    for attribute in [
        "gen_ai.provider.name: Str(openai)",
        "gen_ai.usage.input_tokens: Int(100)",
        "gen_ai.usage.output_tokens: Int(20)",
    ] {
        assert!(
            asked.rest.contains(attribute),
            "{attribute} in {}",
            asked.rest
        );
    }
    for content in SAID.iter().chain(&[KEY]) {
        assert!(!receiver.text().contains(content), "{content}");
    }
}

/// Runs the tree of [`TREE`] in the trace of the client.
async fn run_tree(scene: &Scene, client: &Client) {
    scene.provider.reply(Reply::sample(provider::samples()[0]));
    let input = json!({"children": 1, "levels": 1, "requests": [chat("tiny", None)]});
    let run = client.start_traced("spread", input, PLACE).await;
    client.result(&run).await;
}

/// The only span of this name.
fn named<'a>(spans: &'a [Received], name: &str) -> &'a Received {
    let mut named = spans.iter().filter(|span| span.name == name);
    let first = named
        .next()
        .unwrap_or_else(|| panic!("{name} in {spans:#?}"));
    assert!(named.next().is_none(), "{name} is there once");
    first
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_contents_are_exported_when_enabled() {
    let receiver = TraceReceiver::start();
    let keep = |cluster: &mut Cluster| cluster.keep_model_contents = true;
    let scene = Scene::start_with(ALL, Budget::default(), 1, keep).await;
    let _exporting = export(&scene, &receiver, true).await;
    run_tree(&scene, &scene.client()).await;

    let spans = receiver.wait_for(10);
    let mut text = String::new();
    drawn(&spans, &PLACE[36..52], 0, &mut text);
    assert_eq!(text, TREE, "{spans:#?}");
    let asked = r#"Str({"messages":[{"content":"hello","role":"user"}],"model":"tiny"})"#;
    let arguments = r#"Str({"children":1,"levels":0,"number":0,"requests":[{"#;
    for (span, attribute) in [
        ("chat tiny", format!("aod.model.request: {asked}")),
        ("chat tiny", "aod.model.answer: Str({".to_owned()),
        (
            "execute_tool ask",
            format!("gen_ai.tool.call.arguments: {arguments}"),
        ),
        (
            "execute_tool ask",
            r#"gen_ai.tool.call.result: Str({"answers":[{"#.to_owned(),
        ),
        (
            "invoke_agent ask",
            format!("aod.run.arguments: {arguments}"),
        ),
        (
            "invoke_agent ask",
            r#"aod.run.output: Str({"answers":[{"#.to_owned(),
        ),
    ] {
        let rest = &named(&spans, span).rest;
        assert!(rest.contains(&attribute), "{attribute} in {rest}");
    }
    for content in SAID {
        assert!(receiver.text().contains(content), "{content}");
    }
    assert!(!receiver.text().contains(KEY));
}

/// Contents that are artifacts and longer than an attribute.
#[tokio::test(flavor = "multi_thread")]
async fn long_contents_are_cut_with_a_note() {
    let receiver = TraceReceiver::start();
    let keep = |cluster: &mut Cluster| cluster.keep_model_contents = true;
    let scene = Scene::start_with(ALL, Budget::default(), 1, keep).await;
    let _exporting = export(&scene, &receiver, true).await;
    let mut request = chat("tiny", None);
    // A single text may be as long as an attribute.
    let message = json!({"role": "user", "content": "so ".repeat(CONTENT_BYTES_MAX / 4)});
    request["body"]["messages"] = json!([message, message, message]);
    scene.provider.reply(Reply::status(400, "no"));
    scene.ask(json!([request]), json!({})).await;
    let spans = receiver.wait_for(3);
    for (span, attribute) in [
        ("chat tiny", "aod.model.request: "),
        ("invoke_agent ask", "aod.run.arguments: "),
    ] {
        let mut lines = named(&spans, span).rest.lines();
        let told = lines.find_map(|line| line.split_once(attribute));
        let (_, told) = told.unwrap_or_else(|| panic!("{attribute} in {spans:#?}"));
        assert!(told.ends_with(" more bytes were cut])"), "{told}");
        assert!(told.len() < CONTENT_BYTES_MAX + 100, "{}", told.len());
    }
}

/// A process that ends with the value.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts `aod gateway` with these flags for a scene without a gateway; returns it with its client.
async fn gateway(scene: &Scene, flags: &[&str]) -> (Process, Client) {
    let data = scene.cluster.data("gateway");
    let store = format!("file://{}", scene.cluster.data("artifacts").display());
    let log = File::create(data.join("log")).expect("a test directory");
    let mut command = Command::new(aod());
    command
        .args(["gateway", "--listen", "127.0.0.1:0", "--store", &store])
        .args(["--nats", &scene.cluster.nats.url()])
        .args(["--lease-seconds", &LEASE_SECONDS.to_string()])
        .arg("--data")
        .arg(&data)
        .args(flags)
        .stdout(Stdio::null())
        .stderr(log);
    let process = Process(command.spawn().expect("aod starts"));
    let presence = scene.cluster.broker("looking").await.presence();
    let url = async || {
        let members = presence.members().await.unwrap_or_default();
        members.into_iter().find_map(|member| match member {
            Member::Gateway(gateway) => Some(gateway.url),
            Member::Node(_) => None,
        })
    };
    eventually("the gateway", async || url().await.is_some()).await;
    let url = url().await.unwrap_or_else(|| {
        let log = fs::read_to_string(data.join("log"));
        panic!("the gateway ended: {log:?}")
    });
    (process, Client::new(&url))
}

#[tokio::test(flavor = "multi_thread")]
async fn gateway_sends_traces_to_the_receiver_of_its_flags() {
    for flags in [&[][..], &["--otlp-contents"]] {
        let receiver = TraceReceiver::start();
        let keep = |cluster: &mut Cluster| cluster.keep_model_contents = true;
        let scene = Scene::start_with(ALL, Budget::default(), 0, keep).await;
        let url = receiver.url();
        let flags = [&["--otlp", &url], flags].concat();
        let (_gateway, client) = gateway(&scene, &flags).await;
        run_tree(&scene, &client).await;

        let spans = receiver.wait_for(10);
        let mut text = String::new();
        drawn(&spans, &PLACE[36..52], 0, &mut text);
        assert_eq!(text, TREE, "{spans:#?}");
        let is_told = flags.contains(&"--otlp-contents");
        for content in SAID {
            assert_eq!(
                receiver.text().contains(content),
                is_told,
                "{flags:?} {content}"
            );
        }
        assert!(!receiver.text().contains(KEY));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_tree_has_its_own_trace_with_its_errors() {
    let receiver = TraceReceiver::start();
    let scene = Scene::start(ALL, Budget::default()).await;
    let _exporting = export(&scene, &receiver, false).await;
    scene.provider.reply(Reply::status(503, "busy"));
    for _ in 0..2 {
        scene.ask(json!([chat("tiny", None)]), json!({})).await;
    }
    let spans = receiver.wait_for(6);
    let of_root = |span: &&Received| span.name == "invoke_agent ask" && span.parent.is_empty();
    let roots: Vec<_> = spans.iter().filter(of_root).collect();
    assert_eq!(roots.len(), 2, "{spans:#?}");
    assert_ne!(roots[0].trace, roots[1].trace);
    let failed = spans
        .iter()
        .filter(|span| span.rest.contains("error.type: Str(503)"));
    assert_eq!(failed.count(), 2, "{spans:#?}");
}
