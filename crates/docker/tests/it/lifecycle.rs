//! Names, labels, replacement, lists and removal.

use aod_docker::Config;
use aod_domain::node::ObservedContainer;
use aod_ports::container_runtime::{
    ContainerEvent, ContainerRuntime as _, ContainerSpec, RuntimeError,
};
use futures::StreamExt as _;

use crate::fixture::{Fixture, PATIENCE, docker, eventually, finish};

const FOR_EVER: &str = "while true; do busybox sleep 1; done";

#[tokio::test]
async fn containers_are_listed_by_label_and_removed_permanently() {
    let fixture = Fixture::new().await;
    let stranger = Fixture::new().await;
    let spec = fixture.spec(&fixture.script(FOR_EVER));
    let run = spec.run;
    let container = fixture.start(spec).await;
    let name = container.name().to_owned();
    let expected = ObservedContainer {
        name: name.clone(),
        run,
        attempt: 1,
        is_running: true,
    };
    // The gate connects before the engine records that the container runs.
    eventually("it runs", async || {
        fixture.runtime.list().await.expect("a list") == [expected.clone()]
    })
    .await;
    assert_eq!(stranger.runtime.list().await.expect("a list"), []);

    let refused = stranger.runtime.remove(&name).await;
    assert!(
        matches!(refused, Err(RuntimeError::Engine { .. })),
        "{refused:?}"
    );
    fixture.runtime.remove(&name).await.expect("it is removed");
    assert_eq!(fixture.runtime.list().await.expect("a list"), []);
    fixture
        .runtime
        .remove(&name)
        .await
        .expect("nothing to remove is fine");
    tokio::time::timeout(PATIENCE, container.gone())
        .await
        .expect("in time")
        .expect("it is gone");
}

#[tokio::test]
async fn second_launch_of_attempt_replaces_its_container() {
    let fixture = Fixture::new().await;
    let spec = fixture.spec(&fixture.script(FOR_EVER));
    let mut first = fixture.start(spec.clone()).await;
    let second = fixture.start(spec).await;
    assert_eq!(first.name(), second.name());
    let events: Vec<_> = first.events().collect().await;
    assert_eq!(events.last(), Some(&ContainerEvent::Lost));
    eventually("one runs", async || {
        let observed = fixture.runtime.list().await.expect("a list");
        matches!(&observed[..], [one] if one.is_running)
    })
    .await;
    second.kill().await.expect("the engine takes it");
    assert_eq!(finish(second).await.verdict.exit_code, Some(137));
}

#[tokio::test]
async fn two_nodes_of_one_cluster_run_the_same_attempt_side_by_side() {
    let fixture = Fixture::new().await;
    // The node of a restored copy: the same cluster and the same runs.
    let copy = Fixture::with(|config| Config {
        cluster: fixture.cluster.clone(),
        ..config
    })
    .await;
    let spec = fixture.spec(&fixture.script(FOR_EVER));
    let of_copy = ContainerSpec {
        io: copy.spec(&spec.image).io,
        ..spec.clone()
    };
    let live = fixture.start(spec).await;
    let other = copy.start(of_copy).await;
    assert_ne!(live.name(), other.name());
    let names =
        |list: Vec<ObservedContainer>| list.into_iter().map(|one| one.name).collect::<Vec<_>>();
    let listed = fixture.runtime.list().await.expect("a list");
    assert_eq!(names(listed), [live.name()]);
    let listed = copy.runtime.list().await.expect("a list");
    assert_eq!(names(listed), [other.name()]);
    let refused = copy.runtime.remove(live.name()).await;
    assert!(
        matches!(refused, Err(RuntimeError::Engine { .. })),
        "{refused:?}"
    );
    let removed = copy.runtime.remove(other.name()).await;
    removed.expect("it is removed");
    eventually("the live container still runs", async || {
        let listed = fixture.runtime.list().await.expect("a list");
        matches!(&listed[..], [one] if one.is_running)
    })
    .await;
    live.kill().await.expect("the engine takes it");
}

#[tokio::test]
async fn foreign_container_with_our_name_stays() {
    let fixture = Fixture::new().await;
    let image = fixture.script("true");
    let spec = fixture.spec(&image);
    let probe = fixture.start(spec.clone()).await;
    let name = probe.name().to_owned();
    finish(probe).await;
    fixture.runtime.remove(&name).await.expect("it is removed");
    docker(&[
        "create",
        "--name",
        &name,
        "--label",
        "dev.aod.cluster=another",
        &image,
    ]);
    let started = fixture.runtime.start(spec).await.map(|_| ());
    let is_left = !docker(&["ps", "-aq", "--filter", &format!("name={name}")]).is_empty();
    docker(&["rm", "-fv", &name]);
    assert!(
        matches!(started, Err(RuntimeError::Engine { .. })),
        "{started:?}"
    );
    assert!(is_left, "the other cluster's container is still there");
}

#[tokio::test]
async fn twenty_concurrent_containers_all_run() {
    let fixture = Fixture::new().await;
    let image = fixture.script("echo $AOD_ATTEMPT");
    let runs = (0..20).map(|_| async {
        let container = fixture.start(fixture.spec(&image)).await;
        let name = container.name().to_owned();
        let outcome = finish(container).await;
        fixture.runtime.remove(&name).await.expect("it is removed");
        outcome.stdout
    });
    let said = futures::future::join_all(runs).await;
    assert!(said.iter().all(|text| text == "1\n"), "{said:?}");
    assert_eq!(fixture.runtime.list().await.expect("a list"), []);
}
