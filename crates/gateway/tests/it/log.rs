//! Queries of the whole log: pages with a limit of events read, and streams.

use aod_domain::capsule::Handoffs;
use aod_domain::event::{CloudEvent, Header};
use aod_domain::id::RunId;
use aod_domain::run::{CancelRequested, Event};
use aod_domain::tenant::Tenant;
use aod_ports::clock::{Clock as _, SystemClock};
use aod_ports::event_log::{Append, Guard};
use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::harness::{Client, Cluster, any_schema};
use crate::node::ScriptedNode;
use crate::streams::read;

async fn select(gateway: &Client, query: &str) -> Value {
    gateway
        .get(&format!("/v1/events?{query}"))
        .await
        .expect(200)
}

/// The last words of the types on a page.
fn words(page: &Value) -> Vec<&str> {
    let items = page["items"].as_array().unwrap().iter();
    let kinds = items.map(|item| item["type"].as_str().unwrap());
    kinds
        .map(|kind| kind.split('.').rev().nth(1).unwrap())
        .collect()
}

fn id(view: &Value) -> String {
    view["id"].as_str().unwrap().to_owned()
}

async fn cluster() -> (Cluster, Client, ScriptedNode) {
    let cluster = Cluster::start().await;
    cluster.register_echo().await;
    cluster
        .register("other", &any_schema(), Handoffs::Listed(vec![]))
        .await;
    let gateway = cluster.gateway("one").await;
    let node = ScriptedNode::echo(&cluster).await;
    (cluster, gateway, node)
}

#[tokio::test]
async fn events_are_found_by_type_run_label_and_text() {
    let (_cluster, gateway, _node) = cluster().await;
    let echo = json!({"capsule": "echo", "arguments": {"text": "Penguins of Palmer"}, "labels": {"team": "birds"}});
    let echo = id(&gateway.run(&echo).await);
    let other = id(&gateway.run(&json!({"capsule": "other"})).await);
    let all = select(&gateway, "").await;
    let run = ["launched", "leased", "ended"];
    assert_eq!(words(&all), [&["registered"; 2][..], &run, &run].concat());
    assert_eq!((&all["next"], &all["as_of"]), (&json!(null), &json!(8)));

    let check = async |query: &str, expected: &[&str]| {
        let page = select(&gateway, query).await;
        assert_eq!(words(&page), expected, "{query}");
        page["looked_at"].as_u64().unwrap()
    };
    // Subjects contain these, so the broker delivers only matching events.
    assert_eq!(check("type=ended", &["ended"; 2]).await, 2);
    assert_eq!(check("type=dev.aod.run.leased.v1", &["leased"; 2]).await, 2);
    assert_eq!(check(&format!("run={echo}"), &run).await, 3);
    assert_eq!(
        check(&format!("tree={other}&type=ended"), &["ended"]).await,
        1
    );
    assert_eq!(
        check("tenant=default&type=registered", &["registered"; 2]).await,
        2
    );
    assert_eq!(check("tenant=nobody", &[]).await, 0);
    assert_eq!(
        check("type=registered&capsule=other", &["registered"]).await,
        1
    );
    // These require reading each event.
    let of_other = [&["registered"][..], &run].concat();
    assert_eq!(check("capsule=other", &of_other).await, 8);
    check("label=team=birds", &run).await;
    check("label=team=fish", &[]).await;
    check("text=penguins%20PALMER", &["launched", "ended"]).await;
    check("text=penguins&type=launched", &["launched"]).await;
    check(
        "type=launched&type=ended&capsule=echo",
        &["launched", "ended"],
    )
    .await;

    let launched = all["items"][5]["time"].as_str().unwrap();
    let since = select(&gateway, &format!("since={launched}")).await;
    assert_eq!(words(&since), run);
    assert_eq!(since["items"][0]["run"], json!(other));
    let until = select(&gateway, &format!("until={launched}&type=ended")).await;
    assert_eq!(until["items"][0]["run"], json!(echo));
    check("since=2100-01-01T00:00:00Z", &[]).await;
    check("until=2000-01-01T00:00:00Z", &[]).await;
}

#[tokio::test]
async fn page_continues_after_the_previous_page() {
    let (_cluster, gateway, _node) = cluster().await;
    for _ in 0..3 {
        gateway.run(&json!({"capsule": "echo"})).await;
    }
    let (mut after, mut found) = (0, Vec::new());
    for _ in 0..10 {
        let page = select(&gateway, &format!("limit=4&after={after}")).await;
        let items = page["items"].as_array().unwrap();
        found.extend(items.iter().map(|item| item["sequence"].as_u64().unwrap()));
        match page["next"].as_u64() {
            Some(next) => after = next,
            None => break,
        }
    }
    assert_eq!(found, (1..=11).collect::<Vec<u64>>());
}

/// Appends an event of a run without a launch.
async fn append_stray(cluster: &Cluster, time: Timestamp) {
    let run = RunId::root_of(SystemClock.fresh_uuid());
    let event = Event::CancelRequested(CancelRequested {
        requested_by: "tester".into(),
        reason: String::new(),
    });
    let subject = event.subject(&Tenant::default(), run);
    let header = Header {
        time,
        ..cluster.runs.header()
    };
    let event = CloudEvent::new(header, run.to_string(), None, event);
    let append = Append {
        subject,
        guard: Guard::None,
        id: event.id.to_string(),
        bytes: event.encode().unwrap().into(),
    };
    cluster.ports.log.append(append).await.unwrap();
}

#[tokio::test]
async fn query_since_a_time_skips_earlier_events() {
    let cluster = Cluster::start().await;
    let gateway = cluster.gateway("one").await;
    let begin: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    for hour in 0..64 {
        append_stray(&cluster, begin + SignedDuration::from_hours(hour)).await;
    }
    let check = async |query: &str, expected: std::ops::Range<u64>, looked_at: u64| {
        let page = select(&gateway, query).await;
        let items = page["items"].as_array().unwrap().iter();
        let found: Vec<u64> = items
            .map(|item| item["sequence"].as_u64().unwrap())
            .collect();
        assert_eq!(found, expected.collect::<Vec<_>>(), "{query}");
        assert_eq!(page["looked_at"], looked_at, "{query}");
    };
    // The event of hour n is the one after number n.
    check("since=2026-01-03T12:00:00Z", 61..65, 4).await;
    check(
        "since=2026-01-03T11:30:00Z&until=2026-01-03T13:00:00Z",
        61..62,
        3,
    )
    .await;
    // Clocks may differ by some minutes, so the gateway also reads the previous event.
    check("since=2026-01-03T12:03:00Z", 62..65, 4).await;
    check(
        "since=2025-01-01T00:00:00Z&until=2026-01-01T02:00:00Z",
        1..3,
        4,
    )
    .await;
    check("since=2026-02-01T00:00:00Z", 0..0, 0).await;
}

#[tokio::test]
async fn request_reads_a_limited_number_of_events() {
    let (cluster, gateway, _node) = cluster().await;
    let now = SystemClock.now();
    // A busy disk confirms so many in time, and not all at once.
    for _ in 0..67 {
        join_all((0..150).map(|_| append_stray(&cluster, now))).await;
    }
    let last = id(&gateway.run(&json!({"capsule": "echo"})).await);

    let page = select(&gateway, "text=nothing%20has%20this").await;
    assert_eq!(
        (words(&page).len(), &page["looked_at"]),
        (0, &json!(10_000))
    );
    let after = page["next"].as_u64().unwrap();
    let page = select(
        &gateway,
        &format!("text=nothing%20has%20this&after={after}"),
    )
    .await;
    assert_eq!(page["next"], json!(null));

    // Each launch is a read of its own.
    let page = select(&gateway, "capsule=echo&type=cancel_requested&type=ended").await;
    assert_eq!((words(&page).len(), &page["looked_at"]), (0, &json!(500)));
    assert!(page["next"].is_u64(), "{page}");

    // A query by type alone finds the event immediately.
    let page = select(&gateway, "type=ended").await;
    assert_eq!(
        (&page["items"][0]["run"], &page["looked_at"]),
        (&json!(last), &json!(1))
    );
}

#[tokio::test]
async fn invalid_event_queries_are_rejected_with_all_problems() {
    let (_cluster, gateway, _node) = cluster().await;
    let query =
        "type=lost&run=x&tenant=*&capsule=A%20B&label=a&since=noon&limit=x&after=x&colour=red";
    let problem = gateway
        .get(&format!("/v1/events?{query}"))
        .await
        .expect(400);
    let places: Vec<_> = problem["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| error["pointer"].as_str().unwrap())
        .collect();
    let mut expected = [
        "?type", "?run", "?tenant", "?capsule", "?label", "?since", "?limit", "?after", "?colour",
    ];
    expected.sort_unstable();
    let mut places = places;
    places.sort_unstable();
    assert_eq!(places, expected);
}

#[tokio::test]
async fn events_are_followed_without_gap_or_repeat() {
    let (_cluster, gateway, _node) = cluster().await;
    let first = id(&gateway.run(&json!({"capsule": "echo"})).await);
    gateway.run(&json!({"capsule": "other"})).await;
    let second = id(&gateway.run(&json!({"capsule": "echo"})).await);
    let path = "/v1/events?type=ended&capsule=echo&after=0";
    let told = read(&gateway, path, "", 2).await;
    let runs: Vec<_> = told.iter().map(|event| &event.data["run"]).collect();
    assert_eq!(runs, [&json!(first), &json!(second)]);
    assert_eq!(told[0].kind, "dev.aod.run.ended.v1");
    let again = read(&gateway, path, &told[0].id, 1).await;
    assert_eq!(again, told[1..]);

    // Without a start, the stream contains new events only.
    let follow = read(&gateway, "/v1/events?type=launched", "", 1);
    let start = async {
        // The stream has started as soon as it shows a launch; it does not contain earlier launches.
        loop {
            gateway.run(&json!({"capsule": "other"})).await;
        }
    };
    let told = tokio::select! {
        told = follow => told,
        () = start => Vec::new(),
    };
    let last: u64 = read(&gateway, path, "", 2).await[1].id.parse().unwrap();
    assert!(told[0].id.parse::<u64>().unwrap() > last, "{told:?}");
}
