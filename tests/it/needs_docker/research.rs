//! The product's own agent from start to end: its image, its MCP server, its callee, and a model whose provider fails
//! in every retryable way.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aod_node::ModelSettings;
use aod_tests::docker_cluster::DockerCluster;
use aod_tests::images::CapsuleDirectory;
use aod_tests::model_stub::ModelStub;
use serde_json::{Value, json};

use super::canary::files_with;

/// The operator's key, which no one else may see.
const KEY: &str = "canary-c41f2b9e-operators-key";

/// A model of each format, with the route that its provider's library uses.
const MODELS: [(&str, &str, &str); 3] = [
    ("openai/gpt-5.2", "/v1/responses", "/v1/responses"),
    ("anthropic/claude-opus-4-6", "/v1/messages", "/v1/messages"),
    (
        "google/gemini-2.5-flash",
        "/v1beta/models/gemini-2.5-flash:generateContent",
        "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse",
    ),
];

const REPORT: &str = "# The ferry at night\n\nIt runs \"until midnight\" [minutes:1]. A single ticket is 2.40 euros [timetable:1].\n";

/// The answers of the provider to one run, including the callee's calls and failures.
fn steps() -> Vec<Value> {
    let usage = json!({"input_tokens": 100, "output_tokens": 10});
    let answer = |title: Value| {
        json!({"output": {"report": "report.md", "title": title, "answer": "Until midnight, for 2.40 euros.",
            "open_questions": []}, "usage": usage})
    };
    let tool = |name: &str, args: Value| json!({"tool": name, "args": args, "usage": usage});
    vec![
        json!({"status": 503, "message": "overloaded"}),
        tool("documents__list_documents", json!({})),
        json!({"status": 429, "message": "slow down", "headers": {"Retry-After": "0"}}),
        tool("summarize", json!({"documents": ["minutes.pdf"]})),
        json!({"output": {"title": "Minutes", "summary": "The ferry runs.", "key_points": ["It runs."]}, "truncate": true}),
        json!({"output": {"title": "Minutes", "summary": "The ferry runs.", "key_points": ["It runs."]}, "usage": usage}),
        json!({"raw": "<html>bad gateway</html>"}),
        tool("documents__search", json!({"query": "ticket price"})),
        tool("write_report", json!({"markdown": REPORT})),
        answer(json!(7)),
        answer(json!("The ferry at night")),
    ]
}

/// Calls with complete answers, whose tokens are known.
const CALLS_WHOLE: u64 = 7;

fn files() -> Vec<(String, Vec<u8>)> {
    let directory =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../capsules/research/tests/cases/ferry/files");
    let entries = fs::read_dir(directory).expect("the sources");
    let read = |path: PathBuf| {
        let name = path.file_name().expect("a file").to_string_lossy();
        (
            name.into_owned(),
            fs::read(&path).expect("a file of the sources"),
        )
    };
    entries
        .map(|entry| read(entry.expect("an entry").path()))
        .collect()
}

async fn cluster(stub: &ModelStub) -> DockerCluster {
    let url = stub.url();
    let settings = format!(
        "providers:\n  openai: {{base_url: '{url}/v1'}}\n  anthropic: {{base_url: '{url}'}}\n  google: {{base_url: '{url}'}}\n"
    );
    DockerCluster::start_with_needs(&[], &aod_domain::capsule::Needs::default(), |cluster| {
        cluster.models = Arc::new(ModelSettings::parse(&settings).expect("settings"));
        cluster.keep_key_of_models(KEY);
    })
    .await
}

/// The common image: its manifest has every model, and the variable selects one.
const DOCKERFILE: &str = "\
FROM aod-capsule-test-research
RUN pip install --no-cache-dir \"aod-capsule[anthropic,google]\"
COPY models.yaml /capsule/agent.yaml
";

/// Builds the directory of `research` into an image with all of [`MODELS`], each whole and streamed.
fn with_all_models(base: &CapsuleDirectory) {
    let manifest = fs::read_to_string(base.path().join("agent.yaml")).expect("its manifest");
    let mut models = String::from("models:\n");
    for (reference, ..) in MODELS {
        let (provider, model) = reference.split_once('/').expect("both");
        for is_streamed in [false, true] {
            let name = name_of(provider, is_streamed);
            let model = format!(
                "  {name}: {{provider: {provider}, model: {model}, settings: {{stream: {is_streamed}}}}}\n"
            );
            models.push_str(&model);
        }
    }
    base.write("models.yaml", &format!("{manifest}{models}"));
    base.write("Dockerfile", DOCKERFILE);
}

fn name_of(provider: &str, is_streamed: bool) -> String {
    let way = if is_streamed { "in-pieces" } else { "whole" };
    format!("{provider}-{way}")
}

/// The registered capsule: the same image with one of the models.
fn with_model(base: &CapsuleDirectory, reference: &str, is_streamed: bool) {
    let models = fs::read_to_string(base.path().join("models.yaml")).expect("it is there");
    let (provider, _) = reference.split_once('/').expect("both");
    let chosen = name_of(provider, is_streamed);
    base.write(
        "agent.yaml",
        &format!("{models}env: {{AOD_MODEL: {chosen}}}\n"),
    );
}

async fn ask(cluster: &DockerCluster) -> String {
    let files = files();
    let documents: Vec<_> = files.iter().map(|(name, _)| name).collect();
    let arguments =
        json!({"question": "When does the ferry run, and for what?", "documents": documents});
    let files: Vec<(&str, &[u8])> = files
        .iter()
        .map(|(name, bytes)| (name.as_str(), bytes.as_slice()))
        .collect();
    let request =
        json!({"capsule": "research", "arguments": arguments, "budget": {"cost_usd": 50}});
    let (status, view) = cluster.post_run(&request, &files).await;
    assert_eq!(status, 202, "{view}");
    view["id"].as_str().expect("a run has an id").to_owned()
}

/// The events of the run itself that have a type.
async fn events_of(cluster: &DockerCluster, run: &str, kind: &str) -> Vec<Value> {
    let (_, page) = cluster.client.get(&format!("/v1/runs/{run}/events")).await;
    let items = page["items"].as_array().expect("events");
    let kind = format!("dev.aod.{kind}.v1");
    let of_kind = items.iter().filter(|event| event["type"] == *kind);
    of_kind.map(|event| event["data"].clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn research_works_with_every_provider_whole_and_streamed() {
    let variants = MODELS
        .iter()
        .flat_map(|model| [(model, false), (model, true)]);
    let script: Vec<_> = variants.clone().flat_map(|_| steps()).collect();
    let stub = ModelStub::start(&script);
    let [base, callee] = tokio::task::block_in_place(|| {
        ["research", "summarize"].map(CapsuleDirectory::of_product_here)
    });
    with_all_models(&base);
    let cluster = cluster(&stub).await;
    cluster.build_directory(&callee, "").await;
    for ((model, whole, in_pieces), is_streamed) in variants {
        with_model(&base, model, is_streamed);
        cluster.build_directory(&base, "").await;
        let asked = stub.requests().await.as_array().map_or(0, Vec::len);
        let run = ask(&cluster).await;
        let result = cluster.client.result(&run).await;
        assert_eq!(
            result["state"], "succeeded",
            "{model} {is_streamed}: {result:#}"
        );
        assert_eq!(result["output"]["title"], "The ferry at night");
        let report = cluster.file(&run, "report.md").await;
        assert!(report.contains("[minutes:1] minutes.pdf"), "{report}");

        let requests = stub.requests().await;
        let requests = &requests.as_array().expect("requests")[asked..];
        assert_eq!(requests.len(), steps().len(), "{model}");
        let path = if is_streamed { in_pieces } else { whole };
        assert_eq!(requests[0]["path"], *path, "{model}");

        // Each turn with its tokens and its cost, and each tool that the model requested.
        let settled = events_of(&cluster, &run, "spending.settled").await;
        assert_eq!(settled.len(), 9, "{settled:#?}");
        let told: Vec<_> = settled
            .iter()
            .filter(|call| call["tokens"]["input"] == 100)
            .collect();
        assert_eq!(told.len(), 6, "{settled:#?}");
        assert!(
            told.iter()
                .all(|call| call["cost_picodollars"].as_u64() > Some(0)),
            "{told:#?}"
        );
        let tools: Vec<_> = settled
            .iter()
            .filter_map(|call| call["tools"].as_array())
            .flatten()
            .collect();
        let expected = [
            "documents__list_documents",
            "summarize",
            "documents__search",
            "write_report",
            "answer",
            "answer",
        ];
        assert_eq!(tools, expected, "{settled:#?}");
        let (_, view) = cluster.client.get(&format!("/v1/runs/{run}")).await;
        let tree = &view["spending"]["tree"];
        assert_eq!(tree["model_calls"], steps().len(), "{view:#}");
        assert_eq!(tree["input_tokens"], 100 * CALLS_WHOLE, "{view:#}");
        assert_eq!(tree["output_tokens"], 10 * CALLS_WHOLE, "{view:#}");
        assert!(tree["cost_usd"].as_f64() > view["spending"]["own"]["cost_usd"].as_f64());
    }
    let kept = ["node-0", "gateway-0", "artifacts", "cache"].map(|name| cluster.cluster.data(name));
    assert_eq!(files_with(KEY, &kept), [""; 0]);
}
