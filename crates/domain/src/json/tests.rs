//! Numbers that pass and numbers that are rejected.

use proptest::prelude::*;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::*;
use crate::contract::PROBLEMS_MAX;

/// The rejected numbers in `text`: pointers and messages.
fn rejected(text: &str) -> Vec<String> {
    match read::<Value>(text.as_bytes()) {
        Ok(_) => Vec::new(),
        Err(Unreadable::Numbers(problems)) => problems.iter().map(ToString::to_string).collect(),
        Err(Unreadable::Malformed(error)) => panic!("{text}: {error}"),
    }
}

fn pointers(text: &str) -> Vec<String> {
    let problems = number_problems(text.as_bytes());
    problems
        .into_iter()
        .map(|problem| problem.pointer)
        .collect()
}

#[test]
fn number_that_64_bits_hold_passes() {
    for literal in [
        "0",
        "-0",
        "-0.0",
        "0e99999999999999999999",
        "0.000",
        "7",
        "1.0",
        "1.50",
        "1e3",
        "1E5",
        "1e+3",
        "1E-3",
        "0.1",
        "-2.5",
        "100e-2",
        "9007199254740993",
        "9223372036854775807",
        "-9223372036854775808",
        "18446744073709551615",
        "0.30000000000000004",
        "3.141592653589793",
        "3.1415926535897930",
        "1e22",
        "1e23",
        "100000000000000000000000.0",
        "1.7976931348623157e308",
        "-1.7976931348623157E+308",
        "5e-324",
        "2.2250738585072014e-308",
        "1.8446744073709552e19",
        "123456789012345.6",
        // Both are closest to the number, which is in their middle.
        "765582323722432.2",
        "765582323722432.3",
    ] {
        assert_eq!(literal_problem(literal), None, "{literal}");
        assert_eq!(rejected(literal), [""; 0], "{literal}");
    }
}

#[test]
fn integer_outside_64_bits_is_rejected() {
    for literal in [
        "18446744073709551616",
        "-9223372036854775809",
        "100000000000000000000",
    ] {
        let expected = format!(
            "/n: {literal} given; expected an integer from -9223372036854775808 to 18446744073709551615, or a string"
        );
        assert_eq!(rejected(&format!("{{\"n\": {literal}}}")), [expected]);
    }
}

#[test]
fn number_with_more_digits_than_64_bits_hold_is_rejected_with_the_number_that_they_hold() {
    for (literal, kept) in [
        ("3.141592653589793238", "3.141592653589793"),
        ("9007199254740993.0", "9007199254740992.0"),
        ("0.1000000000000000055511151231257827", "0.1"),
        ("18446744073709551616.0", "1.8446744073709552e+19"),
        ("1e-400", "0.0"),
        ("-1e-99999999999999999999", "-0.0"),
        ("4e-324", "5e-324"),
    ] {
        let expected = format!(
            "/n: {literal} given; a 64-bit number keeps only {kept}: expected that number, or a string"
        );
        assert_eq!(rejected(&format!("{{\"n\": {literal}}}")), [expected]);
    }
}

#[test]
fn number_beyond_the_largest_one_is_rejected_with_its_pointer() {
    for literal in ["1e400", "-1e400", "1e99999999999999999999", "1.8e308"] {
        let expected = format!(
            "/n: {literal} given; expected a number from -1.7976931348623157e308 to 1.7976931348623157e308, or a string"
        );
        assert_eq!(rejected(&format!("{{\"n\": {literal}}}")), [expected]);
    }
}

#[test]
fn all_numbers_are_reported_with_their_pointers() {
    let big = "18446744073709551616";
    let text = format!(
        r#" {{"a": [1, {big}, [], {{"x": {{}}, "b/c~": {big}}}, "1e400, \"{big}\\", {big}], "d": {big},
            "{big}": 1, "\u00fc\"": {{"": {big}}}, "t": true, "f": [false, null, {big}]}} "#
    );
    let expected = ["/a/1", "/a/3/b~1c~0", "/a/5", "/d", "/ü\"/", "/f/2"];
    assert_eq!(pointers(&text), expected);
    assert_eq!(rejected(&text).len(), expected.len());
    assert_eq!(pointers(big), [""]);
}

#[test]
fn message_and_pointer_of_long_texts_are_short() {
    let long = "7".repeat(100_000);
    let key = "k".repeat(100_000);
    let text = format!(r#"{{"{key}": [{long}, {long}.5, {long}e-5]}}"#);
    let problems = number_problems(text.as_bytes());
    assert_eq!(problems.len(), 3);
    for problem in problems {
        assert!(problem.to_string().len() < 600, "{problem}");
    }
    let many = format!("[{}0]", "1e400,".repeat(1_000));
    assert_eq!(rejected(&many).len(), PROBLEMS_MAX);
}

#[test]
fn text_that_is_not_json_is_malformed() {
    for text in [
        "",
        "{",
        "[18446744073709551616",
        "{\"a\": 01}",
        "1e400 x",
        "\"",
        "\"\\",
        "]}",
        "-",
        "{\"a\":1e}",
        "[1 1e400}",
        &"[".repeat(1_000_000),
        "\u{0}",
    ] {
        let found = read::<Value>(text.as_bytes());
        let is_rejected = matches!(found, Err(Unreadable::Malformed(_)))
            // The parser stops at this number, and does not see the rest.
            || text.starts_with("1e400") && matches!(found, Err(Unreadable::Numbers(_)));
        assert!(is_rejected, "{text:.20}: {found:?}");
    }
}

#[test]
fn large_text_is_scanned_in_one_pass() {
    let text = format!(
        r#"{{"text": "{}", "rows": [{}18446744073709551616]}}"#,
        r#"\"x1"#.repeat(2 << 20),
        "0.1,12,".repeat(1 << 20)
    );
    assert_eq!(pointers(&text), [format!("/rows/{}", 2 << 20)]);
}

/// All numbers in `text` as they are written.
fn literals(text: &str) -> Vec<String> {
    fn visit(value: &RawValue, found: &mut Vec<String>) {
        let text = value.get();
        if let Ok(items) = serde_json::from_str::<Vec<Box<RawValue>>>(text) {
            for item in &items {
                visit(item, found);
            }
        } else if text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
            found.push(text.to_owned());
        }
    }
    let mut found = Vec::new();
    visit(
        &serde_json::from_str::<Box<RawValue>>(text).expect("JSON"),
        &mut found,
    );
    found
}

/// `literal` without its point: digits and a power of ten.
fn plain(literal: &str) -> (bool, String, i64) {
    let lower = literal.to_lowercase();
    let (mantissa, exponent) = lower.split_once('e').unwrap_or((&lower, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    let digits = all.trim_start_matches('-').trim_start_matches('0');
    let trimmed = digits.trim_end_matches('0');
    if trimmed.is_empty() {
        return (false, String::new(), 0);
    }
    let zeros = digits.len() - trimmed.len();
    let exponent = exponent.parse::<i64>().expect("an exponent");
    let places = i64::try_from(zeros).expect("few") - i64::try_from(fraction.len()).expect("few");
    (
        literal.starts_with('-'),
        trimmed.to_owned(),
        exponent + places,
    )
}

fn any_literal() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i64>().prop_map(|number| number.to_string()),
        any::<u64>().prop_map(|number| number.to_string()),
        any::<f64>()
            .prop_filter("finite", |number| number.is_finite())
            .prop_map(|number| json!(number).to_string()),
        any::<f32>()
            .prop_filter("finite", |number| number.is_finite())
            .prop_map(|number| format!("{number:e}")),
        "-?(0|[1-9][0-9]{0,24})(\\.[0-9]{1,24})?([eE][+-]?[0-9]{1,3})?",
    ]
}

proptest! {
    #[test]
    fn accepted_text_is_written_again_with_the_same_numbers(
        numbers in prop::collection::vec(any_literal(), 0..8), space in "[ \n]{0,2}",
    ) {
        let text = format!("[{space}{}{space}]", numbers.join(&format!("{space},{space}")));
        if let Ok(value) = read::<Value>(text.as_bytes()) {
            let written: Vec<_> = literals(&value.to_string()).iter().map(|text| plain(text)).collect();
            let given: Vec<_> = literals(&text).iter().map(|text| plain(text)).collect();
            prop_assert_eq!(written, given);
        }
    }

    #[test]
    fn number_that_aod_wrote_is_accepted_again(number in any::<f64>(), integer in any::<i64>(), natural in any::<u64>()) {
        let text = json!([number, integer, natural, {"a": number}]).to_string();
        let read = read::<Value>(text.as_bytes());
        prop_assert_eq!(read.expect("exact numbers").to_string(), text);
    }

    #[test]
    fn scanning_never_panics(bytes in prop::collection::vec(prop::sample::select(&b"{}[],:\"\\-+.eE0123 ax\xff"[..]), 0..60)) {
        drop(read::<Value>(&bytes));
        for problem in number_problems(&bytes) {
            prop_assert!(problem.pointer.is_empty() || problem.pointer.starts_with('/'));
        }
    }
}
