//! The environment variables of the container contract.

use aod_domain::run::Run;
use aod_domain::trace::{SpanId, TraceId, TraceParent};

/// The URL of the channel in a container. Source: the gate listens there.
const CHANNEL_URL: &str = "http://127.0.0.1:8700";

/// Placeholder for keys: real keys never enter a container.
const KEY_PLACEHOLDER: &str = "aod";

/// The proxy settings for HTTP clients, in the spellings that clients read.
///
/// Not `http_proxy`: with it, busybox wget would send its calls to the channel through the proxy, all as GET. Source:
/// busybox 1.35, `networking/wget.c`, which does not know `no_proxy`.
pub(super) fn proxy_environment() -> impl Iterator<Item = (String, String)> {
    // Clients reach the container itself without the proxy.
    let here = "127.0.0.1,localhost";
    [
        ("HTTP_PROXY", CHANNEL_URL),
        ("HTTPS_PROXY", CHANNEL_URL),
        ("NO_PROXY", here),
        ("https_proxy", CHANNEL_URL),
        ("no_proxy", here),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
}

/// The variables for the `attempt` of `run`.
pub(super) fn contract_environment(
    run: &Run,
    attempt: u32,
) -> impl Iterator<Item = (String, String)> + use<> {
    let root = run.id.root();
    let place = TraceParent {
        trace: TraceId::of(root, run.launched.event.trace),
        parent: SpanId::of_attempt(run.id, attempt),
    };
    let of_run = [
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
    let of_models = [
        ("OPENAI_BASE_URL", "openai/v1"),
        ("OPENAI_API_BASE", "openai/v1"),
        ("LITELLM_API_BASE", "openai/v1"),
        ("ANTHROPIC_BASE_URL", "anthropic"),
        ("GOOGLE_GEMINI_BASE_URL", "google"),
    ]
    .map(|(name, path)| (name, format!("{CHANNEL_URL}/llm/{path}")));
    let keys = [
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "GEMINI_API_KEY",
        "GOOGLE_API_KEY",
    ]
    .map(|name| (name, KEY_PLACEHOLDER.to_owned()));
    let all = of_run.into_iter().chain(of_models).chain(keys);
    all.map(|(name, value)| (name.to_owned(), value))
}
