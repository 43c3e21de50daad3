//! Parsing of schema files, and messages about malformed ones.

use super::*;

fn check_parse(schema_json: &str, expected: &[(&str, ProblemCode)]) -> Vec<Problem> {
    let problems = Contract::parse(schema_json.as_bytes())
        .err()
        .unwrap_or_default();
    let found: Vec<_> = problems
        .iter()
        .map(|it| (it.pointer.as_str(), it.code))
        .collect();
    assert_eq!(found, expected, "{problems:#?}");
    problems
}

fn check_input_schema(input: &Value, expected: &[(&str, ProblemCode)]) -> Vec<Problem> {
    check_parse(
        &json!({ "input": input, "output": {} }).to_string(),
        expected,
    )
}

#[test]
fn the_example_of_the_standard_loads() {
    let example = r#"{
      "input": {
        "type": "object",
        "properties": {
          "retry_count": { "type": "integer" },
          "user_prompt": { "type": "string" },
          "source_document": { "type": "string", "format": "file_path", "description": "A PDF" }
        },
        "required": ["user_prompt", "source_document"]
      },
      "output": {
        "type": "object",
        "properties": {
          "summary_text": { "type": "string" },
          "processed_document": { "type": "string", "description": "Filename" }
        }
      }
    }"#;
    check_parse(example, &[]);
}

#[test]
fn malformed_schema_file_is_refused() {
    use ProblemCode::SchemaMalformed;
    check_parse("", &[("", SchemaMalformed)]);
    check_parse("{", &[("", SchemaMalformed)]);
    check_parse("[]", &[("", SchemaMalformed)]);
    check_parse("{}", &[("", SchemaMalformed), ("", SchemaMalformed)]);
    let problems = check_parse(r#"{"input": {}, "ouput": {}}"#, &[("", SchemaMalformed)]);
    assert!(
        problems[0].message.contains("did you mean \"ouput\"?"),
        "{}",
        problems[0]
    );
    check_parse(&"[".repeat(5_000), &[("", SchemaMalformed)]);
    let large = " ".repeat(SCHEMA_SIZE_BYTES_MAX + 1);
    check_parse(&large, &[("", ProblemCode::TooLarge)]);
    check_parse(
        r#"{"input": 1, "output": true}"#,
        &[("/input", ProblemCode::SchemaInvalid)],
    );
}

#[test]
fn all_mistakes_of_a_schema_are_reported_together() {
    use ProblemCode::{SchemaInvalid, SchemaReference};
    let file = json!({
        "input": {"required": 5, "properties": {"x": {"type": "int", "minimum": "a"}}},
        "output": {"properties": {"a/b": {"$ref": "#/nope"}}, "minProperties": -1},
    });
    let problems = check_parse(
        &file.to_string(),
        &[
            ("/input/properties/x/minimum", SchemaInvalid),
            ("/input/properties/x/type", SchemaInvalid),
            ("/input/required", SchemaInvalid),
            ("/output/properties/a~1b/$ref", SchemaReference),
            ("/output/minProperties", SchemaInvalid),
        ],
    );
    assert!(
        problems[1].message.contains("did you mean \"integer\"?"),
        "{}",
        problems[1]
    );
    assert!(
        problems[3].message.contains("\"#/nope\" has no target"),
        "{}",
        problems[3]
    );
}

#[test]
fn mistake_of_a_schema_is_reported_once() {
    let input = json!({"properties": {"list": {"items": [{"type": "integer"}]}}});
    check_input_schema(
        &input,
        &[("/input/properties/list/items", ProblemCode::SchemaInvalid)],
    );
}

#[test]
fn references_stay_in_their_schema() {
    use ProblemCode::SchemaReference;
    for reference in [
        "https://example.com/x",
        "file:///etc/passwd",
        "other.json",
        "other.json#/x",
        "#nowhere",
        "#/%zz",
        "#/%f",
        "",
        "https://json-schema.org/draft/2020-12/schema",
    ] {
        check_input_schema(
            &json!({"$ref": reference}),
            &[("/input/$ref", SchemaReference)],
        );
        let nested = json!({"anyOf": [{"items": {"$ref": reference}}]});
        check_input_schema(&nested, &[("/input/anyOf/0/items/$ref", SchemaReference)]);
    }
    check_input_schema(
        &json!({"$schema": "https://example.com/x"}),
        &[("/input", SchemaReference)],
    );
    let only_data =
        json!({"const": {"$ref": "https://example.com/x", "$id": "https://example.com/y"}});
    check_input_schema(&only_data, &[]);
    let other_base = json!({"$defs": {"a": {"$id": "https://example.com/"}}});
    check_input_schema(&other_base, &[("/input/$defs/a/$id", SchemaReference)]);
    let dynamic = json!({"$dynamicAnchor": "x", "items": {"$dynamicRef": "#x"}});
    check_input_schema(&dynamic, &[("/input/items/$dynamicRef", SchemaReference)]);
}

#[test]
fn references_within_a_schema_are_followed() {
    let input = json!({
        "$id": "https://example.com/root",
        "properties": {
            "a": {"$ref": "#/$defs/a%20b~1c"},
            "b": {"$ref": "#named"},
            "c": {"$ref": "#/elsewhere/0"},
            "$ref": {"type": "string"},
        },
        "$defs": {"a b/c": {"type": "integer"}, "n": {"$anchor": "named", "type": "integer"}},
        "elsewhere": [{"$ref": "#named"}],
    });
    for place in ["a", "b", "c"] {
        let problems = codes(check_input(&input, json!({ place: "x" })));
        assert_eq!(problems, [(format!("/{place}"), ProblemCode::DoesNotFit)]);
    }
    check_becomes(
        &input,
        json!({"a": 1, "$ref": "x"}),
        &json!({"a": 1, "$ref": "x"}),
    );
}

#[test]
fn patterns_are_linear_or_refused() {
    use ProblemCode::{SchemaInvalid, TooComplex};
    for pattern in ["(a+)+(?=x)", r"(a)\1", "(a{1000}){1000}", "("] {
        check_input_schema(
            &json!({"pattern": pattern}),
            &[("/input/pattern", SchemaInvalid)],
        );
    }
    let many: Vec<_> = (0..=PATTERNS_MAX)
        .map(|number| json!({"pattern": format!("^{number}$")}))
        .collect();
    check_input_schema(&json!({"allOf": many}), &[("/input", TooComplex)]);
}

#[test]
fn an_older_draft_holds_for_the_side_or_for_the_file() {
    let draft_7 = "http://json-schema.org/draft-07/schema#";
    let items = json!([{"type": "integer"}, {"format": "file_path"}]);
    let input = json!({"properties": {"list": {"items": items, "additionalItems": false}}});
    let mut side = input.clone();
    side["$schema"] = draft_7.into();
    let of_side = json!({"input": side, "output": {}});
    let of_file = json!({"$schema": draft_7, "input": input, "output": {}});
    for schema in [of_side, of_file] {
        let contract = Contract::parse(schema.to_string().as_bytes()).expect("a proper schema");
        let check = |payload| contract.check_input(payload, Directory::Input, &exists);
        let checked = check(json!({"list": [1, "graph.png"]})).expect("fits");
        assert!(checked.references[0].declared, "{:?}", checked.references);
        assert_eq!(codes(check(json!({"list": [1, "graph.png", 2]}))).len(), 1);
    }
}

#[test]
fn clones_share_and_schemas_are_shown() {
    let input = json!({"type": "object"});
    let contract = contract(&input);
    assert_eq!(contract.clone().input_schema(), &input);
    assert!(std::ptr::eq(
        contract.clone().output_schema(),
        contract.output_schema()
    ));
}

#[test]
fn number_of_a_schema_that_64_bits_cannot_hold_is_a_problem() {
    check_parse(
        r#"{"input": {"maximum": 18446744073709551616}, "output": {"default": [1.0, 1e400]}}"#,
        &[
            ("/input/maximum", ProblemCode::NumberInexact),
            ("/output/default/1", ProblemCode::NumberInexact),
        ],
    );
}
