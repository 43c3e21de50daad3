//! The model and the limits that a request asks for, and the features that no request may use.

use aod_domain::spending::NAME_LENGTH_MAX;
use serde_json::{Value, json};

use super::body::Fields;
use super::format::Way;

/// Maximum tokens of an answer if a budget applies and the request sets no maximum: a page or two of text with some
/// reasoning.
pub(super) const OUTPUT_TOKENS_DEFAULT: u64 = 8_192;

/// The parts of a request that count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) model: String,
    /// For each answer, if set.
    pub(super) output_tokens_max: Option<u64>,
    /// Number of answers.
    pub(super) answers: u64,
    pub(super) is_streamed: bool,
}

/// Why the node does not forward a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    Malformed(String),
    /// It uses a feature that is not allowed; the text names it.
    Forbidden(String),
}

impl From<String> for Unread {
    fn from(text: String) -> Self {
        Self::Malformed(text)
    }
}

impl Way {
    /// Parses a request; `model` is the model in its path.
    pub(super) fn read(self, fields: &Fields, model: Option<&str>) -> Result<Asked, Unread> {
        self.check_forbidden(fields)?;
        let model = match model {
            Some(model) => Some(model.to_owned()),
            None => fields.text("model")?,
        };
        let model = model.ok_or_else(|| "model: expected a text".to_owned())?;
        if model.is_empty() || model.chars().count() > NAME_LENGTH_MAX {
            let text = format!("model: expected 1 to {NAME_LENGTH_MAX} characters");
            return Err(text.into());
        }
        let (output_tokens_max, answers) = match self {
            Self::Chat => {
                // Some servers know only the older name, `max_tokens`.
                let bounds = [
                    fields.number("max_completion_tokens")?,
                    fields.number("max_tokens")?,
                ];
                (bounds.into_iter().flatten().max(), fields.number("n")?)
            }
            Self::Responses => (fields.number("max_output_tokens")?, None),
            Self::Messages => (fields.number("max_tokens")?, None),
            Self::GenerateContent { .. } => (
                setting(fields, "maxOutputTokens", "max_output_tokens")?,
                setting(fields, "candidateCount", "candidate_count")?,
            ),
        };
        let is_streamed = match self {
            Self::GenerateContent { is_streamed } => is_streamed,
            _ => fields.boolean("stream")?.unwrap_or_default(),
        };
        Ok(Asked {
            model,
            output_tokens_max,
            answers: answers.unwrap_or(1).max(1),
            is_streamed,
        })
    }

    /// Rejects features with which a provider runs tools, reaches the network, uses contents outside the request, or
    /// calls another model: neither grants nor budgets cover them.
    fn check_forbidden(self, fields: &Fields) -> Result<(), Unread> {
        let forbidden: &[&str] = match self {
            Self::Chat => &[
                "models",
                "plugins",
                "route",
                "service_tier",
                "web_search_options",
            ],
            Self::Responses => &[
                "background",
                "conversation",
                "previous_response_id",
                "prompt",
                "service_tier",
            ],
            Self::Messages => &["container", "mcp_servers", "service_tier", "speed"],
            Self::GenerateContent { .. } => {
                &["cachedContent", "cached_content", "generation_config"]
            }
        };
        if let Some(name) = forbidden.iter().find(|name| fields.has(name)) {
            let text = format!(
                "capsules may not use {name}: AOD cannot compute its cost from the request"
            );
            return Err(Unread::Forbidden(text));
        }
        let run_by_provider = match self {
            Self::Chat | Self::Responses => {
                let tools = fields.tools()?.into_iter();
                tools
                    .filter_map(|tool| tool.kind)
                    .find(|kind| !["function", "custom"].contains(&kind.as_str()))
            }
            Self::Messages => {
                let is_own = |kind: &String| {
                    // The capsule runs these tools itself.
                    let own = ["bash_", "computer_", "memory_", "text_editor_"];
                    kind == "custom" || own.iter().any(|prefix| kind.starts_with(prefix))
                };
                let tools = fields.tools()?.into_iter();
                tools
                    .filter_map(|tool| tool.kind)
                    .find(|kind| !is_own(kind))
            }
            Self::GenerateContent { .. } => {
                let names = fields.tool_names()?.into_iter().flatten();
                let mut names = names.map(|(name, _)| name);
                names.find(|name| {
                    !["functionDeclarations", "function_declarations"].contains(&name.as_str())
                })
            }
        };
        match run_by_provider {
            None => Ok(()),
            Some(kind) => Err(Unread::Forbidden(format!(
                "capsules may not use the tool {kind:.80}: the provider runs it, which bypasses the egress rules"
            ))),
        }
    }

    /// Limits the answer if the request does not.
    pub(super) fn bound(self, provider: &str, fields: &mut Fields, asked: &mut Asked) {
        if asked.output_tokens_max.is_some() {
            return;
        }
        asked.output_tokens_max = Some(OUTPUT_TOKENS_DEFAULT);
        let bound = OUTPUT_TOKENS_DEFAULT;
        match self {
            // Newer models of OpenAI reject the older name; other servers may know only the older name.
            Self::Chat if provider == "openai" => fields.set("max_completion_tokens", &bound),
            Self::Chat | Self::Messages => fields.set("max_tokens", &bound),
            Self::Responses => fields.set("max_output_tokens", &bound),
            Self::GenerateContent { .. } => {
                let config = fields.object("generationConfig").ok().flatten();
                let mut config = config.unwrap_or_default();
                config.insert("maxOutputTokens".into(), json!(bound));
                fields.set("generationConfig", &config);
            }
        }
    }

    /// Requests the usage in a stream that does not report it by default.
    pub(super) fn ask_for_usage(self, fields: &mut Fields, asked: &Asked) -> Result<(), Unread> {
        if self != Self::Chat || !asked.is_streamed {
            return Ok(());
        }
        let mut options = fields.object("stream_options")?.unwrap_or_default();
        options.insert("include_usage".into(), json!(true));
        fields.set("stream_options", &options);
        Ok(())
    }
}

/// A number in Google's settings; Google accepts both names, and numbers as texts.
fn setting(fields: &Fields, name: &str, other: &str) -> Result<Option<u64>, Unread> {
    let config = fields.object("generationConfig")?.unwrap_or_default();
    let given = [name, other]
        .into_iter()
        .filter_map(|name| config.get(name));
    let mut largest = None;
    for value in given.filter(|value| !value.is_null()) {
        let number = match value {
            Value::Number(number) => number.as_u64(),
            Value::String(text) => text.parse().ok(),
            _ => None,
        };
        let text = || format!("generationConfig.{name}: expected a whole number");
        largest = largest.max(Some(number.ok_or_else(text)?));
    }
    Ok(largest)
}
