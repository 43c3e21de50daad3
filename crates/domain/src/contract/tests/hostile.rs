//! Malicious schemas and payloads.

use super::*;

/// Runs `test` with the default stack of threads, so that an overflow shows as in production, regardless of the test
/// runner.
fn on_small_stack(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new()
        .stack_size(2 * 1024 * 1024)
        .spawn(test);
    thread.expect("a thread").join().expect("no panic");
}

/// Definitions `0` to `length`, each built by `link` from a reference to the next one; the last is an integer.
fn chain(length: usize, link: impl Fn(Value) -> Value) -> Value {
    let reference = |number: usize| json!({"$ref": format!("#/$defs/{number}")});
    let mut definitions: serde_json::Map<_, _> = (0..length)
        .map(|number| (number.to_string(), link(reference(number + 1))))
        .collect();
    definitions.insert(length.to_string(), json!({"type": "integer"}));
    json!({"properties": {"x": reference(0)}, "$defs": definitions})
}

#[test]
fn a_payload_of_a_thousand_levels_is_refused() {
    on_small_stack(|| {
        let payload = json!({"a": nested(json!("notes"), 1_000)});
        assert_eq!(
            codes(check_input(&json!({}), payload))[0].1,
            ProblemCode::TooDeep
        );
        let schema = json!({"input": {"default": nested(json!(1), 100)}, "output": {}});
        let problems = codes(Contract::parse(schema.to_string().as_bytes()));
        assert_eq!(problems[0].1, ProblemCode::TooDeep);
    });
}

#[test]
fn recursive_schemas_hold_at_the_deepest_payload() {
    on_small_stack(|| {
        let input = json!({
            "type": "object", "additionalProperties": false,
            "properties": {"next": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}, "n": {"default": 0}},
        });
        let list = |end: Value, length| (0..length).fold(end, |next, _| json!({ "next": next }));
        let length = NESTING_DEPTH_MAX - 1;
        assert!(check_input(&input, list(json!({"next": null}), length)).is_ok());
        assert_eq!(
            codes(check_input(&input, list(json!({"next": 5}), length)))[0].1,
            ProblemCode::DoesNotFit
        );
    });
}

#[test]
fn schema_that_refers_to_itself_accepts_everything() {
    let itself = json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}});
    check_becomes(&itself, json!({"x": 1}), &json!({"x": 1}));
}

#[test]
fn a_long_chain_of_references_is_refused() {
    on_small_stack(|| {
        let refused = chain(3_000, |next| next);
        check_refused(
            &refused,
            json!({"x": 1}),
            "",
            ProblemCode::TooComplex,
            &["200 schemas"],
        );
        let fitting = chain(
            VALIDATION_DEPTH_MAX / 2 - 1,
            |next| json!({ "anyOf": [next] }),
        );
        check_becomes(&fitting, json!({"x": 1}), &json!({"x": 1}));
        assert_eq!(
            codes(check_input(&fitting, json!({"x": "y"})))[0].1,
            ProblemCode::DoesNotFit
        );
    });
}

#[test]
fn doubling_schemas_are_refused_before_they_run() {
    let doubling = chain(60, |next| json!({"anyOf": [next, next]}));
    check_refused(
        &doubling,
        json!({"x": 1}),
        "",
        ProblemCode::TooComplex,
        &["300000 steps"],
    );
    let doubling = json!({
        "properties": {"next": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}},
        "unevaluatedProperties": {"$ref": "#"},
    });
    let payload = (0..60).fold(json!({}), |next, _| json!({ "next": next }));
    check_refused(
        &doubling,
        payload,
        "",
        ProblemCode::TooComplex,
        &["300000 steps"],
    );
}

#[test]
fn defaults_cannot_swell_a_payload() {
    let default = json!("x".repeat(10_000));
    let input =
        json!({"properties": {"rows": {"items": {"properties": {"d": {"default": default}}}}}});
    let payload = json!({"rows": vec![json!({}); 1_000]});
    check_refused(&input, payload, "", ProblemCode::TooComplex, &["defaults"]);
    let growing = json!({"properties": {"x": {"$ref": "#", "default": {}}}});
    assert_eq!(
        codes(check_input(&growing, json!({})))[0].1,
        ProblemCode::TooComplex
    );
}

#[test]
fn patterns_match_in_linear_time() {
    let input = json!({"properties": {"x": {"pattern": "^(a+)+$"}}});
    let payload = json!({"x": format!("{}!", "a".repeat(60_000))});
    assert_eq!(
        codes(check_input(&input, payload)),
        [("/x".to_owned(), ProblemCode::DoesNotFit)]
    );
}

#[test]
fn messages_stay_short_for_long_values() {
    let input = json!({"properties": {"x": {"enum": vec!["v".repeat(500); 100]}}});
    let problems = check_input(&input, json!({"x": "w".repeat(60_000)})).expect_err("a problem");
    assert!(
        problems[0].message.chars().count() <= 1_001,
        "{}",
        problems[0].message.len()
    );
}

#[test]
fn three_hundred_properties_with_two_hundred_references() {
    let property = |number: usize| match number {
        0..200 => (format!("p{number}"), json!({"$ref": "#/$defs/file"})),
        _ => (
            format!("p{number}"),
            json!({"type": "integer", "default": number}),
        ),
    };
    let properties: serde_json::Map<_, _> = (0..300).map(property).collect();
    let input = json!({"properties": properties, "$defs": {"file": {"type": "string", "format": "file_path"}}});
    let payload: serde_json::Map<_, _> = (0..200)
        .map(|i| (format!("p{i}"), json!("./notes")))
        .collect();
    let checked = check_input(&input, payload.into()).expect("no problem");
    assert_eq!(checked.references.len(), 200);
    assert_eq!(
        checked.payload.as_object().map(serde_json::Map::len),
        Some(300)
    );
    let renamed =
        rewrite(checked.payload, &checked.references, &FileName::clone).expect("no problem");
    assert_eq!(renamed["p199"], json!("notes"));
}
