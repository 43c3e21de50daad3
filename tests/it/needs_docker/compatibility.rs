//! Agent-on-demand capsules, built and run unmodified, and the routes of agent-on-demand clients.
//!
//! The last section of `docs/guide/what-happens-when.md` names the test for each of its defects.

use aod_gateway::Access;
use aod_tests::client::{Client, eventually};
use aod_tests::docker_cluster::DockerCluster;
use futures::future::join_all;
use serde_json::{Value, json};

/// Ten words, of which `digest` keeps five.
const PAGE: &str = "one two three four five six seven eight nine ten";

/// The capsules, beside `digest`: the five of agent-on-demand in form, and one that uses `/handoff`.
const OTHERS: [&str; 5] = [
    "workflow",
    "translator",
    "link-finder",
    "page-reader",
    "courier",
];

/// A cluster with the capsules, which may call all capsules, as in agent-on-demand; and a client without a token, of a
/// gateway that is open to agent-on-demand.
async fn agent_on_demand(slots: usize) -> (DockerCluster, Client) {
    let mut cluster = DockerCluster::start_with_slots(&[], slots).await;
    let build = |name: &'static str| {
        let (cluster, path) = (&cluster, format!("compatibility/{name}"));
        async move { cluster.build(&path, "&handoffs=open").await }
    };
    // First, because all of them install the same packages and share that image layer.
    build("digest").await;
    join_all(OTHERS.map(build)).await;
    cluster.cluster.access = Access::TokensOrAgentOnDemand(Vec::new());
    cluster.cluster.add_gateway().await;
    let client = cluster.cluster.client(1);
    (cluster, client)
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
        json!({"texts": ["one two three"], "written": "digest-2.txt", "summaries": ["one two three"]})
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

/// Sends the request of a client of agent-on-demand; returns the output.
async fn execute(client: &Client, capsule: &str, input: Value, files: Value) -> Value {
    let body = json!({"capsule": capsule, "input": input, "files": files});
    let (status, answer) = client.post_json("/execute", &body).await;
    assert_eq!(
        (status, &answer["success"]),
        (200, &json!(true)),
        "{answer:#}"
    );
    assert_eq!(answer["error"], Value::Null, "{answer:#}");
    assert!(answer["session_id"].is_string(), "{answer:#}");
    answer["output"].clone()
}

/// The input forms of a summariser: one or several texts, one or several files.
async fn check_summaries(cluster: &DockerCluster, client: &Client) {
    let short = "one two three four five";
    let page = cluster.upload(PAGE).await;
    let files = json!({"a.txt": page, "b.txt": page});
    for (input, files) in [
        (json!({"text": PAGE}), Value::Null),
        (json!({"file": "a.txt"}), files.clone()),
        (json!({"file": "/io/input/a.txt"}), files.clone()),
    ] {
        let output = execute(client, "digest", input, files).await;
        assert_eq!(output["summary"], short, "{output}");
    }
    for (input, files) in [
        (json!({"texts": [PAGE, PAGE]}), Value::Null),
        (json!({"files": ["a.txt", "b.txt"]}), files.clone()),
    ] {
        let output = execute(client, "digest", input, files).await;
        assert_eq!(output["summaries"], json!([short, short]), "{output}");
    }
}

/// Search, reading of pages, and rearrangement of fields.
async fn check_finders(client: &Client) {
    let query =
        json!({"query": "penguins", "required_extension": ".zip", "domain_hint": "example.net"});
    let output = execute(client, "link-finder", query, Value::Null).await;
    assert_eq!(output["url"], "https://mirror.example.net/penguins-1.0.zip");
    assert_eq!(output["metadata"]["status_code"], 200);
    let output = execute(
        client,
        "link-finder",
        json!({"query": "seals"}),
        Value::Null,
    )
    .await;
    assert_eq!(
        (&output["found"], &output["url"]),
        (&json!(false), &Value::Null)
    );
    let goal = json!({"research_goal": "penguins", "max_steps": 2});
    let output = execute(client, "page-reader", goal, Value::Null).await;
    assert_eq!(
        output["visited_urls"].as_array().map(Vec::len),
        Some(2),
        "{output}"
    );
    let given = json!({"source_output": output, "target_capsule": "digest", "mapping": {"text": "final_summary"}});
    let output = execute(client, "translator", given, Value::Null).await;
    assert_eq!(
        output,
        json!({"text": "Penguins are birds. Penguins eat fish."})
    );
}

/// A workflow with a translator before a step, as a text and as a file.
async fn check_translated_workflow(cluster: &DockerCluster, client: &Client) {
    let steps = json!({"name": "pages", "steps": [
        {"capsule": "page-reader", "translator": null, "translator_instructions": null},
        {"capsule": "digest", "translator": "translator", "translator_instructions": {
            "target_capsule": "digest", "mapping": {"text": "final_summary"}, "instructions": "the summary is the text",
        }},
    ]});
    let initial = json!({"research_goal": "penguins"});
    let file = cluster.upload(&steps.to_string()).await;
    for (input, files) in [
        (
            json!({"workflow": steps.to_string(), "initial_input": initial}),
            Value::Null,
        ),
        (
            json!({"workflow_file": "pages.json", "initial_input": initial}),
            json!({"pages.json": file}),
        ),
    ] {
        let output = execute(client, "workflow", input, files).await;
        assert_eq!(output["success"], true, "{output:#}");
        assert_eq!(
            output["final_output"]["summary"],
            "Penguins are birds. Penguins eat"
        );
        assert_eq!(output["steps_executed"], 2);
    }
}

/// The other routes of a client, and the forms of rejections.
async fn check_routes(client: &Client) {
    let (status, health) = client.get("/health").await;
    assert_eq!((status, &health["status"]), (200, &json!("healthy")));
    let (_, listed) = client.get("/capsules").await;
    for name in OTHERS {
        let place = &listed["capsules"][name];
        assert!(
            place["path"].is_string() && place["image"].is_string(),
            "{listed:#}"
        );
    }
    let (_, schema) = client.get("/capsules/translator/schema").await;
    assert_eq!(
        schema["input"]["required"],
        json!(["source_output", "target_capsule"])
    );
    assert_eq!(client.get("/capsules/nobody/schema").await.0, 404);
    for body in [
        json!({"capsule": "nobody", "input": {}}),
        json!({"capsule": "digest", "input": {}}),
        json!({"capsule": "digest", "input": {"file": "page.txt"}, "files": {"page.txt": "/etc/hostname"}}),
    ] {
        let (status, answer) = client.post_json("/execute", &body).await;
        assert_eq!((status, &answer["success"]), (200, &json!(false)), "{body}");
        assert!(
            answer["error"].is_string() && answer["output"].is_null(),
            "{answer:#}"
        );
    }
    assert_eq!(
        client.post_json("/execute", &json!({"input": {}})).await.0,
        422
    );
    assert_eq!(client.get("/v1/runs").await.0, 401);
}

/// A request rejected before its start is no run, and no ended run is shown as running.
async fn check_visualizer(client: &Client) {
    eventually("the end of all runs in the view", async || {
        let (_, state) = client.get("/visualizer/state").await;
        let nodes = state["nodes"].as_array().cloned().unwrap_or_default();
        !nodes.is_empty() && nodes.iter().all(|node| node["status"] != "running")
    })
    .await;
    let (_, state) = client.get("/visualizer/state").await;
    let edges = state["edges"].as_array().into_iter().flatten();
    let calls: Vec<_> = edges.map(|edge| &edge["caller_capsule"]).collect();
    assert!(calls.contains(&&json!("workflow")), "{state:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_on_demand_capsules_build_and_run_unmodified() {
    let (cluster, client) = agent_on_demand(2).await;
    tokio::join!(
        check_courier(&cluster),
        check_workflow(&cluster),
        check_paths(&cluster),
        check_summaries(&cluster, &client),
        check_finders(&client),
        check_translated_workflow(&cluster, &client),
        check_routes(&client),
    );
    check_visualizer(&client).await;

    // Nested workflows, more than slots: each level waits for the next, and checks `/health` before it calls.
    let inner = workflow(&["digest"], &json!({"text": PAGE}));
    let nested = (0..4).map(|_| work(&cluster, &["workflow"], &inner));
    for answer in join_all(nested).await {
        let texts = &answer["output"]["final_output"]["final_output"]["texts"];
        assert_eq!(*texts, json!(["one two three four five"]), "{answer:#}");
    }
}
