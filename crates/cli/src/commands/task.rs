//! `aod task`: workflows of AI tools and commands.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use aod_domain::task::{WORKFLOW_SIZE_BYTES_MAX, Workflow, read};
use aod_domain::yaml::{Outcome, Problem};
use serde::Serialize;
use serde_json::json;

use crate::arguments::{TaskCommand, ValidateTaskArguments};
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;

mod run;

pub(super) async fn task(command: TaskCommand, console: Console) -> Result<Exit, Failure> {
    match command {
        TaskCommand::Run(arguments) => return run::run_task(&arguments, console).await,
        TaskCommand::Validate(arguments) => validate(&arguments, console)?,
        TaskCommand::Schema => {
            console.print(include_str!("../../../../docs/schemas/workflow.json"))?;
        }
    }
    Ok(Exit::Ok)
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Severity {
    Error,
    Warning,
}

/// A problem of a workflow file.
#[derive(Clone, Debug, Serialize)]
struct Finding {
    severity: Severity,
    #[serde(flatten)]
    problem: Problem,
}

fn validate(arguments: &ValidateTaskArguments, console: Console) -> Result<(), Failure> {
    let mut findings = Vec::new();
    for file in &arguments.files {
        let outcome = workflow(file, arguments.strict)?;
        let of = |severity| move |problem| Finding { severity, problem };
        findings.extend(outcome.problems.into_iter().map(of(Severity::Error)));
        let severity = if arguments.strict {
            Severity::Error
        } else {
            Severity::Warning
        };
        findings.extend(outcome.warnings.into_iter().map(of(severity)));
    }
    let texts = |wanted: fn(Severity) -> bool| -> Vec<String> {
        let wanted = findings.iter().filter(|finding| wanted(finding.severity));
        wanted.map(|finding| finding.problem.to_string()).collect()
    };
    let errors = texts(|severity| matches!(severity, Severity::Error));
    let report = json!({"is_valid": errors.is_empty(), "problems": findings});
    let count = arguments.files.len();
    console.show(&report, || match (errors.len(), count) {
        (0, 1) => "the workflow is valid".to_owned(),
        (0, count) => format!("{count} workflows are valid"),
        _ => String::new(),
    })?;
    for warning in texts(|severity| matches!(severity, Severity::Warning)) {
        console.tell(&format!("{warning} (warning)"));
    }
    match errors.len() {
        0 => Ok(()),
        1 => Err(Failure::usage("1 problem found").with_details(errors)),
        count => Err(Failure::usage(format!("{count} problems found")).with_details(errors)),
    }
}

/// Reads a workflow file; more than the maximum size is a problem of the file.
fn workflow(path: &Path, is_strict: bool) -> Result<Outcome<Workflow>, Failure> {
    let shown = path.display().to_string();
    let bytes = contents(path).map_err(|error| {
        Failure::usage(format!("the workflow {shown} cannot be read")).because(&error)
    })?;
    Ok(read(&shown, &bytes, is_strict))
}

fn contents(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = WORKFLOW_SIZE_BYTES_MAX as u64 + 1;
    File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}
