//! Two tenants on one cluster from the outside: the real program, two gateways, a real broker.

use aod_tests::client::{Client, eventually};
use aod_tests::cluster::{Cluster, any_schema, register_for};
use aod_tests::programs::ask;
use serde_json::{Value, json};

use crate::flow::{Story, all_succeed, cluster, hold, operate};

/// Creates a token with `aod`, and returns it.
async fn token(cluster: &Cluster, name: &str, tenant: &str, role: &str) -> String {
    let words = ["tokens", "create", name, "--tenant", tenant, "--role", role];
    operate(cluster, &words).await.trim().to_owned()
}

/// `hold` for both tenants.
async fn two_tenants(story: &Story, slots: usize) -> Cluster {
    let cluster = cluster(story, slots).await;
    let broker = cluster.broker("registrar").await;
    for tenant in ["large", "small"] {
        let tenant = tenant.parse().expect("a name");
        let artifacts = cluster.artifacts.as_ref();
        register_for(&tenant, &broker, artifacts, "hold", &any_schema()).await;
    }
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn small_tenant_does_not_wait_for_a_large_one() {
    let story = Story::new();
    let cluster = two_tenants(&story, 2).await;
    operate(
        &cluster,
        &["rules", "set", "tenants", "--key", "tenant", "--fair"],
    )
    .await;
    let url = cluster.gateways[0].url();
    let large = Client::with_token(url, &token(&cluster, "ci", "large", "run").await);
    let small = Client::with_token(url, &token(&cluster, "ci", "small", "run").await);
    let (mut of_large, mut of_small) = (Vec::new(), Vec::new());
    for number in 1..=60 {
        of_large.push(hold(&large, number, "a", 0).await);
    }
    for number in 101..=104 {
        of_small.push(hold(&small, number, "a", 0).await);
    }
    story.release_all();
    all_succeed(&small, &of_small).await;
    all_succeed(&large, &of_large).await;
    let started = story.started();
    let last = started.iter().position(|number| *number == 104);
    assert!(
        last < Some(30),
        "the last of the small one was {last:?} of {started:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_reason_names_no_run_of_another_tenant() {
    let story = Story::new();
    let cluster = two_tenants(&story, 8).await;
    operate(&cluster, &["rules", "set", "one", "--concurrency", "1"]).await;
    let url = cluster.gateways[0].url();
    let large = Client::with_token(url, &token(&cluster, "ci", "large", "run").await);
    let small = Client::with_token(url, &token(&cluster, "ci", "small", "run").await);
    let first = hold(&large, 1, "a", 0).await;
    eventually("the first goes", async || !story.started().is_empty()).await;
    let second = hold(&small, 2, "a", 0).await;
    let expected = "rule one allows 1 concurrent run: 1 of other tenants; next in line";
    eventually("the second knows why it waits", async || {
        let (_, view) = small.get(&format!("/v1/runs/{second}")).await;
        view["waits_for"] == expected
    })
    .await;
    let (status, _) = small.get(&format!("/v1/runs/{first}")).await;
    assert_eq!(status, 404);
    story.release_all();
    all_succeed(&large, &[first]).await;
    all_succeed(&small, &[second]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn aod_creates_lists_and_revokes_tokens() {
    let story = Story::new();
    let mut cluster = two_tenants(&story, 2).await;
    cluster.add_gateway().await;
    let secret = token(&cluster, "ci", "small", "run").await;
    let listed = operate(&cluster, &["tokens", "ls"]).await;
    assert!(
        listed.contains("ci") && listed.contains("small"),
        "{listed}"
    );
    assert!(!listed.contains(&secret), "{listed}");
    let listed: Value =
        serde_json::from_str(&operate(&cluster, &["--format", "json", "tokens", "ls"]).await)
            .expect("JSON");
    let id = listed["items"][0]["id"].as_str().expect("an id").to_owned();

    // The token also works in `aod`, and at another gateway.
    let elsewhere = cluster.gateways[1].url().to_owned();
    let file = cluster.data("people").join("ci.token");
    std::fs::write(&file, &secret).expect("a file of a test");
    let file = file.to_str().expect("a plain path").to_owned();
    let other = Client::with_token(&elsewhere, &secret);
    eventually("the other gateway knows it", async || {
        other.get("/v1/runs").await.0 == 200
    })
    .await;
    ask(&elsewhere, 0, &["runs", "ls", "--token-file", &file]).await;
    let (status, problem) = other.get("/v1/nodes").await;
    assert_eq!((status, &problem["code"]), (403, &json!("not_permitted")));
    let refused = ask(&elsewhere, 2, &["nodes", "ls", "--token-file", &file]).await;
    let refused = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.contains("not_permitted"), "{refused}");

    operate(&cluster, &["tokens", "revoke", &id]).await;
    eventually("no gateway knows it", async || {
        other.get("/v1/runs").await.0 == 401
    })
    .await;
}
