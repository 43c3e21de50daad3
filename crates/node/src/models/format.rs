//! What the three formats say: the ways to ask, and what an answer took.

use aod_domain::spending::{NAME_LENGTH_MAX, TOOLS_NAMED_MAX, Tokens};
use serde_json::Value;

use super::settings::Format;

/// The ways of a format to ask for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Chat,
    Responses,
    Messages,
    GenerateContent { is_streamed: bool },
}

/// Which way of `format` the path after the provider's name is, and for Google the model.
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
            // It becomes part of an address.
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            let is_model = model.bytes().all(is_name) && !model.starts_with('.');
            is_model.then_some((Way::GenerateContent { is_streamed }, Some(model)))
        }
        _ => None,
    }
}

/// What can be asked for, for people.
pub(super) fn ways(format: Format) -> &'static str {
    match format {
        Format::OpenAi => "v1/chat/completions and v1/responses",
        Format::Anthropic => "v1/messages",
        Format::Google => {
            "v1beta/models/MODEL:generateContent and v1beta/models/MODEL:streamGenerateContent"
        }
    }
}

impl Way {
    /// Takes one document of an answer in: the whole, or one of a stream.
    pub(super) fn take(self, document: &Value, told: &mut Told) {
        match self {
            Self::Chat => chat(document, told),
            Self::Responses => responses(document, told),
            Self::Messages => messages(document, told),
            Self::GenerateContent { .. } => match document {
                // Streamed without server-sent events it is one list.
                Value::Array(documents) => documents
                    .iter()
                    .for_each(|document| generate_content(document, told)),
                document => generate_content(document, told),
            },
        }
    }
}

/// What an answer has told of itself so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    tokens: Tokens,
    /// Whether `tokens` is the last word.
    is_final: bool,
    /// Whether the answer itself has ended.
    is_ended: bool,
    pub(super) tools: Vec<String>,
    /// Characters of the names in `tools`.
    names_length: usize,
    pub(super) tool_calls: u32,
}

/// Characters of all names of tools that one event holds: each may take six bytes there.
const NAMES_LENGTH_MAX: usize = 2_048;

impl Told {
    /// What it took, if the answer came to the place where it says so.
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

fn chat(document: &Value, told: &mut Told) {
    for choice in items(document, "choices") {
        for part in ["message", "delta"] {
            for call in choice
                .get(part)
                .into_iter()
                .flat_map(|part| items(part, "tool_calls"))
            {
                let custom = || call.pointer("/custom/name");
                told.tool(call.pointer("/function/name").or_else(custom));
            }
            // As it was before there were several at once.
            told.tool(choice.pointer(&format!("/{part}/function_call/name")));
        }
    }
    if let Some(usage) = document.get("usage").filter(|usage| usage.is_object()) {
        told.tokens = Tokens {
            input: number(usage, "/prompt_tokens"),
            cached_input: number(usage, "/prompt_tokens_details/cached_tokens"),
            output: number(usage, "/completion_tokens"),
        };
        told.is_final = true;
    }
}

fn responses(document: &Value, told: &mut Told) {
    let response = match document.get("type").and_then(Value::as_str) {
        Some("response.output_item.done") => {
            if let Some(item) = document.get("item") {
                output_item(item, told);
            }
            return;
        }
        // A stream tells the whole answer once more at its end; what came before is in there.
        Some("response.completed" | "response.incomplete" | "response.failed") => {
            *told = Told::default();
            document.get("response")
        }
        Some(_) => None,
        None => Some(document),
    };
    let Some(response) = response else { return };
    for item in items(response, "output") {
        output_item(item, told);
    }
    if let Some(usage) = response.get("usage").filter(|usage| usage.is_object()) {
        told.tokens = Tokens {
            input: number(usage, "/input_tokens"),
            cached_input: number(usage, "/input_tokens_details/cached_tokens"),
            output: number(usage, "/output_tokens"),
        };
        told.is_final = true;
    }
}

/// A function has a name; what the provider ran is called by its kind.
fn output_item(item: &Value, told: &mut Told) {
    let kind = item.get("type");
    if kind
        .and_then(Value::as_str)
        .is_some_and(|kind| kind.ends_with("_call"))
    {
        told.tool(item.get("name").or(kind));
    }
}

fn messages(document: &Value, told: &mut Told) {
    let kind = document.get("type").and_then(Value::as_str);
    match kind {
        Some("message_start") => {
            anthropic_input(&document["message"]["usage"], told);
        }
        Some("content_block_start") => tool_use(&document["content_block"], told),
        Some("message_delta") => {
            // Servers that tell the input only at the end are heard too.
            let usage = &document["usage"];
            if usage.get("input_tokens").is_some_and(Value::is_u64) {
                anthropic_input(usage, told);
            }
            told.tokens.output = number(usage, "/output_tokens");
            told.is_final = usage.get("output_tokens").is_some();
        }
        Some("message") => {
            for block in items(document, "content") {
                tool_use(block, told);
            }
            let usage = &document["usage"];
            anthropic_input(usage, told);
            told.tokens.output = number(usage, "/output_tokens");
            told.is_final = usage.get("output_tokens").is_some();
        }
        _ => (),
    }
}

fn anthropic_input(usage: &Value, told: &mut Told) {
    let cached = number(usage, "/cache_read_input_tokens");
    let made = number(usage, "/cache_creation_input_tokens");
    told.tokens.cached_input = cached;
    told.tokens.input = number(usage, "/input_tokens")
        .saturating_add(cached)
        .saturating_add(made);
}

fn tool_use(block: &Value, told: &mut Told) {
    let kind = block.get("type").and_then(Value::as_str);
    if kind.is_some_and(|kind| kind.ends_with("tool_use")) {
        told.tool(block.get("name"));
    }
}

fn generate_content(document: &Value, told: &mut Told) {
    let usage = document.get("usageMetadata");
    for candidate in items(document, "candidates") {
        let content = candidate.get("content").into_iter();
        for part in content.flat_map(|content| items(content, "parts")) {
            told.tool(part.pointer("/functionCall/name"));
        }
        told.is_ended |= candidate.get("finishReason").is_some();
    }
    if let Some(usage) = usage {
        told.tokens = Tokens {
            input: number(usage, "/promptTokenCount")
                .saturating_add(number(usage, "/toolUsePromptTokenCount")),
            cached_input: number(usage, "/cachedContentTokenCount"),
            output: number(usage, "/candidatesTokenCount")
                .saturating_add(number(usage, "/thoughtsTokenCount")),
        };
        // Who asks for no counts is not believed to have taken none.
        told.is_final = told.is_ended && told.tokens.input > 0;
    }
}
