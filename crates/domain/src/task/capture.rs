//! Finds the outputs of a step in the answer of an AI tool.
//!
//! The answer is text with a JSON object in it, among reasoning, code and other objects. The object that has the most of
//! the declared outputs counts, first among those in fenced blocks, then among all in the text; the last of equals.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::{Output, OutputType};

/// Maximum bytes that the search looks at, some of them several times: hostile answers have many open braces.
const LOOKED_AT_MAX: usize = 256 << 20;

/// Maximum size of an object, in bytes; what does not end before is no object.
const OBJECT_BYTES_MAX: usize = 256 << 10;

/// Maximum depth of objects in which outputs are looked for.
const DEPTH_MAX: usize = 32;

/// The outputs in an answer; files are no part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// By name: texts as they are, other values as the JSON that the tool wrote.
    pub values: BTreeMap<String, String>,
    /// The outputs that the answer does not have.
    pub missing: Vec<String>,
    /// The outputs whose value has another type than the declared one.
    pub misfits: Vec<String>,
}

/// Finds the values of `outputs` in `answer`.
pub fn capture(answer: &str, outputs: &[Output]) -> Captured {
    let is_value = |output: &&Output| !matches!(output.kind, OutputType::File(_));
    let wanted: Vec<&Output> = outputs.iter().filter(is_value).collect();
    if wanted.is_empty() {
        return Captured::default();
    }
    let mut search = Search {
        wanted: &wanted,
        left: LOOKED_AT_MAX,
        best: None,
    };
    for block in fenced(answer) {
        search.look_through(block);
    }
    if search.best.is_none() {
        search.look_through(answer);
    }
    let mut found = search.best.map(|(_, found)| found).unwrap_or_default();
    let mut captured = Captured::default();
    for output in wanted {
        let Some(json) = found.remove(&output.name) else {
            captured.missing.push(output.name.clone());
            continue;
        };
        if !has_type(&json, &output.kind) {
            captured.misfits.push(output.name.clone());
        }
        captured.values.insert(output.name.clone(), text_of(&json));
    }
    captured
}

/// The members of an object, as the JSON that was written.
type Members = BTreeMap<String, Box<RawValue>>;

struct Search<'a> {
    wanted: &'a [&'a Output],
    /// Bytes that may still be looked at.
    left: usize,
    /// The best object, with the number of outputs that it has.
    best: Option<(usize, Members)>,
}

impl Search<'_> {
    /// Considers all objects in the text, also those in other objects.
    fn look_through(&mut self, text: &str) {
        let mut position = 0;
        while let Some(found) = text[position..].find('{') {
            let start = position + found;
            let bytes = &text.as_bytes()[start..];
            let bytes = &bytes[..bytes.len().min(OBJECT_BYTES_MAX)];
            let (looked_at, end) = balanced(bytes);
            let Some(left) = self.left.checked_sub(looked_at) else {
                return;
            };
            self.left = left;
            let object = end.map(|length| &text[start..start + length]);
            position = match object {
                Some(object) if self.consider(object, 0) => start + object.len(),
                _ => start + 1,
            };
        }
    }

    /// Considers an object and the objects in it; false if the text is not JSON.
    fn consider(&mut self, object: &str, depth: usize) -> bool {
        let Ok(members) = serde_json::from_str::<Members>(object) else {
            return false;
        };
        let inner: Vec<Box<RawValue>> = members
            .values()
            .filter(|value| value.get().starts_with('{'))
            .cloned()
            .collect();
        let names = self.wanted.iter().map(|output| &output.name);
        let count = names.filter(|name| members.contains_key(*name)).count();
        let best = self.best.as_ref().map_or(1, |(count, _)| *count);
        if count >= best {
            self.best = Some((count, members));
        }
        if depth < DEPTH_MAX {
            for object in inner {
                let Some(left) = self.left.checked_sub(object.get().len()) else {
                    break;
                };
                self.left = left;
                self.consider(object.get(), depth + 1);
            }
        }
        true
    }
}

/// How many bytes were looked at, and the length of the object that begins the text; none if it does not end.
fn balanced(bytes: &[u8]) -> (usize, Option<usize>) {
    let (mut depth, mut is_text, mut is_escaped) = (0_usize, false, false);
    for (index, byte) in bytes.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b'{' if !is_text => depth += 1,
            b'}' if !is_text => {
                depth -= 1;
                if depth == 0 {
                    return (index + 1, Some(index + 1));
                }
            }
            _ => (),
        }
    }
    (bytes.len(), None)
}

/// The contents of the blocks between lines of three backticks; a block without an end goes to the end of the text.
fn fenced(text: &str) -> Vec<&str> {
    const FENCE: &str = "```";
    let mut blocks = Vec::new();
    let mut begin = None;
    let mut position = 0;
    for line in text.split_inclusive('\n') {
        let is_fence = line.trim_start().starts_with(FENCE);
        position += line.len();
        match begin {
            None if is_fence => begin = Some(position),
            Some(start) if is_fence => {
                blocks.push(&text[start..position - line.len()]);
                begin = None;
            }
            _ => (),
        }
    }
    blocks.extend(begin.map(|start| &text[start..]));
    blocks
}

fn has_type(json: &RawValue, kind: &OutputType) -> bool {
    let first = json.get().bytes().next();
    match kind {
        OutputType::Text => first == Some(b'"'),
        OutputType::Number => first.is_some_and(|byte| byte == b'-' || byte.is_ascii_digit()),
        OutputType::Boolean => matches!(json.get(), "true" | "false"),
        OutputType::File(_) => false,
    }
}

fn text_of(json: &RawValue) -> String {
    serde_json::from_str::<String>(json.get()).unwrap_or_else(|_| json.get().to_owned())
}
