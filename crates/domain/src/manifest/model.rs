//! The models of `agent.yaml`, and their settings.

use super::agent::secret_name;
use super::fields::{count, part, timeout};
use crate::yaml::{Mapping, Node, Reader};

/// A model with its own name.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    pub provider: String,
    pub model: String,
    pub base_url: Option<String>,
    /// Name of the environment variable, never the key.
    pub api_key_env: Option<String>,
    pub settings: Settings,
}

/// Settings of a model; the provider chooses what is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    pub temperature: Option<f64>,
    pub top_p: Option<f64>,
    pub max_tokens: Option<u64>,
    pub seed: Option<i64>,
    /// Of one request.
    pub timeout_seconds: Option<u32>,
    pub thinking: Option<Thinking>,
    pub parallel_tool_calls: Option<bool>,
    /// Whether the provider streams answers.
    pub stream: Option<bool>,
}

/// How much a model thinks before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thinking {
    Off,
    Low,
    Medium,
    High,
}

pub(super) fn model(reader: &mut Reader, node: Node) -> Option<Model> {
    reader.mapping(node, |reader, mapping| {
        let model = reader.required(mapping, "model", Reader::text);
        let provider = reader.required(mapping, "provider", Reader::text);
        let base_url = reader.field(mapping, "base_url", Reader::text);
        let api_key_env = reader.field(mapping, "api_key_env", |reader, node| {
            reader.parsed(node, secret_name)
        });
        let settings = part(reader, mapping, "settings", settings);
        Some(Model {
            provider: provider?,
            model: model?,
            base_url,
            api_key_env,
            settings,
        })
    })?
}

/// `settings`, and `temperature` and `max_tokens` at the top level, where agent-on-demand has them; `settings` wins.
pub(super) fn all_settings(reader: &mut Reader, mapping: &mut Mapping) -> Settings {
    let top = Settings {
        temperature: temperature(reader, mapping),
        max_tokens: count(reader, mapping, "max_tokens"),
        ..Settings::default()
    };
    let inner = part(reader, mapping, "settings", settings);
    Settings {
        temperature: inner.temperature.or(top.temperature),
        max_tokens: inner.max_tokens.or(top.max_tokens),
        ..inner
    }
}

fn temperature(reader: &mut Reader, mapping: &mut Mapping) -> Option<f64> {
    reader.field(mapping, "temperature", |reader, node| {
        reader.number(node, 0.0..=2.0)
    })
}

fn settings(reader: &mut Reader, mapping: &mut Mapping) -> Settings {
    let thinking = [
        ("off", Thinking::Off),
        ("low", Thinking::Low),
        ("medium", Thinking::Medium),
        ("high", Thinking::High),
    ];
    Settings {
        temperature: temperature(reader, mapping),
        top_p: reader.field(mapping, "top_p", |reader, node| {
            reader.number(node, 0.0..=1.0)
        }),
        max_tokens: count(reader, mapping, "max_tokens"),
        seed: reader.field(mapping, "seed", |reader, node| {
            reader.integer(node, i64::MIN..=i64::MAX)
        }),
        timeout_seconds: timeout(reader, mapping),
        thinking: reader.field(mapping, "thinking", |reader, node| {
            reader.choice(node, &thinking)
        }),
        parallel_tool_calls: reader.field(mapping, "parallel_tool_calls", Reader::boolean),
        stream: reader.field(mapping, "stream", Reader::boolean),
    }
}
