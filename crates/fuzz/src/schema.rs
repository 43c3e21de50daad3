//! `schema.json`, and a payload that is checked against it: limits, defaults, references.

use std::collections::BTreeSet;

use aod_domain::contract::{
    Checked, Contract, FileKind, PAYLOAD_SIZE_BYTES_MAX, canonical, rewrite,
};
use aod_domain::file_name::{Directory, FileName};
use aod_domain::json::{self, Unreadable};
use serde_json::Value;

use crate::parts;
use crate::problems::check_contract_problems;

/// A schema and, after the separator, a payload.
pub fn check(bytes: &[u8]) {
    let [schema, payload] = parts(bytes);
    let contract = match Contract::parse(schema) {
        Ok(contract) => contract,
        Err(problems) => return check_contract_problems(&problems),
    };
    let payload = match json::read::<Value>(payload) {
        Ok(payload) => payload,
        Err(Unreadable::Numbers(problems)) => return check_contract_problems(&problems),
        Err(Unreadable::Malformed(_)) => return,
    };
    check_canonical(&payload);
    for directory in [Directory::Outgoing, Directory::Input] {
        match contract.check_input(payload.clone(), directory, &exists) {
            Ok(checked) => check_accepted(&contract, &checked, directory),
            Err(problems) => check_contract_problems(&problems),
        }
    }
}

/// Names of one letter or with an extension are existing files; `data` is a directory.
fn exists(name: &str) -> Option<FileKind> {
    match name {
        "data" => Some(FileKind::Directory),
        _ if name.len() == 1 || name.contains('.') => Some(FileKind::File),
        _ => None,
    }
}

/// Defaults are filled in once, every reference is where its pointer says, and only declared ones are rewritten.
fn check_accepted(contract: &Contract, checked: &Checked, directory: Directory) {
    let Checked {
        payload,
        references,
    } = checked;
    assert!(canonical(payload).len() <= PAYLOAD_SIZE_BYTES_MAX);
    let again = contract.check_input(payload.clone(), directory, &exists);
    assert_eq!(again.as_ref(), Ok(checked));

    let pointers: Vec<_> = references.iter().map(|found| &found.pointer).collect();
    let unique: BTreeSet<_> = pointers.iter().collect();
    assert_eq!(unique.len(), pointers.len(), "{references:?}");
    for reference in references {
        let text = payload.pointer(&reference.pointer).and_then(Value::as_str);
        let text = text.expect("a reference is a text");
        assert_eq!(directory.relative(text), reference.name.as_str());
        assert_eq!(exists(reference.name.as_str()), Some(reference.kind));
    }
    let unchanged = |name: &FileName| name.clone();
    let rewritten = rewrite(payload.clone(), references, &unchanged).expect("nothing is renamed");
    for reference in references.iter().filter(|reference| reference.declared) {
        let text = rewritten
            .pointer(&reference.pointer)
            .and_then(Value::as_str);
        assert_eq!(text, Some(reference.name.as_str()));
    }
}

/// The hashed text parses to the same value.
fn check_canonical(payload: &Value) {
    let text = canonical(payload);
    let read: Value = json::read(&text).expect("canonical text is JSON with exact numbers");
    assert_eq!(canonical(&read), text);
}
