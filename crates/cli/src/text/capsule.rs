//! The details of a capsule.

use std::fmt::Write as _;

use aod_api::capsules::{BaseView, LayersView};
use serde_json::{Map, Value};

use super::units;
use crate::commands::Inspection;

/// Digits of a digest in a list of layers.
const DIGEST_LENGTH: usize = 12;

/// Names, digests, limits, callees, input and output, one per line.
pub(crate) fn details(capsule: &Inspection) -> String {
    let mut text = capsule.name.clone();
    if let Some(title) = &capsule.title {
        let _ = write!(text, " ({title})");
    }
    text.push('\n');
    if let Some(description) = &capsule.description {
        let _ = writeln!(text, "{description}");
    }
    // Writing to memory does not fail.
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "{name:<12}{value}");
    };
    if !capsule.aliases.is_empty() {
        line("aliases", &capsule.aliases.join(", "));
    }
    line("content", &capsule.content.to_string());
    for (name, digest) in &capsule.files {
        line(name, &digest.to_string());
    }
    if let Some(image) = &capsule.image {
        line("image", image);
    }
    for base in &capsule.bases {
        line("base", &self::base(base));
    }
    if let Some(model) = &capsule.model {
        line("model", model);
    }
    let resources = &capsule.resources;
    let limits = format!(
        "{} CPU, {} memory, {} processes, {} disk, {} s",
        f64::from(resources.cpu_millis) / 1_000.0,
        units::bytes(resources.memory_bytes),
        resources.pids,
        units::bytes(resources.disk_bytes),
        resources.timeout_seconds
    );
    line("limits", &limits);
    match capsule.handoffs.as_deref() {
        None => line("may call", "any capsule"),
        Some([]) => line("may call", "no capsule"),
        Some(names) => line("may call", &names.join(", ")),
    }
    if !capsule.mcp_servers.is_empty() {
        line("MCP servers", &capsule.mcp_servers.join(", "));
    }
    if !capsule.secrets.is_empty() {
        line("secrets", &capsule.secrets.join(", "));
    }
    if !capsule.egress.is_empty() {
        line("egress", &capsule.egress.join(", "));
    }
    for side in ["input", "output"] {
        let schema = capsule.schema.as_ref().and_then(|schema| schema.get(side));
        if let Some(schema) = schema {
            let _ = write!(text, "{side}\n{}", fields(schema));
        }
    }
    text
}

/// A base image: its reference, its id, and where else it is.
pub(crate) fn base(base: &BaseView) -> String {
    let place = match (&base.digest, base.is_stored) {
        (Some(digest), _) => digest,
        (None, true) => "in the artifact store",
        (None, false) => "only on hosts",
    };
    format!("{} = {} ({place})", base.reference, base.image)
}

/// The layers of an image from the base up, one per line, and their sums.
pub(crate) fn layers(layers: &LayersView) -> String {
    let mut text = String::new();
    for layer in &layers.items {
        let shared = match (layer.is_shared, &layer.shared_with[..]) {
            (false, _) => "only this capsule".to_owned(),
            (true, []) => "also capsules of other tenants".to_owned(),
            (true, names) => format!("also {}", names.join(", ")),
        };
        let (digest, size) = (layer.digest.to_string(), units::bytes(layer.size_bytes));
        // Writing to memory does not fail.
        let _ = writeln!(text, "{}  {size:>10}  {shared}", &digest[..DIGEST_LENGTH]);
    }
    let [all, own] = [layers.size_bytes, layers.own_bytes].map(units::bytes);
    let _ = writeln!(text, "{all} together, {own} of it only in this capsule");
    text
}

/// The members of an object, one per line, without following references.
fn fields(schema: &Value) -> String {
    let none = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object);
    let properties = properties.unwrap_or(&none);
    if properties.is_empty() {
        return "  any object\n".to_owned();
    }
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| required.is_some_and(|names| names.iter().any(|it| it == name));
    let width = properties.keys().map(|name| name.chars().count()).max();
    let width = width.unwrap_or_default() + 2;
    let mut text = String::new();
    for (name, property) in properties {
        let optional = if is_required(name) { "" } else { ", optional" };
        let default = property.get("default");
        let default = default.map_or_else(String::new, |value| format!(" (default {value})"));
        let kind = format!("{}{optional}{default}", kind(property));
        let description = property.get("description").and_then(Value::as_str);
        let line = format!(
            "  {name:<width$}{kind:<24}  {}",
            description.unwrap_or_default()
        );
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

fn kind(property: &Value) -> String {
    let text = |name: &str| property.get(name).and_then(Value::as_str);
    if let Some(format) = text("format")
        && format.contains("path")
    {
        return if format.starts_with("directory") {
            "directory"
        } else {
            "file"
        }
        .to_owned();
    }
    if let Some(values) = property.get("enum").and_then(Value::as_array) {
        let values: Vec<String> = values.iter().map(ToString::to_string).collect();
        return values.join(" | ");
    }
    match (property.get("type"), property.get("items")) {
        (Some(Value::String(kind)), Some(items)) if kind == "array" => {
            format!("list of {}", self::kind(items))
        }
        (Some(Value::String(kind)), _) => kind.clone(),
        (Some(Value::Array(kinds)), _) => {
            let kinds: Vec<&str> = kinds.iter().filter_map(Value::as_str).collect();
            kinds.join(" | ")
        }
        _ => "any".to_owned(),
    }
}
