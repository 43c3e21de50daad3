//! Walks schema and payload together before the validation: fills in defaults, and bounds the work of the validator.
//!
//! The validator has no limits of its own: with a few dozen `anyOf`s that refer to one another it would run for years,
//! and a long chain of `$ref`s overflows its stack. So this module first counts each pair of a schema and a value, as
//! often as the validator may visit it.

use serde_json::{Map, Value};

use super::limits::{STRUCTURE_SIZE_BYTES_MAX, serialized_size_bytes};
use super::problem::{Problem, ProblemCode};
use super::schema::Schema;

/// Maximum pairs of a schema and a value in one check: each value of the longest possible list, some 131,000, can meet
/// two schemas. Measured with `jsonschema` 0.60, optimised, on two busy cores: such a list takes 0.7 s, the worst
/// schema at this bound 1.6 s.
pub const STEPS_MAX: usize = 300_000;

/// Deepest nesting of schemas in one check, values and references together. Measured with
/// `jsonschema` 0.60, unoptimised: 250 fit the 2 MiB stack of a thread, 500 do not.
pub const VALIDATION_DEPTH_MAX: usize = 200;

/// Number of `enum` values that count as one step, because comparing is cheap.
const ENUM_VALUES_PER_STEP: usize = 16;

/// The handling of absent properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defaults {
    Fill,
    Leave,
}

pub(crate) fn walk(
    schema: &Schema,
    payload: &mut Value,
    defaults: Defaults,
) -> Result<(), Problem> {
    let mut walk = Walk {
        schema,
        defaults,
        steps: 0,
        filled_bytes: 0,
    };
    walk.value(
        &[Applied {
            schema: &schema.document,
            certain: true,
            depth: 0,
        }],
        payload,
    )
}

/// A schema that applies to the current value.
#[derive(Clone, Copy)]
struct Applied<'s> {
    schema: &'s Value,
    /// Whether it applies to any value: not within `anyOf` and the like.
    certain: bool,
    /// Number of schemas around it in the validator.
    depth: usize,
}

impl<'s> Applied<'s> {
    fn below(self, schema: &'s Value, certain: bool) -> Self {
        Self {
            schema,
            certain: self.certain && certain,
            depth: self.depth + 1,
        }
    }

    fn keyword(self, keyword: &str) -> Option<&'s Value> {
        self.schema.get(keyword)
    }

    fn schemas(self, keyword: &str) -> Option<&'s Map<String, Value>> {
        self.keyword(keyword)?.as_object()
    }
}

struct Walk<'s> {
    schema: &'s Schema,
    defaults: Defaults,
    steps: usize,
    filled_bytes: usize,
}

impl<'s> Walk<'s> {
    fn value(&mut self, applied: &[Applied<'s>], value: &mut Value) -> Result<(), Problem> {
        let mut here = Vec::with_capacity(applied.len());
        for &schema in applied {
            self.expand(schema, &mut Vec::new(), &mut here)?;
        }
        match value {
            Value::Object(members) => {
                if self.defaults == Defaults::Fill {
                    self.fill(&here, members)?;
                }
                for (key, member) in members {
                    self.property_names(&here)?;
                    self.value(&property_schemas(&here, key), member)?;
                }
                Ok(())
            }
            Value::Array(items) => items
                .iter_mut()
                .enumerate()
                .try_for_each(|(index, item)| self.value(&item_schemas(&here, index), item)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        }
    }

    /// Adds to `here` all schemas that apply to the same value as `applied`, including itself; a schema reached in
    /// several ways is added several times. A cycle of references ends at its beginning, as in the validator.
    fn expand(
        &mut self,
        applied: Applied<'s>,
        path: &mut Vec<&'s Value>,
        here: &mut Vec<Applied<'s>>,
    ) -> Result<(), Problem> {
        let values = applied
            .keyword("enum")
            .and_then(Value::as_array)
            .map_or(0, Vec::len);
        self.count(1 + values / ENUM_VALUES_PER_STEP)?;
        if applied.depth > VALIDATION_DEPTH_MAX {
            return Err(too_complex(&format!(
                "{VALIDATION_DEPTH_MAX} schemas inside one another"
            )));
        }
        let is_cycle = path
            .iter()
            .any(|&schema| std::ptr::eq(schema, applied.schema));
        if is_cycle || !applied.schema.is_object() {
            return Ok(());
        }
        path.push(applied.schema);
        let reference = applied.keyword("$ref").and_then(Value::as_str);
        if reference.is_none() || !self.schema.reference_hides_siblings {
            here.push(applied);
            for beside in schemas_beside(applied) {
                self.expand(beside, path, here)?;
            }
        }
        if let Some(target) = reference.and_then(|reference| self.schema.resolve(reference)) {
            self.expand(applied.below(target, true), path, here)?;
        }
        path.pop();
        Ok(())
    }

    fn fill(
        &mut self,
        here: &[Applied<'s>],
        members: &mut Map<String, Value>,
    ) -> Result<(), Problem> {
        for applied in here.iter().filter(|applied| applied.certain) {
            for (name, property) in applied.schemas("properties").into_iter().flatten() {
                if members.contains_key(name) {
                    continue;
                }
                if let Some(default) = self.default_of(applied.below(property, true))? {
                    self.filled_bytes += name.len() + serialized_size_bytes(default);
                    if self.filled_bytes > STRUCTURE_SIZE_BYTES_MAX {
                        let expected = format!("{STRUCTURE_SIZE_BYTES_MAX} bytes of defaults");
                        return Err(too_complex(&expected));
                    }
                    members.insert(name.clone(), default.clone());
                }
            }
        }
        Ok(())
    }

    /// The `default` of a property: its own, else the one of the schema it refers to.
    fn default_of(&mut self, property: Applied<'s>) -> Result<Option<&'s Value>, Problem> {
        let own = property.keyword("default");
        let refers = property.keyword("$ref").is_some() || property.keyword("allOf").is_some();
        if !refers || (own.is_some() && !self.schema.reference_hides_siblings) {
            return Ok(own);
        }
        let mut here = Vec::new();
        self.expand(property, &mut Vec::new(), &mut here)?;
        let mut certain = here.iter().filter(|applied| applied.certain);
        Ok(certain.find_map(|applied| applied.keyword("default")))
    }

    /// Names are not values of the walk, but schemas apply to them too.
    fn property_names(&mut self, here: &[Applied<'s>]) -> Result<(), Problem> {
        for applied in here {
            if let Some(names) = applied.keyword("propertyNames") {
                self.expand(
                    applied.below(names, false),
                    &mut Vec::new(),
                    &mut Vec::new(),
                )?;
            }
        }
        Ok(())
    }

    fn count(&mut self, steps: usize) -> Result<(), Problem> {
        self.steps += steps;
        if self.steps > STEPS_MAX {
            return Err(too_complex(&format!("{STEPS_MAX} steps")));
        }
        Ok(())
    }
}

fn too_complex(bound: &str) -> Problem {
    let message = format!(
        "checking this value against its schema is too expensive; expected at most {bound}"
    );
    Problem::new("", ProblemCode::TooComplex, message)
}

/// The schemas that apply to the same value as `applied`, except by `$ref`.
fn schemas_beside(applied: Applied<'_>) -> Vec<Applied<'_>> {
    let lists = [("allOf", true), ("anyOf", false), ("oneOf", false)];
    let maps = ["dependentSchemas", "dependencies"];
    let singles = ["not", "if", "then", "else"];
    let mut beside = Vec::new();
    for (keyword, certain) in lists {
        let list = applied.keyword(keyword).and_then(Value::as_array);
        beside.extend(
            list.into_iter()
                .flatten()
                .map(|schema| applied.below(schema, certain)),
        );
    }
    for keyword in maps {
        let map = applied.schemas(keyword);
        beside.extend(
            map.into_iter()
                .flatten()
                .map(|(_, schema)| applied.below(schema, false)),
        );
    }
    for keyword in singles {
        beside.extend(
            applied
                .keyword(keyword)
                .map(|schema| applied.below(schema, false)),
        );
    }
    beside
}

fn property_schemas<'s>(here: &[Applied<'s>], key: &str) -> Vec<Applied<'s>> {
    let mut found = Vec::new();
    for applied in here {
        let named = applied
            .schemas("properties")
            .and_then(|properties| properties.get(key));
        found.extend(named.map(|schema| applied.below(schema, true)));
        let patterns = applied.schemas("patternProperties");
        let patterns_count = patterns.map_or(0, Map::len);
        // The validator decides whether a pattern matches; this count assumes that it does.
        found.extend(
            patterns
                .into_iter()
                .flatten()
                .map(|(_, schema)| applied.below(schema, false)),
        );
        if named.is_none() {
            let others = applied.keyword("additionalProperties");
            found.extend(others.map(|schema| applied.below(schema, patterns_count == 0)));
        }
        let unevaluated = applied.keyword("unevaluatedProperties");
        found.extend(unevaluated.map(|schema| applied.below(schema, false)));
    }
    found
}

fn item_schemas<'s>(here: &[Applied<'s>], index: usize) -> Vec<Applied<'s>> {
    let mut found = Vec::new();
    for applied in here {
        let items = applied.keyword("items");
        // Until draft 2019-09, `items` is the list and `additionalItems` is for the rest.
        let (list, rest) = match items.and_then(Value::as_array) {
            Some(list) => (Some(list), applied.keyword("additionalItems")),
            None => (
                applied.keyword("prefixItems").and_then(Value::as_array),
                items,
            ),
        };
        let listed = list.and_then(|list| list.get(index));
        found.extend(listed.or(rest).map(|schema| applied.below(schema, true)));
        for keyword in ["contains", "unevaluatedItems"] {
            found.extend(
                applied
                    .keyword(keyword)
                    .map(|schema| applied.below(schema, false)),
            );
        }
    }
    found
}
