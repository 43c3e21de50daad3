//! Workflow files: the published JSON Schema agrees with the reader, and files that people wrote for Rover are read.
//! Their prompts ask for the outputs of the steps.

use std::fs;
use std::path::{Path, PathBuf};

use aod_domain::task::{Kind, Workflow, prompt, read};
use serde_json::Value;

fn at_root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// Checks that schema and reader both accept the sample, or both reject it.
fn check(sample: &str, is_fine: bool) {
    let text = fs::read(at_root("docs/schemas/workflow.json")).expect("a published schema");
    let schema: Value = serde_json::from_slice(&text).expect("a schema is JSON");
    let value: Value = serde_saphyr::from_str(sample).expect("a sample is YAML");
    let validator = jsonschema::validator_for(&schema).expect("a published schema is one");
    assert_eq!(validator.is_valid(&value), is_fine, "schema: {sample}");
    let outcome = read("sample", sample.as_bytes(), false);
    let problems = outcome.problems;
    assert_eq!(outcome.value.is_some(), is_fine, "{sample}: {problems:?}");
}

#[test]
fn published_schema_agrees_with_the_reader() {
    let steps = [
        "{id: a, prompt: x}",
        "{id: a, type: agent, prompt: x, tool: codex, model: m, outputs: [{name: o, type: file, filename: f, required: true}]}",
        "{id: a, type: command, command: ls, args: [a, 1, true], allow_failure: true, config: {timeout: 1, retries: 2}}",
        "{id: a, if: inputs.title == 1, type: loop, until: inputs.title == 1, maxIterations: 2, steps: [{id: b, prompt: x}]}",
        "{id: a, type: parallel, steps: [{id: b, prompt: x}, {id: c, type: capsule, capsule: d}]}",
        "{id: a, type: conditional, condition: inputs.title == 1, then: [], else: [{id: b, prompt: x}]}",
        "{id: a, type: capsule, capsule: d, args: {b: [1]}, files: {c: d/e}, unknown: 1}",
    ];
    for step in steps {
        check(&format!("name: a\nsteps: [{step}]\n"), true);
    }
    check(
        "name: a\nversion: 1.0\ninputs: [{name: b, type: number, required: false, default: 1}]\nconfig: {timeout: 5, continueOnError: true, loopLimit: 1}\nsteps: []\n",
        true,
    );
    let broken = [
        "{prompt: x}",
        "{id: 'a b', prompt: x}",
        "{id: a}",
        "{id: a, type: other, prompt: x}",
        "{id: a, type: command}",
        "{id: a, type: command, command: [ls]}",
        "{id: a, type: command, command: ls, config: {timeout: 0}}",
        "{id: a, type: loop, steps: []}",
        "{id: a, type: parallel, steps: [{id: b, type: loop, until: inputs.title == 1, steps: []}]}",
        "{id: a, type: conditional, condition: inputs.title == 1}",
        "{id: a, type: capsule}",
        "{id: a, prompt: x, outputs: [{name: o, type: text}]}",
    ];
    for step in broken {
        check(&format!("name: a\nsteps: [{step}]\n"), false);
    }
    check("steps: []\n", false);
    check("name: a\n", false);
    check(
        "name: a\ninputs: [{name: b, type: string}]\nsteps: []\n",
        false,
    );
    check("name: a\nconfig: {loopLimit: 0}\nsteps: []\n", false);
}

#[test]
fn files_of_rover_are_read() {
    let directory = at_root("../shared/samples/rover");
    let Ok(entries) = fs::read_dir(&directory) else {
        eprintln!("not run: {} does not exist", directory.display());
        return;
    };
    let mut steps = Vec::new();
    for entry in entries {
        let path = entry.expect("an entry").path();
        let name = path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let outcome = read(&name, &fs::read(&path).expect("a file"), true);
        match outcome.value {
            Some(workflow) => steps.push((name, workflow.steps.len())),
            None => {
                let text = outcome.problems[0].to_string();
                assert!(
                    name.starts_with("14-") && text.contains("used twice"),
                    "{text}"
                );
                steps.push((name, 0));
            }
        }
    }
    steps.sort();
    let counts: Vec<usize> = steps.iter().map(|(_, count)| *count).collect();
    assert_eq!(counts, [0, 1, 2, 3, 6, 4], "{steps:?}");
}

/// A workflow of Rover; none where the samples do not exist.
fn workflow_of_rover(name: &str) -> Option<Workflow> {
    let path = at_root("../shared/samples/rover").join(name);
    let Ok(yaml) = fs::read(&path) else {
        eprintln!("not run: {} does not exist", path.display());
        return None;
    };
    read(name, &yaml, true).value
}

/// What the prompt of a step asks for after the author's text.
fn asked(workflow: &Workflow, step: &str) -> String {
    let all = workflow.all_steps();
    let step = all.iter().find(|found| found.id.as_str() == step);
    let Some(Kind::Agent(agent)) = step.map(|step| &step.kind) else {
        panic!("no such step");
    };
    let text = "What the author wrote.";
    let whole = prompt::with_outputs(text, &agent.outputs);
    whole
        .strip_prefix(text)
        .expect("the author's text")
        .to_owned()
}

#[test]
fn prompts_of_rover_ask_for_the_outputs_of_their_steps() {
    let Some(swe) = workflow_of_rover("swe.yml") else {
        return;
    };
    let review = r#"

---

Outputs of this step:

End your answer with one JSON object in a fenced block that begins with ```json. The object has exactly these members:

- "skipped" (string): Whether review was skipped (true/false)
- "issues_found" (string): Whether issues were found (true/false)

Write these files, with paths relative to the current directory, unless the instructions above exclude a file:

- review.md: Code review file with issues (only created if issues found)
"#;
    assert_eq!(asked(&swe, "review"), review);
    let plan = r"

---

Outputs of this step:

Write these files, with paths relative to the current directory, unless the instructions above exclude a file:

- plan.md: Implementation plan file
";
    assert_eq!(asked(&swe, "plan"), plan);
}
