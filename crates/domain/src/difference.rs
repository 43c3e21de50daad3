//! Differences between two JSON values, place by place.

use serde_json::Value;

use crate::contract::pointer_part;

/// A place where two values differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// A JSON pointer; empty for the whole value.
    pub place: String,
    /// None if only the right value has something there.
    pub left: Option<Value>,
    /// None if only the left value has something there.
    pub right: Option<Value>,
}

/// All places where `left` and `right` differ, as deep as both go: objects member by member, in the order of their
/// names, lists item by item. Parsed JSON has at most 128 levels.
pub fn between(left: &Value, right: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    compare(&mut found, String::new(), Some(left), Some(right));
    found
}

fn compare(
    found: &mut Vec<Difference>,
    place: String,
    left: Option<&Value>,
    right: Option<&Value>,
) {
    match (left, right) {
        (left, right) if left == right => (),
        (Some(Value::Object(left)), Some(Value::Object(right))) => {
            let mut names: Vec<&String> = left.keys().chain(right.keys()).collect();
            names.sort_unstable();
            names.dedup();
            for name in names {
                let below = format!("{place}/{}", pointer_part(name));
                compare(found, below, left.get(name), right.get(name));
            }
        }
        (Some(Value::Array(left)), Some(Value::Array(right))) => {
            for index in 0..left.len().max(right.len()) {
                let below = format!("{place}/{index}");
                compare(found, below, left.get(index), right.get(index));
            }
        }
        (left, right) => found.push(Difference {
            place,
            left: left.cloned(),
            right: right.cloned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn check(left: &Value, right: &Value, expected: &[(&str, Option<Value>, Option<Value>)]) {
        let found: Vec<_> = between(left, right)
            .into_iter()
            .map(|found| (found.place, found.left, found.right))
            .collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(place, left, right)| ((*place).to_owned(), left.clone(), right.clone()))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn each_place_is_listed_separately() {
        let left = json!({"a": {"b/c": 1, "same": true}, "list": [1, 2, 3], "left": null});
        let right = json!({"a": {"b/c": 2, "same": true}, "list": [1, 9], "right": "x"});
        check(
            &left,
            &right,
            &[
                ("/a/b~1c", Some(json!(1)), Some(json!(2))),
                ("/left", Some(json!(null)), None),
                ("/list/1", Some(json!(2)), Some(json!(9))),
                ("/list/2", Some(json!(3)), None),
                ("/right", None, Some(json!("x"))),
            ],
        );
    }

    #[test]
    fn another_kind_of_value_is_one_difference() {
        check(
            &json!({"a": {"b": 1}}),
            &json!({"a": [1]}),
            &[("/a", Some(json!({"b": 1})), Some(json!([1])))],
        );
        check(
            &json!(1),
            &json!(2),
            &[("", Some(json!(1)), Some(json!(2)))],
        );
    }

    proptest! {
        #[test]
        fn nothing_differs_exactly_if_both_are_equal(left: [u8; 3], right: [u8; 3]) {
            let value = |[a, b, c]: [u8; 3]| json!({"a": a % 2, "list": [b % 2, {"c": c % 2}]});
            let (left, right) = (value(left), value(right));
            prop_assert_eq!(between(&left, &right).is_empty(), left == right);
        }
    }
}
