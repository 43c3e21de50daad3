//! `docs/contracts/openapi.json` is valid and equal to the description of the routes.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

/// Run with `AOD_UPDATE_CONTRACTS=1` to update the file.
#[test]
fn stored_description_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/contracts/openapi.json");
    let document = aod_gateway::openapi_document();
    if std::env::var_os("AOD_UPDATE_CONTRACTS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, document).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == document,
        "{} is out of date: set AOD_UPDATE_CONTRACTS=1 to update it",
        path.display()
    );
}

#[test]
fn every_operation_has_a_unique_id_and_described_responses() {
    let document: Value = serde_json::from_str(aod_gateway::openapi_document()).unwrap();
    let mut ids = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap();
            assert!(ids.insert(id), "{method} {path}: {id} is not unique");
            for (status, response) in operation["responses"].as_object().unwrap() {
                let description = response["description"].as_str().unwrap_or_default();
                assert!(!description.is_empty(), "{method} {path}: {status}");
            }
        }
    }
}
