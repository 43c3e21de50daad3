//! The canonical text of a JSON value, for hashing.

use serde_json::Value;

/// `value` as JSON text without white space, the keys of each object sorted by their UTF-8 bytes.
///
/// In the spirit of RFC 8785, with two differences: keys sort by code point, not by UTF-16 unit,
/// and numbers are written as `serde_json` writes them (`1.0` stays apart from `1`).
pub fn canonical(value: &Value) -> Vec<u8> {
    let mut text = Vec::new();
    write_value(value, &mut text);
    text
}

fn write_value(value: &Value, text: &mut Vec<u8>) {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by_key(|(key, _)| *key);
            write_list(b'{', members, b'}', text, |(key, member), text| {
                write_scalar(key, text);
                text.push(b':');
                write_value(member, text);
            });
        }
        Value::Array(items) => write_list(b'[', items, b']', text, write_value),
        scalar => write_scalar(scalar, text),
    }
}

fn write_list<T>(
    open: u8,
    items: impl IntoIterator<Item = T>,
    close: u8,
    text: &mut Vec<u8>,
    write_item: impl Fn(T, &mut Vec<u8>),
) {
    text.push(open);
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            text.push(b',');
        }
        write_item(item, text);
    }
    text.push(close);
}

fn write_scalar(scalar: &(impl serde::Serialize + ?Sized), text: &mut Vec<u8>) {
    serde_json::to_writer(text, scalar).expect("a scalar serializes into memory");
}
