//! `aod capsule validate`: checks directories, and the calls between them.

use aod_kit::{Finding, Severity, Source, refuse, relations, unpriced, validate};
use serde_json::json;

use crate::arguments::ValidateArguments;
use crate::console::Console;
use crate::failure::Failure;
use crate::service::node::models;

pub(super) fn check(arguments: &ValidateArguments, console: Console) -> Result<(), Failure> {
    let mut findings = Vec::new();
    let mut sources = Vec::new();
    for directory in &arguments.directories {
        let found = validate(directory)?;
        if refuse(&found).is_ok() {
            sources.push(Source::read(directory)?);
        }
        findings.extend(found);
    }
    findings.extend(relations(&sources));
    findings.extend(unpriced(
        &sources,
        &models(arguments.models.as_deref())?.prices,
    ));
    if arguments.strict {
        for finding in &mut findings {
            finding.severity = Severity::Error;
        }
    }
    let refused = refuse(&findings);
    let report = json!({ "is_valid": refused.is_ok(), "problems": findings });
    let count = arguments.directories.len();
    console.show(&report, || match (&refused, count) {
        (Err(_), _) => String::new(),
        (Ok(()), 1) => "the capsule is valid".to_owned(),
        (Ok(()), count) => format!("{count} capsules are valid"),
    })?;
    let is_warning = |finding: &&Finding| finding.severity == Severity::Warning;
    for warning in findings.iter().filter(is_warning) {
        console.tell(&warning.to_string());
    }
    Ok(refused?)
}
