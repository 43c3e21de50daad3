//! `aod capsule test`: runs the test cases of capsules in one private cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use aod_api::events::LogLineView;
use aod_api::problem::Problem;
use aod_api::runs::{CreateRun, RunResult};
use aod_domain::capsule::Openness;
use aod_domain::id::RunId;
use aod_domain::manifest::{CapsuleName, slug};
use aod_kit::cases::{self, Case};
use aod_kit::expectation::{MadeFile, Outcome};
use aod_kit::stand_in::{Answer, Script, StandIns, schema_of};
use aod_kit::{Family, Source};
use futures::StreamExt as _;
use futures::stream;
use serde::Serialize;

use super::junit;
use crate::arguments::CapsuleTestArguments;
use crate::client::{Client, ClientError, Upload};
use crate::commands::inputs::Inputs;
use crate::commands::{logs, run};
use crate::console::{Console, Format, StatusLine};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::service::private::{ImageOrigin, Private};
use crate::service::signals::Signals;
use crate::text;

/// The result of one case.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Tested {
    pub(super) capsule: String,
    pub(super) case: String,
    pub(super) seconds: f64,
    /// Differences from the expectation, one line each.
    pub(super) differences: Vec<String>,
}

impl Tested {
    pub(super) fn has_failed(&self) -> bool {
        !self.differences.is_empty()
    }

    fn text(&self) -> String {
        let word = if self.has_failed() { "FAIL" } else { "ok  " };
        let mut text = format!(
            "{word}  {}/{}  {:.2} s",
            self.capsule, self.case, self.seconds
        );
        for difference in &self.differences {
            for line in difference.lines() {
                text.push_str("\n        ");
                text.push_str(line);
            }
        }
        text
    }
}

/// A case with its capsule, and its canned answers by callee.
struct Planned {
    capsule: CapsuleName,
    case: Case,
    answers: BTreeMap<String, Vec<Answer>>,
}

pub(super) async fn test(
    arguments: &CapsuleTestArguments,
    console: Console,
) -> Result<Exit, Failure> {
    let family = Family::gather(&arguments.directories, &arguments.with)?;
    let tested = &family.members[..arguments.directories.len()];
    let mut plan = Vec::new();
    for source in tested {
        for case in cases::read(&source.directory)? {
            plan.push(planned(source, case, &family)?);
        }
    }
    let stand_ins = Arc::new(StandIns::default());
    // Signals wait while the cluster starts and stops, so that no part of it remains.
    let mut signals = Signals::listen()?;
    let status = console.status_line("testing");
    status.set("starting a private cluster");
    let cluster = Private::start(
        &arguments.docker,
        &arguments.policy,
        Some(Arc::clone(&stand_ins)),
    )
    .await?;
    let results = tokio::select! {
        results = in_cluster(&cluster, &family, plan, arguments.openness.openness(), &stand_ins, &status, console) => Some(results),
        () = signals.next() => None,
    };
    cluster.end(false).await?;
    status.remove();
    let Some(results) = results else {
        return Err(Failure::new(
            Exit::Cancelled,
            "interrupted before all cases had ended",
        ));
    };
    report(&results?, arguments.junit.as_deref(), console)
}

/// Resolves the callees of a case's canned answers.
fn planned(source: &Source, case: Case, family: &Family) -> Result<Planned, Failure> {
    let mut answers = BTreeMap::new();
    for (target, given) in &case.handoffs {
        let name = name_of(target, family).ok_or_else(|| {
            let message = format!(
                "case {}: handoffs.yaml has answers for {target:?}, which is not a capsule name",
                case.name
            );
            Failure::usage(message)
        })?;
        answers.insert(name.to_string(), given.clone());
    }
    Ok(Planned {
        capsule: source.name.clone(),
        case,
        answers,
    })
}

fn name_of(target: &str, family: &Family) -> Option<CapsuleName> {
    let known = family.get(target).map(|source| source.name.clone());
    known.or_else(|| slug(target))
}

async fn in_cluster(
    cluster: &Private,
    family: &Family,
    plan: Vec<Planned>,
    openness: Openness,
    stand_ins: &StandIns,
    status: &StatusLine,
    console: Console,
) -> Result<Vec<Tested>, Failure> {
    let running = running(family, &plan);
    for source in &family.members {
        let origin = if running.contains(&source.name) {
            ImageOrigin::Built
        } else {
            ImageOrigin::None
        };
        cluster
            .register(source, origin, openness, |told| told.show(status, console))
            .await?;
    }
    let mut answered: BTreeMap<&String, Vec<&Answer>> = BTreeMap::new();
    for (name, answers) in plan.iter().flat_map(|planned| &planned.answers) {
        answered.entry(name).or_default().extend(answers);
    }
    for (name, answers) in answered {
        if family.get(name).is_none()
            && let Some(name) = slug(name)
        {
            let schema = schema_of(&answers);
            cluster.register_unknown(&name, &schema).await?;
        }
    }
    let concurrency = std::thread::available_parallelism().map_or(1, usize::from);
    let mut running = stream::iter(plan)
        .map(|planned| one(cluster.client(), planned, stand_ins, status))
        .buffered(concurrency);
    let mut results = Vec::new();
    while let Some(tested) = running.next().await {
        let tested = tested?;
        if console.format == Format::Text {
            console.print(&tested.text())?;
        }
        results.push(tested);
    }
    Ok(results)
}

/// The capsules that really run in a case: the tested ones, and all runs below them without canned answers.
fn running(family: &Family, plan: &[Planned]) -> BTreeSet<CapsuleName> {
    let mut running = BTreeSet::new();
    for planned in plan {
        let mut pending = vec![planned.capsule.clone()];
        let mut seen = BTreeSet::new();
        while let Some(name) = pending.pop() {
            if !seen.insert(name.clone()) {
                continue;
            }
            let callees = family
                .get(name.as_str())
                .into_iter()
                .flat_map(Source::targets);
            let callees = callees.filter_map(|target| family.get(target));
            let real = callees.filter(|callee| !planned.answers.contains_key(callee.name.as_str()));
            pending.extend(real.map(|callee| callee.name.clone()));
        }
        running.extend(seen);
    }
    running
}

async fn one(
    client: &Client,
    planned: Planned,
    stand_ins: &StandIns,
    status: &StatusLine,
) -> Result<Tested, Failure> {
    let began = Instant::now();
    let Planned {
        capsule,
        case,
        answers,
    } = planned;
    let script = Arc::new(Script::new(answers, case.model.clone()));
    let files = case.files.iter().cloned();
    let inputs = Inputs {
        arguments: case.arguments.clone(),
        files: files.map(|(name, path)| Upload { name, path }).collect(),
    };
    let request = CreateRun {
        capsule: capsule.to_string(),
        ..CreateRun::default()
    };
    let outcome = match run::launch(client, request, inputs, None).await {
        // Invalid arguments, for instance: no run exists.
        Err(ClientError::Refused(problem)) => refused(&problem),
        Err(error) => return Err(error.into()),
        Ok(view) => {
            let id = view.summary.id;
            stand_ins.add(id, Arc::clone(&script));
            let (name, text) = (format!("{capsule} {}", case.name), id.to_string());
            status.set(&name);
            let result = tokio::select! {
                result = run::wait(client, &text) => result?,
                never = show_output(client, id, &name, status) => match never {},
            };
            outcome(client, &result, &case).await?
        }
    };
    let mut differences = case.expectation.differences(&outcome);
    differences.extend(script.unanswered().into_iter().map(|(callee, arguments)| {
        format!("call of {callee}: no unused canned answer matches {arguments}")
    }));
    differences.extend(
        script
            .unused()
            .into_iter()
            .map(|(callee, index)| format!("handoffs.yaml: answer {callee}/{index} was not used")),
    );
    Ok(Tested {
        capsule: capsule.to_string(),
        case: case.name,
        seconds: began.elapsed().as_secs_f64(),
        differences,
    })
}

/// Shows the last line of the output of a case while it runs.
async fn show_output(client: &Client, id: RunId, name: &str, status: &StatusLine) -> Infallible {
    let each = |line: &LogLineView| status.set(&format!("{name}: {}", line.text));
    // A case does not fail because its output is not shown.
    if let Err(failure) = logs::follow(client, id, each).await {
        tracing::debug!(?failure, "cannot follow the output of a case");
    }
    std::future::pending().await
}

/// The outcome of a rejected request, reported like a failed run.
fn refused(problem: &Problem) -> Outcome {
    let details = text::problem::details(problem);
    Outcome {
        error: Some((problem.code.clone(), problem.detail.clone(), details)),
        ..Outcome::default()
    }
}

/// The outcome of a result; fetches only the files whose text the case checks.
async fn outcome(client: &Client, result: &RunResult, case: &Case) -> Result<Outcome, Failure> {
    let mut files = BTreeMap::new();
    for file in &result.files {
        let name = file.name.to_string();
        let expected = case.expectation.files.get(&name);
        let bytes = match expected.and_then(|expected| expected.contains.as_ref()) {
            None => None,
            Some(_) => {
                let unusable = |error: std::io::Error| {
                    Failure::environment(format!("{name} cannot be checked")).because(&error)
                };
                let directory = tempfile::tempdir().map_err(unusable)?;
                client.download(file, directory.path()).await?;
                Some(std::fs::read(directory.path().join(&name)).map_err(unusable)?)
            }
        };
        let sha256 = file.digest.to_string();
        files.insert(name, MadeFile { sha256, bytes });
    }
    let error = result.error.as_ref().filter(|_| !result.success);
    Ok(Outcome {
        output: result.output.clone(),
        error: error.map(|error| {
            let detail = error.detail.as_ref();
            let details = detail.map(|detail| text::problem::detail_lines(detail, &error.message));
            (
                error.code.clone(),
                error.message.clone(),
                details.unwrap_or_default(),
            )
        }),
        files,
    })
}

fn report(results: &[Tested], junit: Option<&Path>, console: Console) -> Result<Exit, Failure> {
    if let Some(path) = junit {
        std::fs::write(path, junit::xml(results)).map_err(|error| {
            Failure::usage(format!("{} cannot be written", path.display())).because(&error)
        })?;
    }
    if console.format == Format::Json {
        console.show_json(&results)?;
    }
    let count = |count: usize| format!("{count} case{}", if count == 1 { "" } else { "s" });
    let failed = results.iter().filter(|tested| tested.has_failed()).count();
    match failed {
        0 => console.tell(&format!("{} passed", count(results.len()))),
        failed => {
            let message = format!("{failed} of {} failed", count(results.len()));
            return Err(Failure::new(Exit::RunFailed, message));
        }
    }
    Ok(Exit::Ok)
}
