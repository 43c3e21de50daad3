//! The environment that the container contract promises.

use aod_domain::run::Run;
use aod_domain::trace::{SpanId, TraceId, TraceParent};

/// Where a capsule reaches its channel. Source: the gate listens there.
const CHANNEL_URL: &str = "http://127.0.0.1:8700";

/// In the place of keys: real ones never enter a container.
const KEY_PLACEHOLDER: &str = "aod";

/// What tells HTTP clients of the way out, in both spellings that they look for.
pub(crate) fn proxy_environment() -> impl Iterator<Item = (String, String)> {
    // What is here is asked directly.
    let here = "127.0.0.1,localhost";
    [
        ("HTTP_PROXY", CHANNEL_URL),
        ("HTTPS_PROXY", CHANNEL_URL),
        ("NO_PROXY", here),
        ("http_proxy", CHANNEL_URL),
        ("https_proxy", CHANNEL_URL),
        ("no_proxy", here),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
}

/// What the contract sets for the `attempt` of `run`.
pub(crate) fn contract_environment(run: &Run, attempt: u32) -> Vec<(String, String)> {
    let root = run.id.root();
    let place = TraceParent {
        trace: TraceId::of(root, run.launched.event.trace),
        parent: SpanId::of_attempt(run.id, attempt),
    };
    let mut variables = vec![
        ("AOD_INPUT", "/io/input.json".to_owned()),
        ("AOD_OUTPUT", "/io/output.json".to_owned()),
        ("ORCHESTRATOR_URL", CHANNEL_URL.to_owned()),
        ("AOD_URL", CHANNEL_URL.to_owned()),
        ("AOD_RUN_ID", run.id.to_string()),
        ("AOD_ROOT_RUN_ID", root.to_string()),
        ("AOD_ATTEMPT", attempt.to_string()),
        ("AOD_DEADLINE", run.deadline().to_string()),
        ("TRACEPARENT", place.to_string()),
    ];
    for (name, path) in [
        ("OPENAI_BASE_URL", "openai/v1"),
        ("OPENAI_API_BASE", "openai/v1"),
        ("LITELLM_API_BASE", "openai/v1"),
        ("ANTHROPIC_BASE_URL", "anthropic"),
        ("GOOGLE_GEMINI_BASE_URL", "google"),
    ] {
        variables.push((name, format!("{CHANNEL_URL}/llm/{path}")));
    }
    for name in [
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "GEMINI_API_KEY",
        "GOOGLE_API_KEY",
    ] {
        variables.push((name, KEY_PLACEHOLDER.to_owned()));
    }
    variables
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}
