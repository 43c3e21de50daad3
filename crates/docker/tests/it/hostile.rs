//! Capsules that refuse to end, and nodes that have ended.

use std::time::{Duration, Instant};

use aod_ports::container_runtime::{ContainerEvent, ContainerRuntime as _};
use futures::StreamExt as _;

use crate::fixture::{Fixture, PATIENCE, docker, eventually, finish, lease, wait_for_output};

#[tokio::test]
async fn fork_bomb_stays_in_its_container() {
    let fixture = Fixture::new().await;
    let script = "bomb() { bomb | bomb & }; bomb 2>/dev/null; busybox sleep 1; echo over";
    let spec = fixture.spec(&fixture.script(script));
    let container = fixture.start(spec).await;
    let outcome = finish(container).await;
    // The script's last steps may fail; the test requires that all its processes have ended.
    assert!(
        matches!(outcome.last, Some(ContainerEvent::Exited { .. })),
        "{:?}",
        outcome.last
    );
    assert!(fixture.runtime.describe().await.is_ok());
}

#[tokio::test]
async fn memory_bomb_is_reported_as_out_of_memory() {
    let fixture = Fixture::new().await;
    let outcome = fixture.run_script("exec busybox tail /dev/zero").await;
    assert_eq!(outcome.signal(), Some(9), "{outcome:?}");
    assert!(outcome.verdict.out_of_memory, "{outcome:?}");
}

#[tokio::test]
async fn sigterm_reaches_capsule_and_sigkill_ends_capsule_that_ignores_it() {
    let fixture = Fixture::new().await;
    let script = "trap 'echo asked' TERM; echo ready; while true; do busybox sleep 0.05; done";
    let mut container = fixture.start(fixture.spec(&fixture.script(script))).await;
    let mut events = wait_for_output(&mut container, "ready").await;
    container.terminate().await.expect("the gate takes it");
    // The capsule answers the signal and continues: the test can only wait for its output.
    let mut said = String::new();
    while !said.contains("asked") {
        match events.next().await {
            Some(ContainerEvent::Wrote { bytes, .. }) => {
                said.push_str(&String::from_utf8_lossy(&bytes));
            }
            other => panic!("{other:?}"),
        }
    }
    container.kill().await.expect("the engine takes it");
    let verdict = tokio::time::timeout(PATIENCE, container.gone())
        .await
        .expect("in time");
    assert_eq!(verdict.expect("the engine says so").exit_code, Some(137));
    container.kill().await.expect("killing the dead is fine");

    let script =
        "trap 'echo bye; exit 143' TERM; echo ready; while true; do busybox sleep 0.05; done";
    let mut container = fixture.start(fixture.spec(&fixture.script(script))).await;
    let _events = wait_for_output(&mut container, "ready").await;
    container.terminate().await.expect("the gate takes it");
    let verdict = tokio::time::timeout(PATIENCE, container.gone())
        .await
        .expect("in time");
    assert_eq!(verdict.expect("the engine says so").exit_code, Some(143));
}

#[tokio::test]
async fn endless_output_waits_for_its_reader() {
    let fixture = Fixture::new().await;
    let script = "exec busybox yes 0123456789abcde";
    let mut container = fixture.start(fixture.spec(&fixture.script(script))).await;
    let mut events = container.events();
    let mut size_bytes = 0;
    while size_bytes < 1 << 20 {
        match events.next().await {
            Some(ContainerEvent::Wrote { bytes, .. }) => size_bytes += bytes.len(),
            Some(ContainerEvent::Started) => (),
            other => panic!("{other:?}"),
        }
    }
    // No output is read now; renewals and the order to end still arrive.
    container.renew(60_000).await.expect("the gate listens");
    container.terminate().await.expect("the gate listens");
    let mut last = None;
    while let Some(event) = events.next().await {
        if let ContainerEvent::Wrote { bytes, .. } = &event {
            size_bytes += bytes.len();
        }
        last = Some(event);
    }
    assert_eq!(size_bytes % 16, 0, "no byte is lost");
    match last {
        Some(ContainerEvent::Exited { exit, .. }) => assert_eq!(exit.signal, Some(15)),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn expired_lease_ends_container() {
    let fixture = Fixture::new().await;
    let mut spec = fixture.spec(&fixture.script("while true; do busybox sleep 1; done"));
    spec.lease_until = lease(Duration::from_millis(1_500));
    let begin = Instant::now();
    let container = fixture.start(spec).await;
    container.renew(3_000).await.expect("the gate listens");
    let outcome = finish(container).await;
    assert_eq!(outcome.verdict.exit_code, Some(125), "{outcome:?}");
    assert_eq!(outcome.last, Some(ContainerEvent::Lost));
    assert!(
        begin.elapsed() >= Duration::from_secs(3),
        "the renewal counted: {:?}",
        begin.elapsed()
    );
}

#[tokio::test]
async fn containers_end_after_their_node_ended() {
    let fixture = Fixture::new().await;
    let mut spec =
        fixture.spec(&fixture.script("trap '' TERM; while true; do busybox sleep 1; done"));
    spec.lease_until = lease(Duration::from_secs(2));
    drop(fixture.start(spec).await);
    eventually("nothing runs any more", async || {
        let observed = fixture.runtime.list().await.expect("a list");
        observed.len() == 1 && observed.iter().all(|container| !container.is_running)
    })
    .await;
}

#[tokio::test]
async fn killed_gate_is_reported_as_lost() {
    let fixture = Fixture::new().await;
    let mut container = fixture
        .start(fixture.spec(&fixture.script("echo ready; busybox sleep 600")))
        .await;
    let mut events = container.events();
    assert_eq!(events.next().await, Some(ContainerEvent::Started));
    docker(&["kill", container.name()]);
    let mut last = None;
    while let Some(event) = events.next().await {
        last = Some(event);
    }
    assert_eq!(last, Some(ContainerEvent::Lost));
    let verdict = tokio::time::timeout(PATIENCE, container.gone())
        .await
        .expect("in time");
    let verdict = verdict.expect("the engine says so");
    assert_eq!(
        (verdict.exit_code, verdict.out_of_memory),
        (Some(137), false)
    );
}
