//! Checking a large payload against its schema, finding its files and naming them.

use std::time::Instant;

use anyhow::anyhow;
use aod_domain::contract::{Contract, FileKind, Problem, rewrite};
use aod_domain::file_name::{Directory, FileName};
use serde_json::{Map, Value, json};

use super::control_plane::milliseconds;
use crate::report::Measurement;

const PROPERTIES: usize = 300;

/// Properties that name files, through a `$ref`; defaults fill in the others.
const REFERENCES: usize = 200;

const CHECKS: usize = 500;

const WARM_UP_CHECKS: usize = 50;

pub(super) fn measure() -> anyhow::Result<Vec<Measurement>> {
    let contract =
        Contract::parse(schema().to_string().as_bytes()).map_err(|found| told(&found))?;
    let payload: Map<_, _> = (0..REFERENCES)
        .map(|number| (format!("p{number}"), json!("./notes")))
        .collect();
    let mut checks = Vec::with_capacity(WARM_UP_CHECKS + CHECKS);
    for _ in 0..WARM_UP_CHECKS + CHECKS {
        let payload = Value::Object(payload.clone());
        let began = Instant::now();
        let references = check(&contract, payload).map_err(|found| told(&found))?;
        checks.push(milliseconds(began));
        anyhow::ensure!(references == REFERENCES, "{references} references");
    }
    let note = format!(
        "a schema of {PROPERTIES} properties, {REFERENCES} of them references: checked, defaults filled in, files found and renamed"
    );
    Ok(vec![
        Measurement::new("contract_check", "ms", &checks[WARM_UP_CHECKS..])?
            .bounded("p90 <= 5 ms")?
            .noted(&note),
    ])
}

fn schema() -> Value {
    let property = |number: usize| {
        let schema = if number < REFERENCES {
            json!({"$ref": "#/$defs/file"})
        } else {
            json!({"type": "integer", "default": number})
        };
        (format!("p{number}"), schema)
    };
    let properties: Map<_, _> = (0..PROPERTIES).map(property).collect();
    let file = json!({"type": "string", "format": "file_path"});
    json!({"input": {"properties": properties, "$defs": {"file": file}}, "output": {}})
}

fn check(contract: &Contract, payload: Value) -> Result<usize, Vec<Problem>> {
    let exists = |_: &str| Some(FileKind::File);
    let checked = contract.check_input(payload, Directory::Input, &exists)?;
    rewrite(checked.payload, &checked.references, &FileName::clone)?;
    Ok(checked.references.len())
}

fn told(found: &[Problem]) -> anyhow::Error {
    let texts: Vec<_> = found.iter().map(ToString::to_string).collect();
    anyhow!("{}", texts.join("; "))
}
