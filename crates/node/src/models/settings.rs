//! The operator's providers and prices: built-in ones, overridden by a YAML file.

use std::collections::{BTreeMap, BTreeSet};

use aod_domain::manifest::is_secret_name;
use aod_domain::spending::{Price, Prices};
use serde::Deserialize;
use thiserror::Error;

/// The format of requests and answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    /// Chat Completions and Responses.
    OpenAi,
    /// Messages.
    Anthropic,
    /// Gemini's `generateContent`.
    Google,
}

/// A provider of models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Provider {
    pub(crate) format: Format,
    /// The base URL as the provider's own libraries accept it, without a slash at its end.
    pub(crate) base_url: String,
    /// The name of the secret with the key; none for a server without keys.
    pub(crate) key: Option<String>,
}

/// The providers of models and their prices.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSettings {
    pub(crate) providers: BTreeMap<String, Provider>,
    pub prices: Prices,
}

/// An invalid file of providers and prices.
#[derive(Debug, Error)]
#[error("{}", problems.join("; "))]
pub struct MalformedModels {
    pub problems: Vec<String>,
}

/// The built-in providers: name, format, base URL, name of the key.
const BUILT_IN: [(&str, Format, &str, &str); 4] = [
    (
        "openai",
        Format::OpenAi,
        "https://api.openai.com/v1",
        "OPENAI_API_KEY",
    ),
    (
        "anthropic",
        Format::Anthropic,
        "https://api.anthropic.com",
        "ANTHROPIC_API_KEY",
    ),
    (
        "google",
        Format::Google,
        "https://generativelanguage.googleapis.com",
        "GEMINI_API_KEY",
    ),
    (
        "openrouter",
        Format::OpenAi,
        "https://openrouter.ai/api/v1",
        "OPENROUTER_API_KEY",
    ),
];

impl Default for ModelSettings {
    fn default() -> Self {
        let providers = BUILT_IN.map(|(name, format, base_url, key)| {
            let provider = Provider {
                format,
                base_url: base_url.to_owned(),
                key: Some(key.to_owned()),
            };
            (name.to_owned(), provider)
        });
        Self {
            providers: providers.into(),
            prices: Prices::default(),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    providers: BTreeMap<String, GivenProvider>,
    #[serde(default)]
    prices: BTreeMap<String, Price>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GivenProvider {
    format: Option<Format>,
    base_url: Option<String>,
    key: Option<String>,
}

impl ModelSettings {
    /// The names of the secrets that are keys of providers.
    pub(crate) fn keys(&self) -> BTreeSet<String> {
        let keys = self
            .providers
            .values()
            .filter_map(|provider| provider.key.clone());
        keys.collect()
    }

    /// Reads a file such as `{providers: {local: {format: openai, base_url: http://10.0.0.5:8000/v1}},
    /// prices: {local/qwen3: {input: 0, output: 0}}}`. Its fields override those of built-in providers; prices are US
    /// dollars for a million tokens.
    ///
    /// # Errors
    /// All problems of the file; only one if it is invalid YAML or has an unknown field.
    pub fn parse(yaml: &str) -> Result<Self, MalformedModels> {
        let file: Option<File> = serde_saphyr::from_str(yaml).map_err(|error| MalformedModels {
            problems: vec![error.to_string()],
        })?;
        let File { providers, prices } = file.unwrap_or_default();
        let mut settings = Self::default();
        let mut problems = Vec::new();
        for (name, given) in providers {
            let known = settings.providers.get(&name);
            match provider(&name, given, known) {
                Ok(provider) => drop(settings.providers.insert(name, provider)),
                Err(wrong) => problems.extend(wrong),
            }
        }
        for (model, price) in &prices {
            if !model.contains('/') {
                problems.push(format!("prices.{model}: expected provider/model"));
            }
            if !price.is_proper() {
                problems.push(format!(
                    "prices.{model}: expected dollars for a million tokens, each from 0 to 10000"
                ));
            }
        }
        if !problems.is_empty() {
            return Err(MalformedModels { problems });
        }
        settings.prices = settings.prices.with(prices);
        Ok(settings)
    }
}

fn provider(
    name: &str,
    given: GivenProvider,
    known: Option<&Provider>,
) -> Result<Provider, Vec<String>> {
    let mut problems = Vec::new();
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty() || name.len() > 64 || !name.bytes().all(is_name) {
        problems.push(format!(
            "providers: {name:?} is not a valid name; expected 1 to 64 letters, digits and -_."
        ));
    }
    let format = given.format.or(known.map(|known| known.format));
    let mut wrong = |field, text: &str| problems.push(format!("providers.{name}.{field}: {text}"));
    if format.is_none() {
        wrong("format", "missing; expected openai, anthropic or google");
    }
    let base_url = given
        .base_url
        .map(|url| url.trim_end_matches('/').to_owned());
    let base_url = base_url.or_else(|| known.map(|known| known.base_url.clone()));
    let is_web = |url: &String| {
        let parsed = reqwest::Url::parse(url);
        parsed.is_ok_and(|url| ["http", "https"].contains(&url.scheme()) && url.has_host())
    };
    if !base_url.as_ref().is_some_and(is_web) {
        let found = base_url.as_deref().unwrap_or("nothing");
        let text = format!("found {found}; expected a URL such as http://10.0.0.5:8000/v1");
        wrong("base_url", &text);
    }
    if given.key.as_ref().is_some_and(|key| !is_secret_name(key)) {
        wrong(
            "key",
            "expected the name of a secret, such as OPENAI_API_KEY",
        );
    }
    let key = given.key.or_else(|| known?.key.clone());
    match (format, base_url) {
        (Some(format), Some(base_url)) if problems.is_empty() => Ok(Provider {
            format,
            base_url,
            key,
        }),
        _ => Err(problems),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_adds_providers_and_prices() {
        let settings = ModelSettings::parse(
            "providers:\n  local: {format: openai, base_url: 'http://10.0.0.5:8000/v1/'}\n  openai: {key: TEAM_KEY}\n\
             prices:\n  local/qwen3: {input: 0, output: 0}\n",
        )
        .unwrap();
        let local = &settings.providers["local"];
        assert_eq!(
            (local.base_url.as_str(), &local.key),
            ("http://10.0.0.5:8000/v1", &None)
        );
        let openai = &settings.providers["openai"];
        assert_eq!(openai.key.as_deref(), Some("TEAM_KEY"));
        assert_eq!(openai.base_url, "https://api.openai.com/v1");
        assert!(settings.prices.get("local", "qwen3").is_some());
        assert!(settings.prices.get("openai", "gpt-5.2").is_some());
    }

    #[test]
    fn empty_file_keeps_built_in_settings() {
        assert_eq!(ModelSettings::parse("").unwrap(), ModelSettings::default());
    }

    #[test]
    fn parse_reports_all_problems_together() {
        let error = ModelSettings::parse(
            "providers:\n  'a b': {base_url: ftp://x}\nprices:\n  qwen3: {input: -1, output: 0}\n",
        )
        .unwrap_err();
        let text = error.to_string();
        for part in [
            "\"a b\" is not a valid name",
            "format: missing",
            "found ftp://x",
            "prices.qwen3: expected provider/model",
            "each from 0",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn unknown_field_is_reported_by_name() {
        let error = ModelSettings::parse("provider: {}\n").unwrap_err();
        assert!(error.to_string().contains("provider"), "{error}");
    }
}
