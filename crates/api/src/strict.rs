//! Strict reader of request bodies, for gateway and node: reports all missing, unknown and mistyped fields together, each
//! with its JSON pointer, the given value and what was expected.
//!
//! The readers of single requests are beside their types: `SetRule::read`, `CreateRun::read` and so on.

#[cfg(test)]
mod tests;
mod values;

use std::fmt::Display;

use aod_domain::contract::{
    self, PAYLOAD_SIZE_BYTES_MAX, PROBLEMS_MAX, STRUCTURE_SIZE_BYTES_MAX, pointer_part,
};
use aod_domain::error_code::ErrorCode;
use aod_domain::json::{self, Unreadable};
use serde_json::{Map, Value};

use crate::problem::{Problem, ProblemItem};

/// Maximum size of a JSON body: three times the largest payload, because text may be escaped (`\u00fc` for `ü`).
pub const JSON_BYTES_MAX: usize = 3 * PAYLOAD_SIZE_BYTES_MAX;

/// Maximum bytes of a JSON body outside its strings: four times those of a payload, because it may be indented. It bounds
/// the memory for the values of a body.
const STRUCTURE_BYTES_MAX: usize = 4 * STRUCTURE_SIZE_BYTES_MAX;

/// Maximum length of an `Idempotency-Key`, in bytes, at gateways and nodes.
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;

/// Minimum similarity (Jaro-Winkler) of a known field to be suggested for an unknown field.
const SIMILARITY_MIN: f64 = 0.7;

/// Maximum characters of a value in a message.
const SHOWN_LENGTH_MAX: usize = 80;

/// A body that is not the expected request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    pub code: ErrorCode,
    pub detail: String,
    pub errors: Vec<ProblemItem>,
}

impl Malformed {
    pub fn new(detail: impl Into<String>) -> Self {
        Self {
            code: ErrorCode::RequestMalformed,
            detail: detail.into(),
            errors: Vec::new(),
        }
    }
}

impl From<Malformed> for Problem {
    fn from(malformed: Malformed) -> Self {
        Self::new(malformed.code, malformed.detail).with_errors(malformed.errors)
    }
}

pub type Result<T> = std::result::Result<T, Malformed>;

/// The value of the header `Idempotency-Key`.
///
/// # Errors
/// The expected form.
pub fn idempotency_key(value: &[u8]) -> std::result::Result<String, String> {
    let is_valid = (1..=IDEMPOTENCY_KEY_BYTES_MAX).contains(&value.len())
        && value.iter().all(|byte| (b' '..=b'~').contains(byte));
    let text = std::str::from_utf8(value).ok().filter(|_| is_valid);
    text.map(str::to_owned).ok_or_else(|| {
        format!(
            "invalid header `Idempotency-Key`; expected 1 to {IDEMPOTENCY_KEY_BYTES_MAX} visible ASCII characters"
        )
    })
}

/// An object: the fields that are not taken yet, and the problems so far.
#[derive(Debug)]
pub struct Fields {
    /// The pointer to the object in the body.
    place: String,
    given: Map<String, Value>,
    known: Vec<&'static str>,
    errors: Vec<ProblemItem>,
    /// The numbers of the body that would change.
    numbers: Vec<ProblemItem>,
}

impl Fields {
    /// `bytes` must be one JSON object.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let structure = structure_size_bytes(bytes);
        if structure > STRUCTURE_BYTES_MAX {
            let text = format!(
                "the body has {structure} bytes of JSON outside its strings; expected at most \
                 {STRUCTURE_BYTES_MAX}: put large data into files"
            );
            return Err(Malformed {
                code: ErrorCode::PayloadTooLarge,
                ..Malformed::new(text)
            });
        }
        let (value, numbers) = json::read_with_problems(bytes).map_err(|error| match error {
            Unreadable::Malformed(error) => {
                Malformed::new(format!("the body is not JSON: {error}"))
            }
            Unreadable::Numbers(problems) => invalid(items(&problems)),
        })?;
        match value {
            Value::Object(given) => Ok(Self {
                numbers: items(&numbers),
                ..Self::of(String::new(), given)
            }),
            _ => Err(Malformed::new("the body is not a JSON object")),
        }
    }

    /// As [`Fields::parse`]; a missing body counts as an empty object.
    pub fn parse_optional(bytes: &[u8]) -> Result<Self> {
        Self::parse(if bytes.is_empty() { b"{}" } else { bytes })
    }

    const fn of(place: String, given: Map<String, Value>) -> Self {
        Self {
            place,
            given,
            known: Vec::new(),
            errors: Vec::new(),
            numbers: Vec::new(),
        }
    }

    /// Adds a problem at `pointer` of this object.
    pub fn error(&mut self, pointer: impl Display, message: impl Into<String>) {
        let pointer = format!("{}{pointer}", self.place);
        self.errors.push(ProblemItem::new(pointer, message));
    }

    /// Adds the problem that `found` is at `pointer` of this object.
    pub fn wrong(&mut self, pointer: impl Display, found: &Value, expected: impl Display) {
        self.error(
            pointer,
            format!("{} given; expected {expected}", shown(found)),
        );
    }

    /// Whether the body has the field, not necessarily with a value.
    pub fn has(&self, key: &str) -> bool {
        self.given.contains_key(key)
    }

    /// Removes a field that is accepted and not used.
    pub fn ignore(&mut self, key: &str) {
        self.given.remove(key);
    }

    /// The value of `key`; `null` counts as missing.
    pub fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.given.remove(key).filter(|value| !value.is_null())
    }

    /// An object that `read` reads strictly; none if it is missing.
    pub fn part<T>(&mut self, key: &'static str, read: impl FnOnce(&mut Self) -> T) -> Option<T> {
        let given = self.object(key)?;
        Some(self.nested(&format!("/{key}"), given, read))
    }

    /// A list of objects, each with its index. Problems of an object do not hide those of the others.
    pub fn parts<T>(
        &mut self,
        key: &'static str,
        mut read: impl FnMut(&mut Self) -> T,
    ) -> Vec<(usize, T)> {
        let mut parts = Vec::new();
        for (index, value) in self.list(key).into_iter().enumerate() {
            let pointer = format!("/{key}/{index}");
            match value {
                Value::Object(given) => {
                    parts.push((index, self.nested(&pointer, given, &mut read)));
                }
                other => self.wrong(pointer, &other, "an object"),
            }
        }
        parts
    }

    fn nested<T>(
        &mut self,
        pointer: &str,
        given: Map<String, Value>,
        read: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let mut fields = Self::of(format!("{}{pointer}", self.place), given);
        let part = read(&mut fields);
        fields.reject_unknown();
        self.errors.append(&mut fields.errors);
        part
    }

    /// An object that the domain reads; its default on error.
    pub fn domain<T: Default>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&Map<String, Value>) -> std::result::Result<T, Vec<(String, String)>>,
    ) -> T {
        let given = self.object(key).unwrap_or_default();
        read(&given).unwrap_or_else(|errors| {
            for (pointer, message) in errors {
                self.error(format_args!("/{key}{pointer}"), message);
            }
            T::default()
        })
    }

    /// Reports all problems; to be called last. Unknown fields are problems.
    pub fn finish(mut self) -> Result<()> {
        self.reject_unknown();
        self.finish_known()
    }

    /// As [`Fields::finish`], with unknown fields ignored.
    pub fn finish_known(self) -> Result<()> {
        let Self {
            mut errors,
            mut numbers,
            ..
        } = self;
        // The field has another problem only because its number is another one.
        errors.retain(|error| {
            let mut numbers = numbers.iter();
            numbers.all(|number| number.pointer != error.pointer)
        });
        numbers.append(&mut errors);
        if numbers.is_empty() {
            return Ok(());
        }
        Err(invalid(numbers))
    }

    fn reject_unknown(&mut self) {
        // Comparing more fields with the known ones would take longer than it helps.
        let unknown = std::mem::take(&mut self.given);
        for key in unknown.keys().take(PROBLEMS_MAX) {
            let message = match nearest(key, &self.known) {
                Some(near) => format!("no such field; did you mean {near:?}?"),
                None => format!("no such field; expected one of {}", self.known.join(", ")),
            };
            self.error(format_args!("/{}", pointer_part(key)), message);
        }
    }
}

fn invalid(errors: Vec<ProblemItem>) -> Malformed {
    Malformed {
        errors,
        ..Malformed::new("the body has invalid fields")
    }
}

fn items(problems: &[contract::Problem]) -> Vec<ProblemItem> {
    let items = problems.iter();
    items
        .map(|problem| ProblemItem::within("", problem))
        .collect()
}

fn nearest(key: &str, known: &[&'static str]) -> Option<&'static str> {
    let similarity = |name: &&'static str| strsim::jaro_winkler(key, name);
    let best = known
        .iter()
        .copied()
        .max_by(|one, other| similarity(one).total_cmp(&similarity(other)))?;
    (similarity(&best) >= SIMILARITY_MIN).then_some(best)
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_LENGTH_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The bytes of `json` outside its strings, before it is parsed.
fn structure_size_bytes(json: &[u8]) -> usize {
    let (mut outside, mut is_text, mut is_escaped) = (0, false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => {
                is_text = !is_text;
                outside += 1;
            }
            _ if is_text => (),
            _ => outside += 1,
        }
    }
    outside
}
