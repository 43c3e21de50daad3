//! The output of a tool as a sequence of events, and what the rules of the catalogue find in them.

use std::borrow::Cow;

use serde_json::Value;
use serde_json::value::RawValue;

use super::path::{Members, Path, members};
use crate::spending::{Cost, Tokens};
use crate::text::shortened;

/// Largest event that is read, in bytes: larger ones hold the contents of files, never an answer.
const EVENT_BYTES_MAX: usize = 8 << 20;

/// Maximum objects over several lines that do not end: reading one costs up to [`EVENT_BYTES_MAX`].
const BROKEN_OBJECTS_MAX: usize = 8;

/// Maximum models that an answer names.
const MODELS_MAX: usize = 16;

/// Maximum characters of an error message.
pub(super) const MESSAGE_LENGTH_MAX: usize = 2_000;

/// What a tool prints on stdout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// The answer.
    Text,
    /// Objects that may have several lines.
    Json(Vec<Rule>),
    /// Objects of one line each.
    JsonLines(Vec<Rule>),
}

/// What an event means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rule {
    /// The rule applies to events with one of the values in each of the fields.
    pub(super) when: Vec<(Path, Vec<Value>)>,
    /// The answer; that of a later event replaces it.
    pub(super) text: Option<Path>,
    pub(super) usage: Usage,
    /// In dollars.
    pub(super) cost: Option<Path>,
    /// Names of models, or an object whose members have their names.
    pub(super) models: Option<Path>,
    /// If one of the fields exists, a turn begins: what earlier events say about an end no longer counts.
    pub(super) begins: Vec<Path>,
    /// If one of the fields exists, the turn is complete, unless it ended early or failed.
    pub(super) completes: Vec<Path>,
    /// If one of the fields exists, the tool stopped early; the value is the reason.
    pub(super) cut_short: Vec<Path>,
    /// If one of the fields exists, the turn failed; the value is the message.
    pub(super) error: Vec<Path>,
}

/// Numbers of tokens; several fields are added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// Including those from the provider's cache.
    pub(super) input: Vec<Path>,
    pub(super) cached_input: Vec<Path>,
    pub(super) output: Vec<Path>,
}

/// How a turn ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    Completed,
    CutShort(String),
    Failed(String),
}

/// What the events say together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) text: Option<String>,
    pub(super) usage: Option<Tokens>,
    pub(super) cost: Option<Cost>,
    pub(super) models: Vec<String>,
    pub(super) end: Option<End>,
    /// Whether a rule applied to any event.
    pub(super) has_events: bool,
}

impl Format {
    pub(super) fn read(&self, stdout: &[u8]) -> Found {
        let mut found = Found::default();
        match self {
            Self::Text => {
                found.text = Some(String::from_utf8_lossy(stdout).into_owned());
                found.end = Some(End::Completed);
                found.has_events = true;
            }
            Self::Json(rules) => each_object(stdout, |event| found.apply(rules, event)),
            Self::JsonLines(rules) => each_line(stdout, |event| found.apply(rules, event)),
        }
        found
    }
}

/// Calls `read` with each line that is an object.
fn each_line(output: &[u8], mut read: impl FnMut(&Members<'_>)) {
    for line in output.split(|&byte| byte == b'\n') {
        let line = line.trim_ascii();
        if !line.starts_with(b"{") || line.len() > EVENT_BYTES_MAX {
            continue;
        }
        let line = String::from_utf8_lossy(line);
        if let Ok(event) = serde_json::from_str::<Members<'_>>(&line) {
            read(&event);
        }
    }
}

/// Calls `read` with each object that begins a line.
fn each_object(output: &[u8], mut read: impl FnMut(&Members<'_>)) {
    let text = String::from_utf8_lossy(output);
    let mut rest: &str = &text;
    let mut broken = 0;
    while broken < BROKEN_OBJECTS_MAX {
        rest = rest.trim_start();
        let mut length = 0;
        if rest.starts_with('{') {
            let (start, _) = rest.split_at(boundary(rest, EVENT_BYTES_MAX));
            let mut objects = serde_json::Deserializer::from_str(start).into_iter::<&RawValue>();
            match objects.next() {
                Some(Ok(object)) => {
                    members(object).iter().for_each(&mut read);
                    length = object.get().len();
                }
                _ => broken += 1,
            }
        }
        let Some(line) = rest[length..].find('\n') else {
            return;
        };
        rest = &rest[length + line..];
    }
}

/// The largest boundary of characters in `text` up to `index`.
fn boundary(text: &str, index: usize) -> usize {
    let mut index = index.min(text.len());
    while !text.is_char_boundary(index) {
        index -= 1;
    }
    index
}

impl Found {
    fn apply(&mut self, rules: &[Rule], event: &Members<'_>) {
        for rule in rules.iter().filter(|rule| rule.is_for(event)) {
            self.has_events = true;
            let texts = rule.text.iter().flat_map(|path| path.values(event));
            let text: String = texts.filter_map(text_of).collect();
            if !text.trim().is_empty() {
                self.text = Some(text);
            }
            self.add_usage(&rule.usage, event);
            if let Some(cost) = rule.cost.as_ref().and_then(|path| cost_of(path, event)) {
                self.cost = Some(self.cost.unwrap_or_default() + cost);
            }
            for model in rule.models.iter().flat_map(|path| names(path, event)) {
                if self.models.len() < MODELS_MAX && !self.models.contains(&model) {
                    self.models.push(model);
                }
            }
            if rule.begins.iter().any(|path| path.value(event).is_some()) {
                self.end = None;
            }
            match rule.end(event) {
                Some(End::Completed) => {
                    self.end.get_or_insert(End::Completed);
                }
                Some(failure) => self.end = Some(failure),
                None => (),
            }
        }
    }

    fn add_usage(&mut self, usage: &Usage, event: &Members<'_>) {
        let [input, cached_input, output] =
            [&usage.input, &usage.cached_input, &usage.output].map(|paths| sum(paths, event));
        if input.is_none() && output.is_none() {
            return;
        }
        let so_far = self.usage.unwrap_or_default();
        let add = |so_far: u64, more: Option<u64>| so_far.saturating_add(more.unwrap_or_default());
        self.usage = Some(Tokens {
            input: add(so_far.input, input),
            cached_input: add(so_far.cached_input, cached_input),
            output: add(so_far.output, output),
        });
    }
}

impl Rule {
    fn is_for(&self, event: &Members<'_>) -> bool {
        self.when.iter().all(|(path, expected)| {
            let value = path.value(event);
            value.is_some_and(|value| expected.iter().any(|expected| is_equal(value, expected)))
        })
    }

    fn end(&self, event: &Members<'_>) -> Option<End> {
        let message = |paths: &[Path]| {
            let value = paths.iter().find_map(|path| path.value(event))?;
            let text = text_of(value).unwrap_or_else(|| value.get().into());
            Some(shortened(text.trim(), MESSAGE_LENGTH_MAX))
        };
        let failed = message(&self.error).map(End::Failed);
        let cut_short = || message(&self.cut_short).map(End::CutShort);
        let completed = || message(&self.completes).map(|_| End::Completed);
        failed.or_else(cut_short).or_else(completed)
    }
}

fn is_equal(value: &RawValue, expected: &Value) -> bool {
    match expected {
        Value::String(expected) => text_of(value).is_some_and(|text| text == *expected),
        expected => {
            let json = expected.to_string();
            value.get() == json
        }
    }
}

/// The text, if it is one.
fn text_of(value: &RawValue) -> Option<Cow<'_, str>> {
    let json = value.get();
    let text = json.starts_with('"').then(|| serde_json::from_str(json));
    text?.ok().map(Cow::Owned)
}

/// The sum of the whole numbers from 0 that 64 bits hold; none if there is no such number.
fn sum(paths: &[Path], event: &Members<'_>) -> Option<u64> {
    let values = paths.iter().flat_map(|path| path.values(event));
    let numbers = values.filter_map(|value| value.get().parse::<u64>().ok());
    numbers.reduce(u64::saturating_add)
}

fn cost_of(path: &Path, event: &Members<'_>) -> Option<Cost> {
    let dollars = path.value(event)?.get().parse().ok()?;
    Cost::from_dollars(dollars)
}

/// The texts of a field, and the names of the members of its objects.
fn names(path: &Path, event: &Members<'_>) -> Vec<String> {
    let values = path.values(event).into_iter();
    values
        .flat_map(|value| match text_of(value) {
            Some(text) => vec![text.into_owned()],
            None => members(value).map_or_else(Vec::new, |members| members.into_keys().collect()),
        })
        .collect()
}
