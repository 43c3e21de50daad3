//! A tree of runs as a trace, at a receiver of OTLP that is not ours.

use std::sync::Arc;

use aod_domain::spending::Budget;
use aod_ports::clock::SystemClock;
use aod_testkit::TraceReceiver;
use aod_testkit::traces::Received;
use aod_traces::{Exporter, Receiver};
use serde_json::json;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::provider::{self, Reply};
use super::{ALL, KEY, Scene, chat};

/// Where the client is in a trace of its own.
const PLACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Traces of the scene are sent for as long as the guard lives, as a gateway sends them.
async fn export(scene: &Scene, receiver: &TraceReceiver) -> DropGuard {
    let broker = scene.cluster.broker("traces").await;
    let feed = broker.feed("traces").await.expect("a feed");
    let exporter = Exporter {
        feed: Arc::new(feed),
        log: Arc::new(broker.event_log()),
        clock: Arc::new(SystemClock),
        receiver: Receiver::new(&receiver.url(), "").expect("a receiver"),
    };
    let stop = CancellationToken::new();
    tokio::spawn(exporter.run(stop.clone()));
    stop.drop_guard()
}

/// The spans below `parent`, each on a line under its own parent's.
fn drawn(spans: &[Received], parent: &str, depth: usize, text: &mut String) {
    for span in spans.iter().filter(|span| span.parent == parent) {
        let line = format!("{}{} {}\n", "  ".repeat(depth), span.name, span.kind);
        text.push_str(&line);
        drawn(spans, &span.id, depth + 1, text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_three_levels_deep_is_one_trace_without_content() {
    let receiver = TraceReceiver::start();
    let scene = Scene::start(ALL, Budget::default()).await;
    let _exporting = export(&scene, &receiver).await;
    scene.provider.reply(Reply::sample(provider::samples()[0]));
    let input = json!({"children": 1, "levels": 1, "requests": [chat("tiny", None)]});
    let client = scene.client();
    let run = client.start_traced("spread", input, PLACE).await;
    client.result(&run).await;

    let spans = receiver.wait_for(10);
    let trace = &PLACE[3..35];
    assert!(spans.iter().all(|span| span.trace == trace), "{spans:#?}");
    let mut text = String::new();
    drawn(&spans, &PLACE[36..52], 0, &mut text);
    let expected = "\
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
    assert_eq!(text, expected, "{spans:#?}");
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
    // What the client asked, what the model was asked and answered, what the operator keeps.
    for content in ["hello", "requests", "finish_reason", KEY] {
        assert!(!receiver.text().contains(content), "{content}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_tree_has_a_trace_of_its_own_with_the_errors_in_it() {
    let receiver = TraceReceiver::start();
    let scene = Scene::start(ALL, Budget::default()).await;
    let _exporting = export(&scene, &receiver).await;
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
