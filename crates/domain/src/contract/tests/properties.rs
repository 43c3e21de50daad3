//! Properties of any schema, payload or bytes.

use proptest::prelude::*;

use super::*;

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
        prop::sample::select(&FILES[..]).prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map("[a-e]|\\PC{0,3}", inner, 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn any_payload() -> impl Strategy<Value = Value> {
    let members = prop::collection::btree_map("[a-e]", any_json(), 0..6);
    members.prop_map(|members| Value::Object(members.into_iter().collect()))
}

/// Schemas that accept everything, with defaults and formats in all places.
fn any_schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any_json().prop_map(|default| json!({ "default": default })),
        prop::sample::select(&FILE_FORMATS[..]).prop_map(|format| json!({ "format": format })),
        Just(json!({"$ref": "#/$defs/a"})),
        Just(json!({})),
    ];
    let schema = leaf.prop_recursive(4, 40, 5, |inner| {
        let map = prop::collection::btree_map("[a-e]", inner.clone(), 0..5);
        let list = prop::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            map.prop_map(|properties| json!({ "properties": properties })),
            list.clone().prop_map(|all| json!({ "allOf": all })),
            list.clone().prop_map(|any| json!({ "anyOf": any })),
            list.prop_map(|items| json!({ "prefixItems": items })),
            (inner.clone(), any_json())
                .prop_map(|(items, default)| json!({ "items": items, "default": default })),
            inner.prop_map(|others| json!({ "additionalProperties": others })),
        ]
    });
    (schema.clone(), schema)
        .prop_map(|(root, definition)| json!({"allOf": [root], "$defs": {"a": definition}}))
}

/// The same value with the members of its objects inserted in reverse order.
fn reversed(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.iter().rev();
            Value::Object(
                members
                    .map(|(key, member)| (key.clone(), reversed(member)))
                    .collect(),
            )
        }
        Value::Array(items) => items.iter().map(reversed).collect(),
        scalar => scalar.clone(),
    }
}

proptest! {
    #[test]
    fn parsing_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        drop(Contract::parse(&bytes));
    }

    #[test]
    fn parsing_json_never_panics(input in any_json(), output in any_json(), keyword in "\\$ref|type|pattern|items|allOf|properties|\\$id|\\$anchor") {
        let schema = json!({"input": { &keyword: input }, "output": output});
        drop(Contract::parse(schema.to_string().as_bytes()));
    }

    #[test]
    fn defaults_are_idempotent(schema in any_schema(), payload in any_payload()) {
        let schema = json!({"input": schema, "output": {}});
        let contract = Contract::parse(schema.to_string().as_bytes()).expect("a proper schema");
        let anything_exists = |_: &str| Some(FileKind::File);
        let check = |payload| contract.check_input(payload, Directory::Input, &anything_exists);
        if let Ok(once) = check(payload) {
            let twice = check(once.payload.clone());
            prop_assert_eq!(twice, Ok(once));
        }
    }

    #[test]
    fn rewriting_keeps_all_other_values(schema in any_schema(), payload in any_payload()) {
        let schema = json!({"input": schema, "output": {}});
        let contract = Contract::parse(schema.to_string().as_bytes()).expect("a proper schema");
        if let Ok(checked) = contract.check_input(payload, Directory::Input, &exists) {
            let declared: Vec<_> =
                checked.references.iter().filter(|reference| reference.declared).cloned().collect();
            let rename = |name: &FileName| FileName::parse(&format!("{name}-2")).expect("a proper name");
            let mut rewritten = rewrite(checked.payload.clone(), &declared, &rename).expect("declared only");
            for reference in &declared {
                let text = rewritten.pointer_mut(&reference.pointer).expect("still there");
                prop_assert_eq!(&*text, &json!(format!("{}-2", reference.name)));
                *text = checked.payload.pointer(&reference.pointer).expect("there").clone();
            }
            prop_assert_eq!(rewritten, checked.payload);
        }
    }

    #[test]
    fn canonical_text_does_not_depend_on_the_order_of_keys(value in any_json()) {
        let text = canonical(&value);
        prop_assert_eq!(&canonical(&reversed(&value)), &text);
        let pretty = serde_json::to_string_pretty(&value).expect("serializes");
        let read: Value = serde_json::from_str(&pretty).expect("JSON");
        prop_assert_eq!(&canonical(&read), &text);
        let read_back: Value = serde_json::from_slice(&text).expect("JSON");
        prop_assert_eq!(canonical(&read_back), text);
    }
}
