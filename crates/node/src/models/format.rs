//! The three formats: the kinds of requests, and the usage in answers.

use aod_domain::spending::{NAME_LENGTH_MAX, TOOLS_NAMED_MAX, Tokens};
use serde_json::Value;

use super::settings::Format;

/// The kinds of requests for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Chat,
    Responses,
    Messages,
    GenerateContent { is_streamed: bool },
}

/// The kind of request for the path after the provider's name, and for Google the model.
pub(super) fn way(format: Format, path: &str) -> Option<(Way, Option<&str>)> {
    match (format, path) {
        (Format::OpenAi, "v1/chat/completions") => Some((Way::Chat, None)),
        (Format::OpenAi, "v1/responses") => Some((Way::Responses, None)),
        (Format::Anthropic, "v1/messages") => Some((Way::Messages, None)),
        (Format::Google, path) => {
            let path = path
                .strip_prefix("v1beta/models/")
                .or_else(|| path.strip_prefix("v1/models/"))?;
            let (model, method) = path.split_once(':')?;
            let is_streamed = match method {
                "generateContent" => false,
                "streamGenerateContent" => true,
                _ => return None,
            };
            // The model becomes a part of a URL.
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            let is_model = model.bytes().all(is_name) && !model.starts_with('.');
            is_model.then_some((Way::GenerateContent { is_streamed }, Some(model)))
        }
        _ => None,
    }
}

/// The supported paths, for messages.
pub(super) fn ways(format: Format) -> &'static str {
    match format {
        Format::OpenAi => "v1/chat/completions or v1/responses",
        Format::Anthropic => "v1/messages",
        Format::Google => {
            "v1beta/models/MODEL:generateContent or v1beta/models/MODEL:streamGenerateContent"
        }
    }
}

impl Way {
    /// Reads one document: a whole answer, or one event of a stream.
    pub(super) fn take(self, document: &Value, reported: &mut Reported) {
        match self {
            Self::Chat => chat(document, reported),
            Self::Responses => responses(document, reported),
            Self::Messages => messages(document, reported),
            Self::GenerateContent { .. } => match document {
                // A stream without server-sent events is one list.
                Value::Array(documents) => documents
                    .iter()
                    .for_each(|document| generate_content(document, reported)),
                document => generate_content(document, reported),
            },
        }
    }
}

/// Usage and tools that an answer has reported so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reported {
    tokens: Tokens,
    /// Whether `tokens` is final.
    is_final: bool,
    /// Whether the answer has ended.
    is_ended: bool,
    pub(super) tools: Vec<String>,
    /// Characters of the names in `tools`.
    names_length: usize,
    pub(super) tool_calls: u32,
}

/// Maximum number of characters of all tool names in one event: each may take six bytes.
const NAMES_LENGTH_MAX: usize = 2_048;

impl Reported {
    /// The usage, if the answer has reported its final usage.
    pub(super) fn tokens(&self) -> Option<Tokens> {
        self.is_final.then_some(self.tokens)
    }

    fn tool(&mut self, name: Option<&Value>) {
        let Some(name) = name.and_then(Value::as_str).filter(|name| !name.is_empty()) else {
            return;
        };
        self.tool_calls = self.tool_calls.saturating_add(1);
        let name: String = name.chars().take(NAME_LENGTH_MAX).collect();
        self.names_length += name.chars().count();
        if self.tools.len() < TOOLS_NAMED_MAX && self.names_length <= NAMES_LENGTH_MAX {
            self.tools.push(name);
        }
    }
}

fn number(value: &Value, pointer: &str) -> u64 {
    value
        .pointer(pointer)
        .and_then(Value::as_u64)
        .unwrap_or_default()
}

fn items<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value
        .get(key)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn chat(document: &Value, reported: &mut Reported) {
    for choice in items(document, "choices") {
        for part in ["message", "delta"] {
            for call in choice
                .get(part)
                .into_iter()
                .flat_map(|part| items(part, "tool_calls"))
            {
                let custom = || call.pointer("/custom/name");
                reported.tool(call.pointer("/function/name").or_else(custom));
            }
            // The older format with one function call.
            reported.tool(choice.pointer(&format!("/{part}/function_call/name")));
        }
    }
    openai_usage(document, "prompt", "completion", reported);
}

fn openai_usage(document: &Value, input: &str, output: &str, reported: &mut Reported) {
    if let Some(usage) = document.get("usage").filter(|usage| usage.is_object()) {
        reported.tokens = Tokens {
            input: number(usage, &format!("/{input}_tokens")),
            cached_input: number(usage, &format!("/{input}_tokens_details/cached_tokens")),
            output: number(usage, &format!("/{output}_tokens")),
        };
        reported.is_final = true;
    }
}

fn responses(document: &Value, reported: &mut Reported) {
    let response = match document.get("type").and_then(Value::as_str) {
        Some("response.output_item.done") => {
            if let Some(item) = document.get("item") {
                output_item(item, reported);
            }
            return;
        }
        // The last event of a stream contains the whole answer.
        Some("response.completed" | "response.incomplete" | "response.failed") => {
            *reported = Reported::default();
            document.get("response")
        }
        Some(_) => None,
        None => Some(document),
    };
    let Some(response) = response else { return };
    for item in items(response, "output") {
        output_item(item, reported);
    }
    openai_usage(response, "input", "output", reported);
}

/// Counts a tool by the name of its function, or by its type if the provider ran it.
fn output_item(item: &Value, reported: &mut Reported) {
    let kind = item.get("type");
    if kind
        .and_then(Value::as_str)
        .is_some_and(|kind| kind.ends_with("_call"))
    {
        reported.tool(item.get("name").or(kind));
    }
}

fn messages(document: &Value, reported: &mut Reported) {
    let kind = document.get("type").and_then(Value::as_str);
    match kind {
        Some("message_start") => {
            anthropic_input(&document["message"]["usage"], reported);
        }
        Some("content_block_start") => tool_use(&document["content_block"], reported),
        Some("message_delta") => {
            // Some servers report the input only at the end.
            let usage = &document["usage"];
            if usage.get("input_tokens").is_some_and(Value::is_u64) {
                anthropic_input(usage, reported);
            }
            anthropic_output(usage, reported);
        }
        Some("message") => {
            for block in items(document, "content") {
                tool_use(block, reported);
            }
            let usage = &document["usage"];
            anthropic_input(usage, reported);
            anthropic_output(usage, reported);
        }
        _ => (),
    }
}

fn anthropic_output(usage: &Value, reported: &mut Reported) {
    reported.tokens.output = number(usage, "/output_tokens");
    reported.is_final = usage.get("output_tokens").is_some();
}

fn anthropic_input(usage: &Value, reported: &mut Reported) {
    let cached = number(usage, "/cache_read_input_tokens");
    let made = number(usage, "/cache_creation_input_tokens");
    reported.tokens.cached_input = cached;
    reported.tokens.input = number(usage, "/input_tokens")
        .saturating_add(cached)
        .saturating_add(made);
}

fn tool_use(block: &Value, reported: &mut Reported) {
    let kind = block.get("type").and_then(Value::as_str);
    if kind.is_some_and(|kind| kind.ends_with("tool_use")) {
        reported.tool(block.get("name"));
    }
}

fn generate_content(document: &Value, reported: &mut Reported) {
    let usage = document.get("usageMetadata");
    for candidate in items(document, "candidates") {
        let content = candidate.get("content").into_iter();
        for part in content.flat_map(|content| items(content, "parts")) {
            reported.tool(part.pointer("/functionCall/name"));
        }
        reported.is_ended |= candidate.get("finishReason").is_some();
    }
    if let Some(usage) = usage {
        reported.tokens = Tokens {
            input: number(usage, "/promptTokenCount")
                .saturating_add(number(usage, "/toolUsePromptTokenCount")),
            cached_input: number(usage, "/cachedContentTokenCount"),
            output: number(usage, "/candidatesTokenCount")
                .saturating_add(number(usage, "/thoughtsTokenCount")),
        };
        // Zero input tokens means that the answer reports no usage.
        reported.is_final = reported.is_ended && reported.tokens.input > 0;
    }
}
