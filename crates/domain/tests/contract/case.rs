//! A case of the contract: a schema, a payload and existing files. Its answer is JSON, to compare with a file and with
//! the Python SDK.

use std::collections::BTreeMap;

use aod_domain::contract::{Checked, Contract, FileKind, Problem, rewrite};
use aod_domain::file_name::{Directory, FileName};
use aod_domain::json::{self, Unreadable};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// The origin of a payload, which determines the directory of its files.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Side {
    /// Arguments of a run; names are relative to `/io/input`.
    Input,
    /// Arguments of a call; names are relative to `/io/handoff/outgoing`.
    Handoff,
    /// Output of a run; names are relative to `/io/output`.
    Output,
}

/// A case as stored in `tests/contract/`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    /// A whole `schema.json`, as text: a parsed number may have changed.
    schema: Box<RawValue>,
    side: Side,
    /// May contain the short forms of [`expanded`].
    instance: Box<RawValue>,
    #[serde(default)]
    files: Vec<String>,
    #[serde(default)]
    directories: Vec<String>,
    /// Files that are renamed.
    #[serde(default)]
    rename: BTreeMap<String, FileName>,
}

impl Case {
    /// `{"payload", "references", "rewritten"}`, or `{"refused": "schema"|"payload"|"rename",
    /// "problems": [{"pointer", "code"}]}` with the problems sorted.
    pub(crate) fn answer(&self) -> Value {
        let contract = match Contract::parse(self.schema.get().as_bytes()) {
            Ok(contract) => contract,
            Err(problems) => return refused("schema", &problems),
        };
        let checked = match self.check(&contract) {
            Ok(checked) => checked,
            Err(problems) => return refused("payload", &problems),
        };
        let final_name = |name: &FileName| {
            let other = self.rename.get(name.as_str());
            other.unwrap_or(name).clone()
        };
        match rewrite(checked.payload.clone(), &checked.references, &final_name) {
            Ok(rewritten) => json!({
                "payload": checked.payload, "references": checked.references, "rewritten": rewritten,
            }),
            Err(problems) => refused("rename", &problems),
        }
    }

    fn check(&self, contract: &Contract) -> Result<Checked, Vec<Problem>> {
        let exists = |name: &str| {
            let is_among = |names: &[String]| names.iter().any(|known| known == name);
            if is_among(&self.files) {
                Some(FileKind::File)
            } else {
                is_among(&self.directories).then_some(FileKind::Directory)
            }
        };
        let payload = match json::read(self.instance.get().as_bytes()) {
            Ok(instance) => expanded(&instance),
            Err(Unreadable::Numbers(problems)) => return Err(problems),
            Err(Unreadable::Malformed(error)) => panic!("{error}"),
        };
        match self.side {
            Side::Input => contract.check_input(payload, Directory::Input, &exists),
            Side::Handoff => contract.check_input(payload, Directory::Outgoing, &exists),
            Side::Output => contract.check_output(payload, &exists),
        }
    }
}

fn refused(stage: &str, problems: &[Problem]) -> Value {
    let mut problems: Vec<_> = problems
        .iter()
        .map(|problem| json!({"pointer": problem.pointer, "code": problem.code}))
        .collect();
    problems.sort_by_key(ToString::to_string);
    json!({"refused": stage, "problems": problems})
}

/// `value` with short forms of large values expanded: `{"$repeat": TEXT, "times": N}` is a text, `{"$list": VALUE,
/// "times": N}` a list, `{"$nest": VALUE, "levels": N}` N nested lists.
pub(crate) fn expanded(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(expanded).collect(),
        Value::Object(members) => short_form(members).unwrap_or_else(|| {
            let members = members.iter();
            Value::Object(
                members
                    .map(|(key, member)| (key.clone(), expanded(member)))
                    .collect(),
            )
        }),
        scalar => scalar.clone(),
    }
}

fn short_form(members: &Map<String, Value>) -> Option<Value> {
    let number = |name: &str| usize::try_from(members.get(name)?.as_u64()?).ok();
    if let Some(text) = members.get("$repeat") {
        return Some(text.as_str()?.repeat(number("times")?).into());
    }
    if let Some(item) = members.get("$list") {
        return Some(vec![expanded(item); number("times")?].into());
    }
    let levels = number("levels")?;
    let value = expanded(members.get("$nest")?);
    Some((0..levels).fold(value, |inner, _| Value::Array(vec![inner])))
}
