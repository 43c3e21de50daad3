//! Agent-on-demand capsules, built and run unmodified, and the routes of agent-on-demand clients.
//!
//! The last section of `docs/guide/what-happens-when.md` names the test for each of its defects.

use aod_tests::client::eventually;
use aod_tests::docker_cluster::DockerCluster;
use futures::future::join_all;
use serde_json::{Value, json};

/// Ten words, of which `digest` keeps five.
const PAGE: &str = "one two three four five six seven eight nine ten";

/// A cluster with the three capsules, which may call all capsules, as in agent-on-demand.
async fn agent_on_demand(slots: usize) -> DockerCluster {
    let cluster = DockerCluster::start_with_slots(&[], slots).await;
    // Sequentially, because they install the same packages and share that image layer.
    for name in ["digest", "workflow", "courier"] {
        cluster
            .build(&format!("compatibility/{name}"), "&handoffs=open")
            .await;
    }
    cluster
}

/// Runs `courier` with a page of text: returns its run and result.
async fn carry(cluster: &DockerCluster, session: Value) -> (String, Value) {
    let arguments = json!({"file": "page.txt", "target": "digest", "session_id": session});
    let request = json!({"capsule": "courier", "arguments": arguments});
    let files: [(&str, &[u8]); 1] = [("page.txt", PAGE.as_bytes())];
    let (status, view) = cluster.post_run(&request, &files).await;
    assert_eq!(status, 202, "{view}");
    let run = view["id"].as_str().expect("a run has an id").to_owned();
    let result = cluster.client.result(&run).await;
    (run, result)
}

/// Runs `workflow` as agent-on-demand clients do, with one step for each of `capsules`.
async fn work(cluster: &DockerCluster, capsules: &[&str], initial: &Value) -> Value {
    let input = workflow(capsules, initial);
    let (status, answer) = cluster
        .post("/execute", &json!({"capsule": "workflow", "input": input}))
        .await;
    assert_eq!(status, 200, "{answer}");
    answer
}

fn workflow(capsules: &[&str], initial: &Value) -> Value {
    let steps: Vec<_> = capsules
        .iter()
        .map(|name| json!({"capsule": name}))
        .collect();
    json!({"workflow": json!({"steps": steps}).to_string(), "initial_input": initial})
}

/// The files of a callee are in `incoming` before the caller gets its answer, with either body, and can be downloaded
/// after all runs have ended.
async fn check_courier(cluster: &DockerCluster) {
    let ((plain, without), (_, with)) = tokio::join!(
        carry(cluster, Value::Null),
        carry(cluster, json!("1b4e28ba-2fa1-11d2-883f-0016d3cca427")),
    );
    for result in [&without, &with] {
        let output = &result["output"];
        assert_eq!(output["returned"], json!(["digest.txt"]), "{result:#}");
        assert_eq!(
            output["wanted"],
            json!(["file", "files", "text", "texts", "words"])
        );
        let answer = &output["answer"];
        assert_eq!(answer["success"], true, "{result:#}");
        assert_eq!(
            answer["output"]["texts"],
            json!(["one two three four five"])
        );
    }
    assert!(without["output"]["answer"]["run_id"].is_string());
    assert!(with["output"]["answer"]["session_id"].is_string());
    let text = cluster.file(&plain, "digest.txt").await;
    assert_eq!(text, "one two three four five\n");
}

/// Steps whose callees create files with equal names, a failing step, and the files of a root.
async fn check_workflow(cluster: &DockerCluster) {
    let answer = work(
        cluster,
        &["digest", "digest"],
        &json!({"text": PAGE, "words": 3}),
    )
    .await;
    assert_eq!(answer["output"]["success"], true, "{answer:#}");
    // Both created a digest.txt; the second got another name at their caller.
    assert_eq!(
        answer["output"]["final_output"],
        json!({"texts": ["one two three"], "written": "digest-2.txt"})
    );

    let answer = work(cluster, &["digest", "nobody"], &json!({"text": PAGE})).await;
    assert_eq!(answer["success"], true, "{answer:#}");
    let output = &answer["output"];
    assert_eq!(output["success"], false);
    assert_eq!(output["steps_executed"], 2);
    let error = output["error"].as_str().unwrap_or_default();
    assert!(error.contains("nobody"), "{error}");

    let body = json!({"capsule": "digest", "input": {"texts": [PAGE]}});
    let (_, answer) = cluster.post("/execute", &body).await;
    assert_eq!(answer["files"], json!(["digest.txt"]), "{answer:#}");
    let run = answer["session_id"].as_str().expect("a run has an id");
    let text = cluster.file(run, "digest.txt").await;
    assert_eq!(text, "one two three four five\n");
}

/// No name reaches a file of the host, from inside or from outside.
async fn check_paths(cluster: &DockerCluster) {
    let names = ["/etc/hostname", "../../../etc/hostname", "/io/input/../x"];
    for name in names {
        let answer = work(cluster, &["digest"], &json!({"file": name})).await;
        assert_eq!(answer["output"]["success"], false, "{name}: {answer:#}");
        let body = json!({"capsule": "digest", "input": {"file": name}});
        let (status, answer) = cluster.post("/execute", &body).await;
        assert_eq!((status, &answer["success"]), (200, &json!(false)), "{name}");
        assert_eq!(answer["session_id"], Value::Null, "{name}: {answer:#}");
    }
}

/// A request rejected before its start is no run, and no ended run is shown as running.
async fn check_visualizer(cluster: &DockerCluster) {
    eventually("the end of all runs in the view", async || {
        let (_, state) = cluster.client.get("/visualizer/state").await;
        let nodes = state["nodes"].as_array().cloned().unwrap_or_default();
        !nodes.is_empty() && nodes.iter().all(|node| node["status"] != "running")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_on_demand_capsules_build_and_run_unmodified() {
    let cluster = agent_on_demand(2).await;
    tokio::join!(
        check_courier(&cluster),
        check_workflow(&cluster),
        check_paths(&cluster),
    );
    check_visualizer(&cluster).await;

    // Nested workflows, more than slots: each level waits for the next, and checks `/health` before it calls.
    let inner = workflow(&["digest"], &json!({"text": PAGE}));
    let nested = (0..4).map(|_| work(&cluster, &["workflow"], &inner));
    for answer in join_all(nested).await {
        let texts = &answer["output"]["final_output"]["final_output"]["texts"];
        assert_eq!(*texts, json!(["one two three four five"]), "{answer:#}");
    }
}
