//! Canonical texts of values.

use serde_json::{Value, json};

use crate::contract::canonical;

fn check(value: &Value, expected: &str) {
    assert_eq!(
        String::from_utf8(canonical(value)).expect("UTF-8"),
        expected
    );
}

#[test]
fn keys_are_sorted_and_white_space_is_gone() {
    let value = serde_json::from_str(r#" { "b" : [ 1 , { "d":null, "c":true } ] , "a" : "x y" } "#);
    check(
        &value.expect("JSON"),
        r#"{"a":"x y","b":[1,{"c":true,"d":null}]}"#,
    );
    check(&json!({}), "{}");
    check(&json!([]), "[]");
    check(
        &json!({"é": 1, "z": 2, "Z": 3, "": 4, "\u{1F600}": 5, "\u{FB33}": 6}),
        concat!(
            r#"{"":4,"Z":3,"z":2,"é":1,""#,
            "\u{FB33}",
            r#"":6,""#,
            "\u{1F600}",
            r#"":5}"#
        ),
    );
}

#[test]
fn scalars_have_one_spelling() {
    for (text, expected) in [
        ("1", "1"),
        ("1.0", "1.0"),
        ("1e2", "100.0"),
        ("0.10", "0.1"),
        ("-0", "-0.0"),
        ("18446744073709551615", "18446744073709551615"),
        (r#""\u0041\/\u000a\u001F\u00e9""#, "\"A/\\n\\u001fé\""),
    ] {
        check(&serde_json::from_str(text).expect("JSON"), expected);
    }
}
