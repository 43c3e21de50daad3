//! Fields of JSON objects: `usage.input_tokens`, `models.*.tokens`.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use thiserror::Error;

use crate::text::quoted;

/// Maximum names in a path.
const LENGTH_MAX: usize = 8;

/// The members of an object, as the JSON that was written.
pub(super) type Members<'a> = BTreeMap<String, &'a RawValue>;

/// Names of members, from the outside to the inside. `*` stands for all members of an object, or items of a list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Path(Vec<String>);

#[derive(Debug, Error)]
#[error(
    "invalid field {0}; expected 1 to {LENGTH_MAX} names with dots between them, such as usage.input_tokens"
)]
pub(super) struct MalformedPath(String);

impl Path {
    pub(super) fn parse(text: &str) -> Result<Self, MalformedPath> {
        let names: Vec<String> = text.split('.').map(str::to_owned).collect();
        let is_fine = names.iter().all(|name| !name.is_empty()) && names[0] != "*";
        if is_fine && names.len() <= LENGTH_MAX {
            Ok(Self(names))
        } else {
            Err(MalformedPath(quoted(text)))
        }
    }

    /// The values of the field, except null.
    pub(super) fn values<'a>(&self, object: &Members<'a>) -> Vec<&'a RawValue> {
        let mut values: Vec<&RawValue> = object.get(&self.0[0]).copied().into_iter().collect();
        for name in &self.0[1..] {
            values = values
                .into_iter()
                .flat_map(|value| inner(value, name))
                .collect();
        }
        values.retain(|value| value.get() != "null");
        values
    }

    /// The first value of the field.
    pub(super) fn value<'a>(&self, object: &Members<'a>) -> Option<&'a RawValue> {
        self.values(object).into_iter().next()
    }
}

/// The members of an object; none for other values.
pub(super) fn members(json: &RawValue) -> Option<Members<'_>> {
    let is_object = json.get().starts_with('{');
    is_object.then(|| serde_json::from_str(json.get()).ok())?
}

/// The member `name`, or all if it is `*`.
fn inner<'a>(json: &'a RawValue, name: &str) -> Vec<&'a RawValue> {
    if name == "*" && json.get().starts_with('[') {
        return serde_json::from_str(json.get()).unwrap_or_default();
    }
    let Some(mut members) = members(json) else {
        return Vec::new();
    };
    if name == "*" {
        return members.into_values().collect();
    }
    members.remove(name).into_iter().collect()
}
