//! An engine whose answers are lost, late or missing.

use std::time::Duration;

use aod_docker::Config;
use aod_docker::config::Timeouts;
use aod_ports::container_runtime::{
    ContainerEvent, ContainerRuntime as _, ContainerSpec, ImageBuild, RuntimeError,
};
use futures::StreamExt as _;
use tempfile::TempDir;
use tokio::sync::mpsc;

use crate::engine_proxy::{EngineProxy, Fault, Rule};
use crate::fixture::{Fixture, PATIENCE, docker, finish, lease, wait_for_output};
use crate::images::context;

/// A cluster whose engine is behind a proxy, with time limits of two seconds.
async fn behind_proxy() -> (TempDir, EngineProxy, Fixture) {
    let directory = TempDir::new().expect("a directory");
    let proxy = EngineProxy::start(directory.path());
    let short = Duration::from_secs(3);
    let timeouts = Timeouts {
        query: short,
        create: short,
        start: short,
        ..Timeouts::default()
    };
    let endpoint = proxy.socket.clone();
    let fixture = Fixture::with(|config| Config {
        endpoint,
        timeouts,
        ..config
    })
    .await;
    (directory, proxy, fixture)
}

async fn ends_well(fixture: &Fixture, rules: &[Rule], proxy: &EngineProxy) {
    let image = fixture.script("echo done");
    proxy.set(rules);
    let outcome = finish(fixture.start(fixture.spec(&image)).await).await;
    assert_eq!(
        (outcome.stdout.as_str(), outcome.code()),
        ("done\n", Some(0)),
        "{rules:?}"
    );
    assert_eq!(outcome.verdict.exit_code, Some(0), "{rules:?}");
    assert_eq!(
        fixture.runtime.list().await.expect("a list").len(),
        1,
        "{rules:?}"
    );
}

fn always(contains: &'static str, fault: Fault) -> Rule {
    Rule {
        times: u32::MAX,
        ..once(contains, fault)
    }
}

fn once(contains: &'static str, fault: Fault) -> Rule {
    Rule {
        contains,
        fault,
        times: 1,
    }
}

#[tokio::test]
async fn container_with_lost_answer_to_creation_is_used() {
    for fault in [
        Fault::AnswerLost,
        Fault::AnswerHangs,
        Fault::Refused,
        Fault::Hangs,
    ] {
        let (_directory, proxy, fixture) = behind_proxy().await;
        ends_well(&fixture, &[once("/containers/create", fault)], &proxy).await;
    }
}

#[tokio::test]
async fn container_with_lost_answer_to_start_is_used() {
    for fault in [Fault::AnswerLost, Fault::AnswerHangs] {
        let (_directory, proxy, fixture) = behind_proxy().await;
        ends_well(&fixture, &[once("/start", fault)], &proxy).await;
    }
}

#[tokio::test]
async fn build_survives_that_other_clients_remove_images() {
    let (_directory, proxy, fixture) = behind_proxy().await;
    let context = context(&fixture, "FROM scratch\nADD root.tar /\nCMD busybox");
    let tag = format!("aod/{}:0", fixture.cluster);
    let build = async || {
        let (progress, _lines) = mpsc::channel(1);
        let image = ImageBuild::new(context.clone(), "demo", &tag, progress);
        fixture.runtime.build_image(image).await
    };
    // The first two were captured from Docker 20.10.
    let lost = [
        "unable to find image \"sha256:",
        "No such image: sha256:",
        "unknown parent image ID sha256:",
        "failed to get layer sha256:",
    ];
    let rules = lost.map(|beginning| once("/build", Fault::CacheLost(beginning)));
    proxy.set(&rules);
    build().await.expect("the fifth build succeeds");
    proxy.set(&[always("/build", Fault::CacheLost(lost[0]))]);
    assert!(
        matches!(build().await, Err(RuntimeError::BuildFailed { .. })),
        "it does not try forever"
    );
}

#[tokio::test]
async fn start_that_never_happened_fails_and_leaves_nothing() {
    let (_directory, proxy, fixture) = behind_proxy().await;
    let image = fixture.script("echo done");
    proxy.set(&[once("/start", Fault::Refused)]);
    let started = fixture
        .runtime
        .start(fixture.spec(&image))
        .await
        .map(|_| ());
    assert!(
        matches!(started, Err(RuntimeError::Engine { .. })),
        "{started:?}"
    );
    assert_eq!(fixture.runtime.list().await.expect("a list"), []);
}

#[tokio::test]
async fn end_is_detected_without_the_engines_wait() {
    for fault in [Fault::Refused, Fault::Hangs] {
        let (_directory, proxy, fixture) = behind_proxy().await;
        ends_well(
            &fixture,
            &[Rule {
                times: 100,
                ..once("/wait", fault)
            }],
            &proxy,
        )
        .await;
    }
}

/// An engine that is killed before it has stored that the container runs.
#[tokio::test]
async fn engine_that_forgot_start_does_not_block_node() {
    let (_directory, proxy, fixture) = behind_proxy().await;
    let image = fixture.script("echo done");
    // The facts of the image are already known.
    let first = finish(fixture.start(fixture.spec(&image)).await).await;
    assert_eq!(first.code(), Some(0));
    proxy.set(&[
        always("/json", Fault::Forgotten),
        always("/wait", Fault::Hangs),
    ]);
    let mut container = fixture.start(fixture.spec(&image)).await;
    let events = container.events().collect::<Vec<_>>().await;
    assert!(
        matches!(events.last(), Some(ContainerEvent::Exited { .. })),
        "{events:?}"
    );
    let gone = tokio::time::timeout(PATIENCE, container.gone())
        .await
        .expect("in time");
    assert!(gone.is_err(), "the end is unknown: {gone:?}");
    proxy.set(&[]);
    fixture
        .runtime
        .remove(container.name())
        .await
        .expect("it can be removed");
}

#[tokio::test]
async fn gate_kills_container_unknown_to_engine() {
    let (_directory, proxy, fixture) = behind_proxy().await;
    let script = "trap '' TERM; echo ready; while true; do busybox sleep 0.05; done";
    let spec = ContainerSpec {
        // Far longer than the test waits.
        lease_until: lease(10 * PATIENCE),
        ..fixture.spec(&fixture.script(script))
    };
    let mut container = fixture.start(spec).await;
    let events = wait_for_output(&mut container, "ready").await;
    proxy.set(&[always("/kill", Fault::Forgotten)]);
    container.kill().await.expect("the gate takes it");
    tokio::time::timeout(PATIENCE, events.collect::<Vec<_>>())
        .await
        .expect("nothing of it runs");
}

#[tokio::test]
async fn container_outlives_unavailable_engine() {
    let (_directory, proxy, fixture) = behind_proxy().await;
    let script = "trap 'exit 5' TERM; echo ready; while true; do busybox sleep 0.05; done";
    let mut container = fixture.start(fixture.spec(&fixture.script(script))).await;
    let _events = wait_for_output(&mut container, "ready").await;
    proxy.set(&[always("", Fault::Refused)]);
    assert!(fixture.runtime.describe().await.is_err());
    container
        .renew(60_000)
        .await
        .expect("the gate does not need the engine");
    container
        .terminate()
        .await
        .expect("the gate does not need the engine");
    proxy.set(&[]);
    let verdict = tokio::time::timeout(PATIENCE, container.gone())
        .await
        .expect("in time");
    assert_eq!(verdict.expect("the engine is back").exit_code, Some(5));
}

#[tokio::test]
async fn node_kills_through_gate_while_engine_is_unavailable() {
    let (_directory, proxy, fixture) = behind_proxy().await;
    let script = "trap '' TERM; echo ready; while true; do busybox sleep 0.05; done";
    let mut container = fixture.start(fixture.spec(&fixture.script(script))).await;
    let _events = wait_for_output(&mut container, "ready").await;
    proxy.set(&[always("/kill", Fault::Refused)]);
    container.kill().await.expect("the gate takes it");
    let verdict = tokio::time::timeout(PATIENCE, container.gone())
        .await
        .expect("in time");
    assert_eq!(verdict.expect("the engine says so").exit_code, Some(125));
}

#[tokio::test]
async fn hanging_engine_makes_node_not_ready() {
    let (_directory, proxy, fixture) = behind_proxy().await;
    let image = fixture.script("echo done");
    fixture.runtime.describe().await.expect("it answers");
    proxy.set(&[always("/containers/create", Fault::Hangs)]);
    let started = fixture
        .runtime
        .start(fixture.spec(&image))
        .await
        .map(|_| ());
    assert!(
        matches!(started, Err(RuntimeError::Engine { .. })),
        "{started:?}"
    );
    let described = fixture.runtime.describe().await;
    assert!(described.is_err(), "three calls timed out: {described:?}");
    assert_eq!(
        docker(&[
            "ps",
            "-aq",
            "--filter",
            &format!("label=dev.aod.cluster={}", fixture.cluster)
        ]),
        ""
    );
}

#[tokio::test]
async fn removal_with_lost_answer_is_done() {
    let (_directory, proxy, fixture) = behind_proxy().await;
    let container = fixture
        .start(fixture.spec(&fixture.script("busybox sleep 600")))
        .await;
    proxy.set(&[once("DELETE", Fault::AnswerLost)]);
    fixture
        .runtime
        .remove(container.name())
        .await
        .expect("it is gone");
    assert_eq!(fixture.runtime.list().await.expect("a list"), []);
}

#[tokio::test]
async fn removal_continues_when_engine_returns() {
    let (_directory, proxy, fixture) = behind_proxy().await;
    let container = fixture
        .start(fixture.spec(&fixture.script("busybox sleep 600")))
        .await;
    proxy.set(&[always("", Fault::Refused)]);
    let removed = fixture.runtime.remove(container.name()).await;
    assert!(
        matches!(removed, Err(RuntimeError::Engine { .. })),
        "{removed:?}"
    );
    proxy.set(&[]);
    fixture
        .runtime
        .remove(container.name())
        .await
        .expect("an unavailable engine is not a failed removal");
    assert_eq!(fixture.runtime.list().await.expect("a list"), []);
}
