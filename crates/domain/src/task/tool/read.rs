//! Reads the tools of a catalogue, with all its problems and warnings.

use std::collections::BTreeMap;

use serde_json::Value;

use super::output::{Format, Rule, Usage};
use super::path::Path;
use super::{Credential, Family, PromptBy, Slot, Tool};
use crate::egress;
use crate::manifest::{environment, secret_name};
use crate::text::{is_token, quoted};
use crate::yaml::{Mapping, Node, Reader};

/// Largest `prompt_bytes_max`; no task has longer prompts.
const PROMPT_BYTES_MAX: i64 = 16 << 20;

const FAMILIES: [(&str, Family); 3] = [
    ("openai", Family::OpenAi),
    ("anthropic", Family::Anthropic),
    ("google", Family::Google),
];

pub(super) fn tools(reader: &mut Reader, root: Node) -> Option<BTreeMap<String, Tool>> {
    reader.open_mapping(root, |reader, fields| {
        let nodes = reader.required(fields, "tools", |reader, node| {
            reader.table(node, |_, node| Some(node))
        })?;
        let tools = nodes.into_iter().filter_map(|(name, node)| {
            if !is_token(&name) {
                let name = quoted(&name);
                let message = format!("invalid name {name}; expected 1 to 63 of a-z, 0-9 and -");
                reader.problem(&node, message);
            }
            let tool = tool(reader, &name, node)?;
            Some((name, tool))
        });
        Some(tools.collect())
    })?
}

fn tool(reader: &mut Reader, name: &str, node: Node) -> Option<Tool> {
    reader.open_mapping(node, |reader, fields| {
        let image = reader.required(fields, "image", text);
        let install = reader.field(fields, "install", text);
        let environment = reader.field(fields, "environment", environment);
        let credential = reader.field(fields, "credential", credential);
        let command = reader.required(fields, "command", command);
        let model = reader.field(fields, "model", |reader, node| {
            reader.parsed(node, |text| slot(text, "{{model}}"))
        });
        let prompt = reader.required(fields, "prompt", |reader, node| reader.parsed(node, prompt));
        let prompt_bytes_max = reader.field(fields, "prompt_bytes_max", |reader, node| {
            reader.integer(node, 1..=PROMPT_BYTES_MAX)
        });
        let output = reader.required(fields, "output", output);
        Some(Tool {
            name: name.to_owned(),
            image: image?,
            install,
            environment: environment.unwrap_or_default(),
            credential,
            command: command?,
            model,
            prompt: prompt?,
            prompt_bytes_max,
            output: output?,
        })
    })?
}

/// A text that is not empty.
fn text(reader: &mut Reader, node: Node) -> Option<String> {
    reader.parsed(node, |text| match text.trim() {
        "" => Err("an empty text found; expected a text"),
        _ => Ok(text.to_owned()),
    })
}

fn command(reader: &mut Reader, node: Node) -> Option<Vec<String>> {
    let place = node.place;
    let command = reader.list(node, text)?;
    if command.is_empty() {
        let message = "an empty list found; expected a program and its arguments";
        reader.problem_at(place, message.to_owned());
    }
    Some(command)
}

/// An argument that contains `place` once.
fn slot(argument: &str, place: &str) -> Result<Slot, String> {
    match argument.split_once(place) {
        Some((before, after)) if !after.contains(place) => Ok(Slot {
            before: before.to_owned(),
            after: after.to_owned(),
        }),
        _ => Err(format!(
            "{} found; expected an argument that contains {place} once",
            quoted(argument)
        )),
    }
}

fn prompt(text: &str) -> Result<PromptBy, String> {
    if text == "stdin" {
        return Ok(PromptBy::Stdin);
    }
    let slot = slot(text, "{{prompt}}").map_err(|problem| format!("{problem}, or stdin"))?;
    Ok(PromptBy::Argument(slot))
}

fn credential(reader: &mut Reader, node: Node) -> Option<Credential> {
    let place = node.place;
    reader.open_mapping(node, |reader, fields| {
        let families = reader.field(fields, "proxy", |reader, node| {
            reader.list(node, |reader, node| reader.choice(node, &FAMILIES))
        });
        let models = reader.field(fields, "models", |reader, node| reader.list(node, text));
        let variable = reader.field(fields, "secret", |reader, node| {
            reader.parsed(node, secret_name)
        });
        let egress = reader.field(fields, "egress", |reader, node| {
            reader.list(node, |reader, node| {
                reader.parsed(node, str::parse::<egress::Rule>)
            })
        });
        match (families, variable) {
            (Some(families), None) if !families.is_empty() && egress.is_none() => {
                Some(Credential::Proxy {
                    families,
                    models: models.unwrap_or_default(),
                })
            }
            (None, Some(variable)) if models.is_none() => Some(Credential::Secret {
                variable,
                egress: egress.unwrap_or_default(),
            }),
            _ => {
                let message = "expected either proxy with models, or secret with egress";
                reader.problem_at(place, message.to_owned());
                None
            }
        }
    })?
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FormatName {
    Text,
    Json,
    JsonLines,
}

const FORMATS: [(&str, FormatName); 3] = [
    ("text", FormatName::Text),
    ("json", FormatName::Json),
    ("json-lines", FormatName::JsonLines),
];

fn output(reader: &mut Reader, node: Node) -> Option<Format> {
    reader.open_mapping(node, |reader, fields| {
        let format = reader.required(fields, "format", |reader, node| {
            reader.choice(node, &FORMATS)
        })?;
        let of_rules = match format {
            FormatName::Text => return Some(Format::Text),
            FormatName::Json => Format::Json,
            FormatName::JsonLines => Format::JsonLines,
        };
        let rules = reader.required(fields, "events", rules)?;
        Some(of_rules(rules))
    })?
}

fn rules(reader: &mut Reader, node: Node) -> Option<Vec<Rule>> {
    let place = node.place;
    let rules = reader.list(node, rule)?;
    for (key, exists) in [
        ("text", rules.iter().any(|rule| rule.text.is_some())),
        (
            "completes",
            rules.iter().any(|rule| !rule.completes.is_empty()),
        ),
    ] {
        if !exists {
            let message = format!("no event has the key {key:?}; expected one");
            reader.problem_at(place, message);
        }
    }
    Some(rules)
}

fn rule(reader: &mut Reader, node: Node) -> Option<Rule> {
    reader.open_mapping(node, |reader, fields| Rule {
        when: reader.field(fields, "when", conditions).unwrap_or_default(),
        text: reader.field(fields, "text", path),
        usage: reader.field(fields, "usage", usage).unwrap_or_default(),
        cost: reader.field(fields, "cost", path),
        models: reader.field(fields, "models", path),
        begins: paths(reader, fields, "begins"),
        completes: paths(reader, fields, "completes"),
        cut_short: paths(reader, fields, "cut_short"),
        error: paths(reader, fields, "error"),
    })
}

fn usage(reader: &mut Reader, node: Node) -> Option<Usage> {
    reader.open_mapping(node, |reader, fields| Usage {
        input: paths(reader, fields, "input"),
        cached_input: paths(reader, fields, "cached_input"),
        output: paths(reader, fields, "output"),
    })
}

fn path(reader: &mut Reader, node: Node) -> Option<Path> {
    reader.parsed(node, Path::parse)
}

/// One field, or a list of fields.
fn paths(reader: &mut Reader, fields: &mut Mapping, key: &'static str) -> Vec<Path> {
    let paths = reader.field(fields, key, |reader, node| {
        if node.is_list() {
            return reader.list(node, path);
        }
        path(reader, node).map(|path| vec![path])
    });
    paths.unwrap_or_default()
}

/// Fields, each with one value or a list of values.
fn conditions(reader: &mut Reader, node: Node) -> Option<Vec<(Path, Vec<Value>)>> {
    let place = node.place;
    let values = reader.table(node, |_, node| {
        Some(match node.into_json() {
            Value::Array(values) => values,
            value => vec![value],
        })
    })?;
    let conditions = values.into_iter().filter_map(|(field, values)| {
        if values
            .iter()
            .any(|value| value.is_object() || value.is_array())
        {
            let field = quoted(&field);
            let message = format!(
                "the field {field} has no simple value; expected texts, numbers, true or false"
            );
            reader.problem_at(place, message);
        }
        match Path::parse(&field) {
            Ok(path) => Some((path, values)),
            Err(error) => {
                reader.problem_at(place, error.to_string());
                None
            }
        }
    });
    Some(conditions.collect())
}
