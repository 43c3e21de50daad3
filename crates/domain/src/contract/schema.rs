//! Parses and compiles `schema.json`, and rejects schemas that could not be checked safely later.

use std::collections::{BTreeMap, BTreeSet};

use data_encoding::HEXLOWER_PERMISSIVE;
use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::{Map, Value};

use super::describe;
use super::limits;
use super::problem::{PROBLEMS_MAX, Problem, ProblemCode, pointer_join};
use super::references::FILE_FORMATS;
use crate::json::{self, Unreadable};
use crate::text::{quoted, quoted_value};

/// Largest `schema.json`, in bytes: as large as a payload.
pub const SCHEMA_SIZE_BYTES_MAX: usize = 256 * 1024;

/// Maximum patterns of one side: together with `PATTERN_SIZE_BYTES_MAX` this bounds its memory.
pub const PATTERNS_MAX: usize = 200;

/// Largest compiled pattern, in bytes.
const PATTERN_SIZE_BYTES_MAX: usize = 1024 * 1024;

/// Keywords whose value is a schema.
const SINGLE_KEYWORDS: [&str; 11] = [
    "additionalItems",
    "additionalProperties",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// Keywords whose value is a list of schemas.
const LIST_KEYWORDS: [&str; 5] = ["allOf", "anyOf", "items", "oneOf", "prefixItems"];

/// Keywords whose value is a map of schemas.
const MAP_KEYWORDS: [&str; 6] = [
    "$defs",
    "definitions",
    "dependencies",
    "dependentSchemas",
    "patternProperties",
    "properties",
];

/// One side of a contract.
pub(crate) struct Schema {
    pub(crate) document: Value,
    pub(crate) validator: Validator,
    /// In drafts 4 to 7, a `$ref` disables all keywords next to it.
    pub(crate) reference_hides_siblings: bool,
    /// JSON pointers of the schemas with an `$anchor`.
    anchors: BTreeMap<String, String>,
}

impl Schema {
    /// The schema that the `$ref` `reference` refers to; none if it is not in this document.
    pub(crate) fn resolve(&self, reference: &str) -> Option<&Value> {
        resolve(&self.document, &self.anchors, reference)
    }
}

pub(crate) fn parse(schema_json: &[u8]) -> Result<(Schema, Schema), Vec<Problem>> {
    let mut file = read(schema_json)?;
    let draft = Draft::default().detect(&Value::Object(file.clone()));
    let mut problems = Vec::new();
    let mut side = |name: &str| {
        let Some(document) = file.remove(name) else {
            problems.push(missing_side(name, &file));
            return None;
        };
        compile(document, name, draft, &mut problems)
    };
    if let (Some(input), Some(output)) = (side("input"), side("output")) {
        return Ok((input, output));
    }
    problems.truncate(PROBLEMS_MAX);
    Err(problems)
}

fn read(schema_json: &[u8]) -> Result<Map<String, Value>, Vec<Problem>> {
    let malformed = |message: String| vec![Problem::new("", ProblemCode::SchemaMalformed, message)];
    if schema_json.len() > SCHEMA_SIZE_BYTES_MAX {
        let size = schema_json.len();
        let message = format!("{size} bytes; expected at most {SCHEMA_SIZE_BYTES_MAX}");
        return Err(vec![Problem::new("", ProblemCode::TooLarge, message)]);
    }
    let file: Value = match json::read(schema_json) {
        Ok(file) => file,
        Err(Unreadable::Numbers(problems)) => return Err(problems),
        Err(Unreadable::Malformed(error)) => {
            return Err(malformed(format!(
                "not JSON: {error}; expected JSON in UTF-8"
            )));
        }
    };
    if let Some(problem) = limits::too_deep(&file, "") {
        return Err(vec![problem]);
    }
    match file {
        Value::Object(file) => Ok(file),
        other => Err(malformed(format!(
            "{} found; expected an object with \"input\" and \"output\"",
            quoted_value(&other)
        ))),
    }
}

fn missing_side(name: &str, file: &Map<String, Value>) -> Problem {
    let nearest = crate::text::nearest(name, file.keys().map(String::as_str));
    let hint = nearest.map_or_else(String::new, |key| {
        format!("; did you mean {}?", quoted(key))
    });
    let message = format!("no {name:?} found; expected a JSON schema there{hint}");
    Problem::new("", ProblemCode::SchemaMalformed, message)
}

fn compile(
    document: Value,
    side: &str,
    draft_of_file: Draft,
    problems: &mut Vec<Problem>,
) -> Option<Schema> {
    let known_count = problems.len();
    let root = pointer_join("", side);
    if !(document.is_object() || document.is_boolean()) {
        let message = format!("{} found; expected a JSON schema", quoted_value(&document));
        problems.push(Problem::new(root, ProblemCode::SchemaInvalid, message));
        return None;
    }
    let draft = match document.get("$schema") {
        Some(_) => Draft::default().detect(&document),
        None => draft_of_file,
    };
    if matches!(draft, Draft::Unknown) {
        let message = "unknown \"$schema\"; expected a draft of json-schema.org from 4 to 2020-12";
        problems.push(Problem::new(root, ProblemCode::SchemaReference, message));
        return None;
    }
    let mut scan = Scan::new(&document, draft, &root);
    scan.run(problems);
    let anchors = scan.anchors;
    describe::schema_errors(&document, draft, &root, problems);
    if problems.len() > known_count {
        return None;
    }
    match options(draft).build(&document) {
        Ok(validator) => Some(Schema {
            validator,
            reference_hides_siblings: hides_siblings(draft),
            anchors,
            document,
        }),
        Err(error) => {
            problems.push(describe::schema_error(&error, &root));
            None
        }
    }
}

/// No schema is ever fetched, and no pattern backtracks. The file formats are registered because drafts 4 to 7 report
/// only known formats.
fn options(draft: Draft) -> jsonschema::ValidationOptions<'static> {
    let patterns = PatternOptions::regex().size_limit(PATTERN_SIZE_BYTES_MAX);
    let options = jsonschema::options()
        .with_draft(draft)
        .offline()
        .with_pattern_options(patterns);
    FILE_FORMATS.iter().fold(options, |options, &format| {
        options.with_format(format, |_: &str| true)
    })
}

fn hides_siblings(draft: Draft) -> bool {
    matches!(draft, Draft::Draft4 | Draft::Draft6 | Draft::Draft7)
}

/// Visits every schema of a document, including those that only a `$ref` reaches.
struct Scan<'s> {
    document: &'s Value,
    id_keyword: &'static str,
    root: &'s str,
    /// Schemas to visit, each with its pointer.
    open: Vec<(&'s Value, String)>,
    seen: BTreeSet<*const Value>,
    references: Vec<(String, &'s str)>,
    anchors: BTreeMap<String, String>,
    patterns: usize,
}

impl<'s> Scan<'s> {
    fn new(document: &'s Value, draft: Draft, root: &'s str) -> Self {
        Self {
            document,
            id_keyword: if matches!(draft, Draft::Draft4) {
                "id"
            } else {
                "$id"
            },
            root,
            open: vec![(document, String::new())],
            seen: BTreeSet::new(),
            references: Vec::new(),
            anchors: BTreeMap::new(),
            patterns: 0,
        }
    }

    /// Terminates, because each schema is visited once.
    fn run(&mut self, problems: &mut Vec<Problem>) {
        loop {
            while let Some((schema, pointer)) = self.open.pop() {
                if let (true, Value::Object(keywords)) = (self.seen.insert(schema), schema) {
                    self.visit(keywords, &pointer, problems);
                }
            }
            // All anchors are known only now; the target of a reference may be a place that no keyword reaches.
            let references = std::mem::take(&mut self.references);
            if references.is_empty() {
                break;
            }
            for (pointer, reference) in references {
                match resolve(self.document, &self.anchors, reference) {
                    Some(target) => self.open.push((target, pointer)),
                    None => problems.push(self.problem(
                        &pointer,
                        ProblemCode::SchemaReference,
                        format!(
                            "{} has no target; expected \"#\", \"#/…\" or \"#anchor\" within this \
                             schema, of which {} is the root",
                            quoted(reference),
                            self.root
                        ),
                    )),
                }
            }
        }
        if self.patterns > PATTERNS_MAX {
            let message = format!(
                "{} patterns; expected at most {PATTERNS_MAX}",
                self.patterns
            );
            problems.push(self.problem("", ProblemCode::TooComplex, message));
        }
    }

    fn visit(
        &mut self,
        keywords: &'s Map<String, Value>,
        pointer: &str,
        problems: &mut Vec<Problem>,
    ) {
        self.refuse_unsupported(keywords, pointer, problems);
        if let Some(reference) = keywords.get("$ref").and_then(Value::as_str) {
            self.references
                .push((pointer_join(pointer, "$ref"), reference));
        }
        for keyword in ["$anchor", "$dynamicAnchor"] {
            if let Some(anchor) = keywords.get(keyword).and_then(Value::as_str) {
                self.anchors.insert(anchor.to_owned(), pointer.to_owned());
            }
        }
        self.patterns += usize::from(keywords.contains_key("pattern"));
        self.patterns += keywords
            .get("patternProperties")
            .and_then(Value::as_object)
            .map_or(0, Map::len);
        for (keyword, child) in keywords {
            let pointer = pointer_join(pointer, keyword);
            let keyword = keyword.as_str();
            match child {
                Value::Array(list) if LIST_KEYWORDS.contains(&keyword) => self.open.extend(
                    list.iter()
                        .enumerate()
                        .map(|(i, child)| (child, pointer_join(&pointer, i))),
                ),
                Value::Object(map) if MAP_KEYWORDS.contains(&keyword) => self.open.extend(
                    map.iter()
                        .map(|(key, child)| (child, pointer_join(&pointer, key))),
                ),
                child if SINGLE_KEYWORDS.contains(&keyword) => self.open.push((child, pointer)),
                _ => (),
            }
        }
    }

    /// Rejects keywords that would resolve differently than in [`resolve`] and evade the bounds of a walk.
    fn refuse_unsupported(
        &self,
        keywords: &Map<String, Value>,
        pointer: &str,
        problems: &mut Vec<Problem>,
    ) {
        let nested = [self.id_keyword, "$schema"]
            .into_iter()
            .filter(|_| !pointer.is_empty());
        let dynamic = ["$dynamicRef", "$recursiveRef"];
        for keyword in nested
            .chain(dynamic)
            .filter(|&keyword| keywords.contains_key(keyword))
        {
            let expected = if dynamic.contains(&keyword) {
                "expected \"$ref\""
            } else {
                "expected only at the root of a schema"
            };
            let message = format!("{keyword:?} is not supported here; {expected}");
            problems.push(self.problem(
                &pointer_join(pointer, keyword),
                ProblemCode::SchemaReference,
                message,
            ));
        }
    }

    fn problem(&self, pointer: &str, code: ProblemCode, message: impl AsRef<str>) -> Problem {
        Problem::new(format!("{}{pointer}", self.root), code, message)
    }
}

fn resolve<'s>(
    document: &'s Value,
    anchors: &BTreeMap<String, String>,
    reference: &str,
) -> Option<&'s Value> {
    let fragment = percent_decoded(reference.strip_prefix('#')?)?;
    if fragment.is_empty() || fragment.starts_with('/') {
        document.pointer(&fragment)
    } else {
        document.pointer(anchors.get(&fragment)?)
    }
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut pieces = text.split('%');
    let mut bytes = pieces.next()?.as_bytes().to_vec();
    for piece in pieces {
        let (digits, rest) = piece.split_at_checked(2)?;
        bytes.extend(HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).ok()?);
        bytes.extend(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}
