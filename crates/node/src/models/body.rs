//! The body of a request: its fields as raw JSON, each once.
//!
//! The node does not parse the values of fields: a capsule chooses them, and as parsed values they may take a hundred
//! times the memory.

use std::collections::BTreeMap;
use std::fmt;

use axum::body::Bytes;
use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

/// Maximum number of fields; the formats have some thirty.
const FIELDS_MAX: usize = 256;

/// Maximum size of a field that the node parses, in bytes: many tools with long schemas.
const READ_BYTES_MAX: usize = 1 << 20;

/// Maximum size of the settings of a request, in bytes.
const SETTINGS_BYTES_MAX: usize = 64 << 10;

/// The fields of a request.
#[derive(Debug)]
pub(super) struct Fields(BTreeMap<String, Box<RawValue>>);

/// The type of a tool.
#[derive(Debug, Deserialize)]
pub(super) struct Tool {
    /// None for a capsule's own tools in Anthropic's format.
    #[serde(rename = "type", default)]
    pub(super) kind: Option<String>,
}

impl Fields {
    /// Parses one object. Rejects duplicate fields: a provider that takes the first of two would see another request.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(bytes)
            .map_err(|error| format!("the body is not a valid request: {error}"))
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// A text; none for null.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>, String> {
        self.read(name, SETTINGS_BYTES_MAX, "a text")
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, String> {
        self.read(name, SETTINGS_BYTES_MAX, "a whole number")
    }

    pub(super) fn boolean(&self, name: &str) -> Result<Option<bool>, String> {
        self.read(name, SETTINGS_BYTES_MAX, "true or false")
    }

    pub(super) fn object(&self, name: &str) -> Result<Option<BTreeMap<String, Value>>, String> {
        self.read(name, SETTINGS_BYTES_MAX, "an object")
    }

    /// The tools with their types.
    pub(super) fn tools(&self) -> Result<Vec<Tool>, String> {
        let tools = self.read("tools", READ_BYTES_MAX, "a list of tools")?;
        Ok(tools.unwrap_or_default())
    }

    /// The names in each of Google's tools.
    pub(super) fn tool_names(&self) -> Result<Vec<BTreeMap<String, Box<RawValue>>>, String> {
        let tools = self.read("tools", READ_BYTES_MAX, "a list of tools")?;
        Ok(tools.unwrap_or_default())
    }

    pub(super) fn set(&mut self, name: &str, value: &impl serde::Serialize) {
        let value = to_raw_value(value).expect("plain data");
        self.0.insert(name.to_owned(), value);
    }

    /// The bytes to send. Every reader sees the same request.
    pub(super) fn to_bytes(&self) -> Bytes {
        serde_json::to_vec(&self.0).expect("plain data").into()
    }

    fn read<T: DeserializeOwned>(
        &self,
        name: &str,
        bytes_max: usize,
        expected: &str,
    ) -> Result<Option<T>, String> {
        let Some(value) = self.0.get(name) else {
            return Ok(None);
        };
        let text = value.get();
        if text.len() > bytes_max {
            let length = text.len();
            return Err(format!(
                "{name} has {length} bytes; expected at most {bytes_max}"
            ));
        }
        serde_json::from_str(text).map_err(|_| format!("{name}: expected {expected}"))
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let mut fields = BTreeMap::new();
        while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
            if fields.len() == FIELDS_MAX {
                return Err(A::Error::custom("more than 256 fields"));
            }
            let shown: String = name.chars().take(80).collect();
            if fields.insert(name, value).is_some() {
                return Err(A::Error::custom(format!("{shown:?} is given twice")));
            }
        }
        Ok(Fields(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_field_is_rejected() {
        let error = Fields::parse(br#"{"model": "a", "n": 1, "model": "b"}"#).unwrap_err();
        assert!(error.contains("\"model\" is given twice"), "{error}");
    }

    #[test]
    fn body_with_more_than_256_fields_is_rejected() {
        let fields: Vec<_> = (0..300).map(|number| format!("\"{number}\": 0")).collect();
        let error = Fields::parse(format!("{{{}}}", fields.join(",")).as_bytes()).unwrap_err();
        assert!(error.contains("more than 256 fields"), "{error}");
    }

    #[test]
    fn values_of_fields_are_forwarded_unchanged() {
        let fields = Fields::parse(br#"{"messages": [ 1.50, {"b":1,"a":1e3} ]}"#).unwrap();
        let bytes = fields.to_bytes();
        assert_eq!(&bytes[..], br#"{"messages":[ 1.50, {"b":1,"a":1e3} ]}"#);
    }

    #[test]
    fn setting_of_wrong_type_is_reported() {
        let fields = Fields::parse(br#"{"n": null, "m": "2", "stream": 1}"#).unwrap();
        assert_eq!(fields.number("n"), Ok(None));
        assert_eq!(fields.number("m"), Err("m: expected a whole number".into()));
        assert_eq!(
            fields.boolean("stream"),
            Err("stream: expected true or false".into())
        );
    }
}
