//! Valid payloads, their defaults, and messages about invalid ones.

use super::*;

#[test]
fn misfits_name_place_value_and_expectation() {
    use ProblemCode::DoesNotFit;
    let input = json!({
        "additionalProperties": false,
        "required": ["must"],
        "properties": {
            "must": {}, "count": {"type": "integer"}, "size": {"enum": ["small", "large"]},
            "either": {"anyOf": [{"type": "integer"}, {"properties": {"a": {"type": "null"}}, "type": "object"}]},
            "four": {"const": 4}, "short": {"maxLength": 200}, "list": {"items": {"minimum": 3}},
        },
    });
    let check = |payload, pointer: &str, words: &[&str]| {
        check_refused(&input, payload, pointer, DoesNotFit, words);
    };
    check(
        json!({}),
        "",
        &["the required property \"must\" is missing"],
    );
    check(
        json!({"must": 1, "count": "x"}),
        "/count",
        &["\"x\"", "integer"],
    );
    check(
        json!({"must": 1, "size": "medium"}),
        "/size",
        &["\"medium\"", "\"small\"", "\"large\""],
    );
    check(
        json!({"must": 1, "four": 5}),
        "/four",
        &["5 found", "expected 4"],
    );
    check(json!({"must": 1, "list": [3, 2]}), "/list/1", &["2", "3"]);
    check(
        json!({"must": 1, "coutn": 5}),
        "",
        &["\"coutn\"", "expected only", "did you mean \"count\"?"],
    );
    check(
        json!({"must": 1, "either": {"a": "b"}}),
        "/either",
        &["matches none of 2", "integer", "/a: \"b\""],
    );
    let long = "y".repeat(300);
    let problems = check_input(&input, json!({"must": 1, "short": long})).expect_err("too long");
    assert!(
        problems[0]
            .message
            .contains(&format!("{}…", "y".repeat(120))),
        "{}",
        problems[0]
    );
    assert!(
        !problems[0].message.contains(&"y".repeat(121)),
        "{}",
        problems[0]
    );
}

#[test]
fn all_misfits_are_reported_together() {
    let input =
        json!({"required": ["c"], "properties": {"a": {"type": "null"}, "b": {"type": "null"}}});
    let mut found = codes(check_input(&input, json!({"a": 1, "b": 2})));
    found.sort_by(|one, other| one.0.cmp(&other.0));
    let pointers: Vec<_> = found.iter().map(|(pointer, _)| pointer.as_str()).collect();
    assert_eq!(pointers, ["", "/a", "/b"]);
    let many: serde_json::Map<_, _> = (0..200).map(|i| (format!("k{i}"), json!(i))).collect();
    let input = json!({"additionalProperties": {"type": "string"}});
    assert_eq!(codes(check_input(&input, many.into())).len(), PROBLEMS_MAX);
}

#[test]
fn payloads_and_outputs_are_objects() {
    for value in [json!(null), json!([]), json!("x"), json!(1)] {
        check_refused(
            &json!(true),
            value.clone(),
            "",
            ProblemCode::NotAnObject,
            &["object"],
        );
        let problems = contract(&json!(true)).check_output(value, &exists);
        assert_eq!(codes(problems), [(String::new(), ProblemCode::NotAnObject)]);
    }
}

#[test]
fn defaults_are_filled_in() {
    let input = json!({
        "properties": {
            "plain": {"default": 1},
            "null": {"default": null},
            "group": {"default": {}, "properties": {"inner": {"default": "x"}}},
            "absent": {"properties": {"inner": {"default": "never"}}},
            "rows": {"items": {"$ref": "#/$defs/row"}},
            "pair": {"prefixItems": [{"$ref": "#/$defs/row"}]},
            "referred": {"$ref": "#/$defs/named"},
            "own": {"$ref": "#/$defs/named", "default": "own"},
        },
        "allOf": [{"properties": {"all": {"default": [1]}, "plain": {"default": 2}}}],
        "$defs": {"row": {"properties": {"n": {"default": 0}}}, "named": {"default": "there"}},
        "additionalProperties": {"$ref": "#/$defs/row"},
    });
    let filled = json!({
        "plain": 1, "null": null, "group": {"inner": "x"}, "referred": "there", "own": "own", "all": [1],
    });
    check_becomes(&input, json!({}), &filled);
    let mut given = filled;
    given["plain"] = json!(0);
    given["rows"] = json!([{}, {"n": 5}, "text"]);
    given["pair"] = json!([{}, {}]);
    given["other"] = json!({});
    let mut expected = given.clone();
    expected["rows"] = json!([{"n": 0}, {"n": 5}, "text"]);
    expected["pair"] = json!([{"n": 0}, {}]);
    expected["other"] = json!({"n": 0});
    check_becomes(&input, given, &expected);
}

#[test]
fn a_default_of_one_schema_is_completed_by_another() {
    let input = json!({
        "properties": {"x": {"properties": {"y": {"default": 1}}}},
        "allOf": [{"properties": {"x": {"default": {}}}}],
    });
    check_becomes(&input, json!({}), &json!({"x": {"y": 1}}));
}

#[test]
fn no_default_where_the_branch_is_not_certain() {
    let branch = json!({"properties": {"x": {"default": 1}}});
    for keyword in ["anyOf", "oneOf"] {
        check_becomes(&json!({ keyword: [branch] }), json!({}), &json!({}));
    }
    let conditional =
        json!({"if": branch, "then": branch, "else": branch, "dependentSchemas": {"a": branch}});
    check_becomes(&conditional, json!({"a": 1}), &json!({"a": 1}));
    let by_pattern = json!({"patternProperties": {"^a": branch}, "additionalProperties": branch});
    check_becomes(
        &by_pattern,
        json!({"a": {}, "b": {}}),
        &json!({"a": {}, "b": {}}),
    );
}

#[test]
fn defaults_are_checked_like_everything_else() {
    let wrong = json!({"properties": {"x": {"type": "string", "default": 5}}});
    check_refused(
        &wrong,
        json!({}),
        "/x",
        ProblemCode::DoesNotFit,
        &["5", "string"],
    );
    let missing = json!({"properties": {"f": {"format": "file_path", "default": "gone.txt"}}});
    check_refused(
        &missing,
        json!({}),
        "/f",
        ProblemCode::FileMissing,
        &["gone.txt"],
    );
    let satisfied = json!({"required": ["x"], "properties": {"x": {"default": 5}}});
    check_becomes(&satisfied, json!({}), &json!({"x": 5}));
}

#[test]
fn older_drafts_ignore_keywords_beside_a_reference() {
    let input = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"x": {"$ref": "#/definitions/d", "default": "hidden"}},
        "definitions": {"d": {"default": "seen"}},
    });
    check_becomes(&input, json!({}), &json!({"x": "seen"}));
}

#[test]
fn outputs_get_no_defaults() {
    let schema = json!({"input": {}, "output": {"properties": {"x": {"default": 1}}}});
    let contract = Contract::parse(schema.to_string().as_bytes()).expect("a proper schema");
    assert_eq!(
        contract
            .check_output(json!({}), &exists)
            .expect("fits")
            .payload,
        json!({})
    );
}

#[test]
fn sizes_are_limited_at_their_edge() {
    use ProblemCode::{TooDeep, TooLarge};
    let any = json!(true);
    let fitting = json!({"x": "a ".repeat(PAYLOAD_SIZE_BYTES_MAX / 2 - 4)});
    check_becomes(&any, fitting.clone(), &fitting);
    check_refused(
        &any,
        json!({"x": "a ".repeat(PAYLOAD_SIZE_BYTES_MAX / 2 - 3)}),
        "",
        TooLarge,
        &["16777218 bytes of JSON", "put large data into files"],
    );
    let output = contract(&any).check_output(json!({"x": "a ".repeat(140_000)}), &exists);
    assert_eq!(codes(output), [(String::new(), TooLarge)]);
    // Escapes are a part of the contents of a text.
    let lines = json!({"x": ".\n".repeat(1_000_000)});
    check_becomes(&any, lines.clone(), &lines);
    let base64 = "QUJD".repeat(BINARY_TEXT_BYTES_MAX / 4 + 1);
    check_refused(
        &any,
        json!({ "a": base64 }),
        "/a",
        TooLarge,
        &["base64", "put binary data into a file"],
    );
    let url = format!("data:image/png;base64,{base64}");
    check_refused(
        &any,
        json!({ "a": url }),
        "/a",
        TooLarge,
        &["data: URL", "put binary data into a file"],
    );
    let many = vec![json!(0); 140_000];
    check_refused(
        &any,
        json!({ "a": many }),
        "",
        TooLarge,
        &["280007 bytes of JSON beside", "expected at most 262144"],
    );

    let deepest = json!({"a": nested(json!(1), NESTING_DEPTH_MAX - 1)});
    check_becomes(&any, deepest.clone(), &deepest);
    let pointer = format!("/a{}", "/0".repeat(NESTING_DEPTH_MAX - 1));
    check_refused(
        &any,
        json!({"a": nested(json!(1), NESTING_DEPTH_MAX)}),
        &pointer,
        TooDeep,
        &["64"],
    );
}

#[test]
fn problems_travel_as_json() {
    let problem = Problem::new("/a", ProblemCode::FileMissing, "gone");
    let text = serde_json::to_value(&problem).expect("serializes");
    assert_eq!(
        text,
        json!({"pointer": "/a", "code": "file_missing", "message": "gone"})
    );
    assert_eq!(
        serde_json::from_value::<Problem>(text).expect("reads"),
        problem
    );
    assert_eq!(problem.to_string(), "/a: gone");
}
