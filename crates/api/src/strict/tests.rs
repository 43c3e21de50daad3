use std::collections::BTreeMap;

use serde_json::json;

use super::*;

fn fields(body: &Value) -> Fields {
    Fields::parse(body.to_string().as_bytes()).expect("an object")
}

/// The problems of `fields`, each with its place.
fn problems(fields: Fields) -> Vec<String> {
    let errors = fields.finish().expect_err("problems").errors;
    let errors = errors.iter();
    errors
        .map(|error| format!("{}: {}", error.pointer, error.message))
        .collect()
}

#[test]
fn every_problem_is_reported_with_its_place() {
    let mut fields = fields(&json!({
        "capsul": "b", "timeout_seconds": 0, "labels": {"a": 1, "b": "xxxx"}, "files": {}, "fair": "yes", "key": ["a", 2]
    }));
    assert_eq!(fields.required_text("capsule"), "");
    assert_eq!(fields.number::<u32>("timeout_seconds", 1..=9), None);
    assert!(fields.texts("labels", 9, 3).is_empty());
    assert!(fields.list("files").is_empty());
    assert!(!fields.flag("fair"));
    assert_eq!(fields.words::<String>("key", 9), ["a"]);
    assert_eq!(
        problems(fields),
        [
            "/capsule: missing; expected a string",
            "/timeout_seconds: 0 given; expected a whole number from 1 to 9",
            "/labels/a: 1 given; expected a string",
            "/labels/b: too long; expected a name and a value of at most 3 bytes",
            "/files: {} given; expected a list",
            "/fair: \"yes\" given; expected true or false",
            "/key/1: 2 given; expected a string",
            "/capsul: no such field; did you mean \"capsule\"?",
        ]
    );
}

#[test]
fn problems_of_parts_have_the_pointer_of_the_whole_body() {
    let mut fields = fields(&json!({
        "rate": {"runs": -1, "second": 9}, "files": [{"name": 7}, "x", {"name": "a"}], "weights": {"a/b": 0, "c": 1}
    }));
    let rate = fields.part("rate", |rate| {
        let runs = rate.number::<u32>("runs", 1..=5);
        (runs, rate.number::<u32>("seconds", 1..=5))
    });
    assert_eq!(rate, Some((None, None)));
    let files = fields.parts("files", |file| file.required_text("name"));
    assert_eq!(files, [(0, String::new()), (2, "a".to_owned())]);
    let weights = fields.numbers::<String, u32>("weights", 9, &(1..=5));
    assert_eq!(weights, BTreeMap::from([("c".to_owned(), 1)]));
    assert_eq!(fields.part("missing", |_| ()), None);
    assert_eq!(
        problems(fields),
        [
            "/rate/runs: -1 given; expected a whole number from 1 to 5",
            "/rate/second: no such field; did you mean \"seconds\"?",
            "/files/0/name: 7 given; expected a string",
            "/files/1: \"x\" given; expected an object",
            "/weights/a~1b: 0 given; expected a whole number from 1 to 5",
        ]
    );
}

#[test]
fn lists_and_objects_are_bounded() {
    let mut fields = fields(&json!({"key": ["a", "b", "a"], "tags": {"a": "1", "b": "2"}}));
    assert_eq!(fields.words::<String>("key", 2), ["a", "b"]);
    assert_eq!(fields.texts("tags", 1, 9).len(), 1);
    assert_eq!(
        problems(fields),
        [
            "/key: 3 items given; expected at most 2",
            "/tags: 2 items given; expected at most 1",
        ]
    );
}

#[test]
fn body_that_is_no_object_is_rejected() {
    for body in ["", "[]", "7", "{\"a\": ", "null"] {
        assert!(Fields::parse(body.as_bytes()).is_err(), "{body}");
    }
    assert!(Fields::parse_optional(b"").is_ok());
}

#[test]
fn body_with_many_long_fields_gets_a_short_answer() {
    let names = (0..1_000).map(|number| format!("{number}/~{}", "x".repeat(200)));
    let body = Value::Object(names.map(|name| (name, json!(1))).collect());
    let problem = Problem::from(fields(&body).finish().expect_err("problems"));
    assert_eq!(problem.errors.len(), PROBLEMS_MAX);
    assert!(serde_json::to_vec(&problem).expect("plain data").len() < 16 * 1024);
    assert!(problem.errors[0].pointer.starts_with("/0~1~0xx"));
}

#[test]
fn long_value_is_shortened() {
    let mut fields = fields(&json!({"pool": ["ü".repeat(500)]}));
    assert_eq!(fields.text("pool"), None);
    assert!(problems(fields)[0].chars().count() < 150);
}

#[test]
fn null_counts_as_missing() {
    let mut fields = fields(&json!({"pool": null}));
    assert_eq!(fields.text("pool"), None);
    assert!(fields.finish().is_ok());
}

#[test]
fn idempotency_keys_have_one_form() {
    let longest = "k".repeat(IDEMPOTENCY_KEY_BYTES_MAX);
    for key in ["k", "a b~", &longest] {
        assert_eq!(idempotency_key(key.as_bytes()).as_deref(), Ok(key));
    }
    for key in ["", "ü", "a\tb", "a\u{7f}", &format!("{longest}k")] {
        assert!(idempotency_key(key.as_bytes()).is_err(), "{key:?}");
    }
}

#[test]
fn body_with_long_texts_is_read_and_body_with_many_values_is_rejected() {
    let text = format!(r#"{{"a": "{}"}}"#, r#"\" [,] \\ "#.repeat(300_000));
    assert!(Fields::parse(text.as_bytes()).is_ok());
    let values = format!(r#"{{"a": [{}0]}}"#, "0,".repeat(1 << 19));
    let rejected = Fields::parse(values.as_bytes()).unwrap_err();
    assert_eq!(rejected.code, ErrorCode::PayloadTooLarge);
}

#[test]
fn number_that_64_bits_cannot_hold_is_reported_beside_the_other_problems() {
    let body = r#"{"arguments": {"a": [1, 18446744073709551616], "b": 3.141592653589793238, "c": 1.50},
        "timeout_seconds": 100000000000000000000, "pol": 1}"#;
    let mut fields = Fields::parse(body.as_bytes()).expect("an object");
    assert!(fields.object("arguments").is_some());
    assert_eq!(fields.number::<u32>("timeout_seconds", 1..=9), None);
    assert_eq!(fields.text("pool"), None);
    let range =
        "expected an integer from -9223372036854775808 to 18446744073709551615, or a string";
    assert_eq!(
        problems(fields),
        [
            format!("/arguments/a/1: 18446744073709551616 given; {range}"),
            "/arguments/b: 3.141592653589793238 given; a 64-bit number keeps only 3.141592653589793: expected that \
             number, or a string"
                .to_owned(),
            format!("/timeout_seconds: 100000000000000000000 given; {range}"),
            "/pol: no such field; did you mean \"pool\"?".to_owned(),
        ]
    );
}

#[test]
fn number_beyond_the_largest_one_is_reported_with_its_pointer() {
    let malformed = Fields::parse(br#"{"arguments": {"a": [1e400]}}"#).unwrap_err();
    let errors = malformed.errors.iter();
    let pointers: Vec<_> = errors.map(|error| error.pointer.as_str()).collect();
    assert_eq!(pointers, ["/arguments/a/0"]);
}
