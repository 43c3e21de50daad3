//! Capsules that request models through their channel, with a provider that is a server of the test.

mod contents;
mod provider;
mod traces;

use std::fs;
use std::sync::Arc;

use aod_domain::admission::Capacity;
use aod_domain::capsule::ModelGrant;
use aod_domain::spending::{Budget, Cost};
use aod_node::ModelSettings;
use aod_tests::client::Client;
use aod_tests::cluster::Cluster;
use aod_tests::simulated::{Command, Inside, handoff, post, runtime};
use futures::future::join_all;
use serde_json::{Value, json};

use self::provider::{Provider, Reply};

/// The operator's key, which no one else may see.
const KEY: &str = "canary-5b1f0e7c-operators-key";

/// Maximum characters of an answer that `ask` returns: its output has a limit.
const TOLD_MAX: usize = 50_000;

/// A capsule that sends the requests in its input to models, `parallel` at a time, and returns status, source, and
/// text or error code. `adds` makes a request longer.
fn ask() -> Command {
    Arc::new(|inside: Inside| {
        Box::pin(async move {
            let input = inside.input();
            let requests = input["requests"].as_array().expect("a list");
            let asked = requests.iter().map(async |request| {
                let path = request["path"].as_str().expect("a path");
                let mut body = request["body"].clone();
                let added = request["adds"].as_u64().unwrap_or_default();
                if let Ok(added @ 1..) = usize::try_from(added) {
                    body["user"] = "x".repeat(added).into();
                }
                let (status, headers, body) = post(&inside, path, &body).await;
                let source = headers.get("aod-source").map(|value| value.to_str().expect("a word"));
                let retry_after = headers.contains_key("retry-after");
                let text = body.map(|body| String::from_utf8_lossy(&body).into_owned());
                let text = text.unwrap_or_else(|_| "broke off".into());
                let code = serde_json::from_str::<Value>(&text).ok();
                let code = code.map(|body| body["code"].clone());
                let text: String = text.chars().take(TOLD_MAX).collect();
                json!({"status": status, "source": source, "retry_after": retry_after, "code": code, "text": text})
            });
            let answers = join_all(asked).await;
            inside.write_output(&json!({"answers": answers}));
            0
        })
    })
}

/// A capsule that calls `ask` as often as its input says, concurrently; below `levels` levels of its own.
fn spread() -> Command {
    Arc::new(|inside: Inside| {
        Box::pin(async move {
            let input = inside.input();
            let children = input["children"].as_u64().expect("a number");
            let levels = input["levels"].as_u64().unwrap_or_default();
            let target = if levels == 0 { "ask" } else { "spread" };
            let calls = (0..children).map(async |number| {
                let args = json!({"number": number, "children": children, "requests": input["requests"],
                    "levels": levels.saturating_sub(1)});
                let (status, answer) = handoff(&inside, &json!({"target": target, "args": args})).await;
                assert_eq!(status, 200, "{answer}");
                answer["output"]["answers"][0]["status"].clone()
            });
            let statuses = join_all(calls).await;
            inside.write_output(&json!({"statuses": statuses}));
            0
        })
    })
}

struct Scene {
    cluster: Cluster,
    provider: Provider,
}

impl Scene {
    /// A cluster whose models are all served by one server; `names` are granted to `ask`.
    async fn start(names: &[&str], budget: Budget) -> Self {
        Self::start_with(names, budget, 1, |_| ()).await
    }

    /// As [`Self::start`] with `gateways` gateways; `set` changes the cluster before it has a node.
    async fn start_with(
        names: &[&str],
        budget: Budget,
        gateways: usize,
        set: impl FnOnce(&mut Cluster),
    ) -> Self {
        let provider = Provider::start().await;
        let mut cluster = Cluster::start(gateways).await;
        set(&mut cluster);
        let (url, breaking) = (provider.url(), provider::breaking().await);
        let settings = format!(
            "providers:\n  openai: {{base_url: '{url}/v1'}}\n  anthropic: {{base_url: '{url}'}}\n  google: {{base_url: '{url}'}}\n  \
             nobody: {{format: openai, base_url: 'http://127.0.0.1:1/v1'}}\n  broken: {{format: openai, base_url: '{breaking}/v1'}}\n  \
             keyless: {{format: openai, base_url: '{url}/v1', key: ABSENT_KEY}}\n\
             prices:\n  openai/tiny: {{input: 1, output: 10}}\n  broken/tiny: {{input: 1, output: 10}}\n"
        );
        cluster.models = Arc::new(ModelSettings::parse(&settings).expect("settings"));
        cluster.keep_key_of_models(KEY);
        let capacity = Capacity {
            slots: 80,
            containers_max: 200,
            memory_bytes: 16 << 30,
        };
        let capsules = [("ask".to_owned(), ask()), ("spread".to_owned(), spread())];
        cluster
            .add_node(&["any"], capacity, runtime(capsules))
            .await;
        let grant = ModelGrant {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            budget,
        };
        cluster.register_with_models("ask", grant).await;
        cluster
            .register("spread", &aod_tests::cluster::any_schema())
            .await;
        Self { cluster, provider }
    }

    fn client(&self) -> Client {
        self.cluster.client(0)
    }

    /// The answers of `ask` to `requests`, and the run.
    async fn ask(&self, requests: Value, options: Value) -> (Vec<Value>, String) {
        let client = self.client();
        let run = client
            .start_with("ask", json!({"requests": requests}), options)
            .await;
        let result = client.result(&run).await;
        assert_eq!(result["state"], "succeeded", "{result}");
        (
            result["output"]["answers"]
                .as_array()
                .expect("answers")
                .clone(),
            run,
        )
    }

    /// The settlements of the run's calls.
    async fn settled(&self, run: &str) -> Vec<Value> {
        let (_, events) = self.client().get(&format!("/v1/runs/{run}/events")).await;
        let items = events["items"].as_array().expect("events").iter();
        items
            .filter(|event| event["type"] == "dev.aod.spending.settled.v1")
            .map(|event| event["data"].clone())
            .collect()
    }

    async fn view(&self, run: &str) -> Value {
        self.client().get(&format!("/v1/runs/{run}")).await.1
    }

    /// The places in the log and the data directories that contain `needle`.
    fn holds(&self, needle: &str) -> Vec<String> {
        let mut found = Vec::new();
        for name in ["node-0", "gateway-0", "artifacts", "cache"] {
            search(&self.cluster.data(name), needle, &mut found);
        }
        found
    }
}

fn search(directory: &std::path::Path, needle: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            search(&path, needle, found);
        } else if let Ok(bytes) = fs::read(&path)
            && bytes
                .windows(needle.len())
                .any(|window| window == needle.as_bytes())
        {
            found.push(path.display().to_string());
        }
    }
}

fn chat(model: &str, max_tokens: Option<u64>) -> Value {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "hello"}]});
    let mut request = json!({"path": "/llm/openai/v1/chat/completions", "body": body});
    if let Some(max_tokens) = max_tokens {
        request["body"]["max_tokens"] = max_tokens.into();
    }
    request
}

fn streamed(mut request: Value) -> Value {
    request["body"]["stream"] = true.into();
    request
}

fn messages() -> Value {
    json!({"path": "/llm/anthropic/v1/messages",
        "body": {"model": "claude-opus-4-6", "max_tokens": 100, "messages": []}})
}

fn generate(method: &str) -> Value {
    json!({"path": format!("/llm/google/v1beta/models/gemini-2.5-flash:{method}?alt=sse"), "body": {"contents": []}})
}

fn tokens(tokens_max: u64) -> Budget {
    Budget {
        tokens_max: Some(tokens_max),
        cost_max: None,
    }
}

const ALL: &[&str] = &[
    "openai/tiny",
    "anthropic/claude-opus-4-6",
    "google/gemini-2.5-flash",
    "keyless/tiny",
    "nobody/tiny",
    "broken/tiny",
];

#[tokio::test(flavor = "multi_thread")]
async fn requests_in_three_formats_pass_unchanged_and_are_metered() {
    let scene = Scene::start(ALL, Budget::default()).await;
    let responses =
        json!({"path": "/llm/openai/v1/responses", "body": {"model": "tiny", "input": "hello"}});
    let requests = [
        chat("tiny", None),
        streamed(chat("tiny", None)),
        responses.clone(),
        streamed(responses),
        messages(),
        streamed(messages()),
        generate("generateContent"),
        generate("streamGenerateContent"),
    ];
    for (request, sent) in requests.iter().zip(provider::samples()) {
        scene.provider.reply(Reply::sample(sent));
        let (answers, run) = scene.ask(json!([request]), json!({})).await;
        assert_eq!(answers[0]["status"], 200, "{answers:?}");
        assert_eq!(answers[0]["source"], "provider");
        assert_eq!(answers[0]["text"], sent.body, "{request}");
        let spending = scene.view(&run).await["spending"].clone();
        let own = &spending["own"];
        let counted = [
            "model_calls",
            "input_tokens",
            "cached_input_tokens",
            "output_tokens",
            "tool_calls",
        ];
        let counted = counted.map(|name| own[name].as_u64().unwrap());
        assert_eq!(counted, [1, 100, 40, 20, 1], "{request}: {own}");
        assert_eq!(own["unpriced_calls"], 0, "{request}");
        assert_eq!(own, &spending["tree"]);
        let result = scene.client().result(&run).await;
        assert_eq!(result["usage"]["models"]["tool_calls"], 1, "{result}");
        let settled = scene.settled(&run).await;
        assert_eq!(settled.len(), 1, "{settled:?}");
        assert_eq!(settled[0]["tokens"]["input"], 100, "{settled:?}");
        assert_eq!(settled[0]["tools"], json!(["search"]), "{settled:?}");
        let seen = scene.provider.take_requests();
        assert_eq!(seen.len(), 1);
        assert!(seen[0].contains(KEY), "the key of the operator is sent");
        assert!(!seen[0].contains("Bearer aod"), "{}", seen[0]);
    }
    assert_eq!(scene.holds(KEY), [""; 0], "the key is nowhere");
}

#[tokio::test(flavor = "multi_thread")]
async fn priced_call_has_a_cost() {
    let scene = Scene::start(ALL, Budget::default()).await;
    scene.provider.reply(Reply::sample(provider::samples()[0]));
    let (_, run) = scene.ask(json!([chat("tiny", None)]), json!({})).await;
    // 60 uncached and 40 cached tokens at one dollar, 20 at ten dollars a million.
    let cost = scene.view(&run).await["spending"]["own"]["cost_usd"].as_f64();
    assert!((cost.unwrap() - 0.0003).abs() < 1e-12, "{cost:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn provider_error_is_passed_on_without_the_key() {
    let scene = Scene::start(ALL, tokens(100_000)).await;
    for status in [400, 401, 429, 503] {
        scene
            .provider
            .reply(Reply::status(status, &format!("bad key {KEY}")));
        let (answers, run) = scene.ask(json!([chat("tiny", None)]), json!({})).await;
        assert_eq!(
            (&answers[0]["status"], &answers[0]["source"]),
            (&json!(status), &json!("provider"))
        );
        assert_eq!(answers[0]["text"], "bad key ***");
        assert_eq!(answers[0]["retry_after"], status == 429);
        let spent = scene.view(&run).await["spending"]["tree"].clone();
        assert_eq!(
            (&spent["model_calls"], &spent["unreported_tokens"]),
            (&json!(1), &json!(0)),
            "{spent}"
        );
    }
    assert_eq!(scene.holds(KEY), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_answer_settles_its_reservation() {
    let scene = Scene::start(ALL, tokens(10_000)).await;
    let mut request = streamed(chat("tiny", Some(500)));
    request["path"] = "/llm/broken/v1/chat/completions".into();
    let (answers, run) = scene.ask(json!([request]), json!({})).await;
    assert_eq!(answers[0]["text"], "broke off");
    let spent = scene.view(&run).await["spending"]["own"].clone();
    assert!(
        spent["unreported_tokens"].as_u64().unwrap() > 500,
        "{spent}"
    );
    assert!(spent["cost_usd"].as_f64().unwrap() > 0.005, "{spent}");
}

#[tokio::test(flavor = "multi_thread")]
async fn model_request_outside_grant_is_rejected_and_recorded() {
    let scene = Scene::start(ALL, Budget::default()).await;
    let other = |path: &str| json!({"path": path, "body": {"model": "tiny"}});
    let requests = json!([
        chat("huge", None),
        other("/llm/other/v1/chat/completions"),
        other("/llm/openai/v1/embeddings"),
        other("/llm/keyless/v1/chat/completions"),
        other("/llm/nobody/v1/chat/completions"),
        {"path": "/llm/openai/v1/chat/completions", "body": []},
    ]);
    let (answers, run) = scene.ask(requests, json!({})).await;
    let codes: Vec<_> = answers
        .iter()
        .map(|answer| answer["code"].as_str().unwrap())
        .collect();
    let expected = [
        "model_not_allowed",
        "unknown_provider",
        "unknown_route",
        "model_key_missing",
        "model_unreachable",
        "request_malformed",
    ];
    assert_eq!(codes, expected, "{answers:?}");
    assert!(answers.iter().all(|answer| answer["source"] == "platform"));
    assert!(scene.provider.take_requests().is_empty());
    let (_, events) = scene.client().get(&format!("/v1/runs/{run}/events")).await;
    let reported = events.to_string();
    for code in [
        "model_not_allowed",
        "unknown_provider",
        "model_key_missing",
        "model_unreachable",
    ] {
        assert!(reported.contains(code), "{reported}");
    }
}

/// Features of providers that a capsule may not use, and ambiguous requests.
#[tokio::test(flavor = "multi_thread")]
async fn model_request_that_evades_limits_is_rejected() {
    let scene = Scene::start(ALL, tokens(100_000)).await;
    let chat_with = |fields: Value| {
        let mut request = chat("tiny", None);
        let body = request["body"].as_object_mut().expect("an object");
        body.extend(fields.as_object().expect("an object").clone());
        request
    };
    let at = |path: &str, body: Value| json!({"path": path, "body": body});
    let gemini = "/llm/google/v1beta/models/gemini-2.5-flash:generateContent";
    let forbidden = [
        chat_with(json!({"models": ["openai/huge"]})),
        chat_with(json!({"web_search_options": {}})),
        chat_with(
            json!({"tools": [{"type": "function"}, {"type": "mcp", "server_url": "https://x"}]}),
        ),
        at(
            "/llm/openai/v1/responses",
            json!({"model": "tiny", "previous_response_id": "r"}),
        ),
        at(
            "/llm/openai/v1/responses",
            json!({"model": "tiny", "tools": [{"type": "web_search"}]}),
        ),
        at(
            "/llm/anthropic/v1/messages",
            json!({"model": "claude-opus-4-6", "mcp_servers": []}),
        ),
        at(
            "/llm/anthropic/v1/messages",
            json!({"model": "claude-opus-4-6", "tools": [{"type": "web_fetch_20250910"}]}),
        ),
        at(gemini, json!({"tools": [{"googleSearch": {}}]})),
        at(gemini, json!({"generation_config": {}})),
    ];
    let malformed = [
        chat_with(json!({"n": 8.5})),
        chat_with(json!({"max_tokens": "many"})),
        at(gemini, json!({"generationConfig": "none"})),
        at(gemini, json!({"generationConfig": {"candidateCount": -1}})),
        at("/llm/openai/v1/chat/completions", json!([])),
    ];
    let requests = json!(forbidden.iter().chain(&malformed).collect::<Vec<_>>());
    let (answers, _) = scene.ask(requests, json!({})).await;
    let codes: Vec<_> = answers
        .iter()
        .map(|answer| answer["code"].as_str().unwrap_or("none"))
        .collect();
    assert_eq!(
        codes[..forbidden.len()],
        ["model_not_allowed"; 9],
        "{answers:#?}"
    );
    assert_eq!(
        codes[forbidden.len()..],
        ["request_malformed"; 5],
        "{answers:#?}"
    );
    assert!(scene.provider.take_requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_without_usage_settles_its_reservation() {
    let scene = Scene::start(ALL, tokens(100_000)).await;
    let mut request = generate("generateContent");
    request["path"] = format!(
        "{}&fields=candidates&key=x",
        request["path"].as_str().unwrap()
    )
    .into();
    scene.provider.reply(Reply::whole(
        r#"{"candidates": [{"finishReason": "STOP"}]}"#,
    ));
    let (answers, run) = scene.ask(json!([request]), json!({})).await;
    assert_eq!(answers[0]["status"], 200, "{answers:?}");
    let seen = scene.provider.take_requests();
    assert!(seen[0].contains("generateContent?alt=sse "), "{}", seen[0]);
    let spent = scene.view(&run).await["spending"]["own"].clone();
    assert!(
        spent["unreported_tokens"].as_u64().unwrap() > 8_192,
        "{spent}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn tool_request_is_recorded_when_the_answer_breaks_off() {
    let scene = Scene::start(ALL, Budget::default()).await;
    let text = provider::samples()[1].body;
    let beginning = text.split_inclusive("\n\n").next().expect("an event");
    scene.provider.reply(Reply::events(beginning));
    let (_, run) = scene
        .ask(json!([streamed(chat("tiny", None))]), json!({}))
        .await;
    let spent = scene.view(&run).await["spending"]["own"].clone();
    assert_eq!(spent["tool_calls"], 1, "{spent}");
}

#[tokio::test(flavor = "multi_thread")]
async fn run_without_models_is_rejected_by_the_model_proxy() {
    let scene = Scene::start(&[], Budget::default()).await;
    let (answers, _) = scene.ask(json!([chat("tiny", None)]), json!({})).await;
    assert_eq!(answers[0]["code"], "model_not_allowed", "{answers:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn exhausted_budget_is_reported_with_its_figures() {
    let scene = Scene::start(ALL, Budget::default()).await;
    scene.provider.reply(Reply::sample(provider::samples()[0]));
    let budget = json!({"budget": {"cost_usd": 0.0092}});
    let (answers, run) = scene
        .ask(
            json!([chat("tiny", Some(900)), chat("tiny", Some(900))]),
            budget,
        )
        .await;
    let refused = answers
        .iter()
        .find(|answer| answer["status"] == 429)
        .expect("one is too much");
    assert_eq!(refused["code"], "budget_exhausted");
    assert_eq!(refused["retry_after"], false);
    let text = refused["text"].as_str().unwrap();
    assert!(text.contains("of $0.0092 spent"), "{text}");
    let view = scene.view(&run).await;
    assert_eq!(view["budget"]["cost_usd"], 0.0092);
    assert_eq!(view["spending"]["tree"]["model_calls"], 1, "{view}");
}

#[tokio::test(flavor = "multi_thread")]
async fn model_without_price_is_rejected_under_cost_limit() {
    let limited = Budget {
        tokens_max: None,
        cost_max: Cost::from_dollars(1.0),
    };
    let scene = Scene::start(&["openai/unheard-of"], limited).await;
    let (answers, _) = scene
        .ask(json!([chat("unheard-of", None)]), json!({}))
        .await;
    assert_eq!(
        (&answers[0]["status"], &answers[0]["code"]),
        (&json!(403), &json!("model_unpriced"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_length_is_bounded_under_a_budget() {
    let scene = Scene::start(ALL, tokens(100_000)).await;
    for request in [chat("tiny", None), generate("generateContent")] {
        scene.provider.reply(Reply::sample(provider::samples()[0]));
        scene.ask(json!([request]), json!({})).await;
        let seen = scene.provider.take_requests();
        assert!(seen[0].contains("8192"), "{}", seen[0]);
    }
}

/// 64 callees on two nodes send requests concurrently, under a budget for some of them.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_callees_never_exceed_the_budget_of_their_tree() {
    let mut scene = Scene::start(ALL, Budget::default()).await;
    let capacity = Capacity {
        slots: 80,
        containers_max: 200,
        memory_bytes: 16 << 30,
    };
    let capsules = [("ask".to_owned(), ask()), ("spread".to_owned(), spread())];
    scene
        .cluster
        .add_node(&["any"], capacity, runtime(capsules))
        .await;
    scene.provider.reply(Reply::sample(provider::samples()[0]));
    // Each call reserves 900 tokens plus its request, and uses 120.
    let input = json!({"children": 64, "requests": [chat("tiny", Some(900))]});
    let client = scene.client();
    let run = client
        .start_with("spread", input, json!({"budget": {"tokens": 5_000}}))
        .await;
    let result = client.result(&run).await;
    let statuses = result["output"]["statuses"]
        .as_array()
        .unwrap_or_else(|| panic!("{result}"));
    let answered = statuses.iter().filter(|status| **status == 200).count() as u64;
    let refused = statuses.iter().filter(|status| **status == 429).count() as u64;
    assert_eq!(answered + refused, 64, "{statuses:?}");
    assert!(refused > 0 && answered >= 4, "{answered} were answered");
    let spent = scene.view(&run).await["spending"]["tree"].clone();
    assert_eq!(spent["model_calls"], answered, "{spent}");
    assert_eq!(scene.provider.take_requests().len() as u64, answered);
    let taken = spent["input_tokens"].as_u64().unwrap() + spent["output_tokens"].as_u64().unwrap();
    assert!(taken <= 5_000, "{spent}");
}
