//! Workflow files of tasks.

use std::borrow::Cow;

use aod_domain::task::{Condition, Kind, Template, Workflow, read};

use crate::manifests::check_problems;

/// The bytes as a workflow, and each line as a prompt and as a condition.
pub fn check(bytes: &[u8]) {
    let outcome = read("workflow.yml", bytes, false);
    check_problems(bytes, &outcome.problems);
    check_problems(bytes, &outcome.warnings);
    assert_eq!(outcome.value.is_none(), !outcome.problems.is_empty());
    if let Some(workflow) = &outcome.value {
        check_workflow(workflow);
    }
    for line in bytes.split(|&byte| byte == b'\n') {
        if let Ok(text) = str::from_utf8(line) {
            check_template(text);
            check_condition(text);
        }
    }
}

/// No two steps have one id, and steps that run in parallel contain no steps.
fn check_workflow(workflow: &Workflow) {
    let all = workflow.all_steps();
    let mut ids: Vec<&str> = all.iter().map(|step| step.id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all.len());
    for step in all {
        if let Kind::Parallel(steps) = &step.kind {
            assert!(steps.iter().all(|step| !step.has_steps()));
        }
    }
}

/// A text without values is unchanged, and a value is not expanded.
fn check_template(text: &str) {
    let template = Template::parse(text);
    let unfilled = template.fill(usize::MAX, |_| None);
    assert_eq!(unfilled.map(|filled| filled.text).as_deref(), Some(text));
    let value = "{{inputs.value}}";
    let filled = template.fill(usize::MAX, |_| Some(Cow::Borrowed(value)));
    let filled = filled.expect("it has no limit");
    assert_eq!(filled.unknown, []);
    let count = template.variables().count();
    assert!(filled.text.matches(value).count() >= count);
}

/// A condition is true or false, whatever the values are.
fn check_condition(text: &str) {
    if let Ok(condition) = Condition::parse(text) {
        assert!(!condition.variables().is_empty());
        condition.is_true(&|_| None);
        condition.is_true(&|_| Some(Cow::Borrowed("yes")));
    }
}
