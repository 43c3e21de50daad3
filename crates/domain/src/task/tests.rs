//! Workflows, templates and conditions.

use std::borrow::Cow;
use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::yaml::Outcome;

fn outcome(yaml: &str) -> Outcome<Workflow> {
    read("flow.yml", yaml.as_bytes(), false)
}

fn workflow(yaml: &str) -> Workflow {
    let outcome = outcome(yaml);
    outcome
        .value
        .unwrap_or_else(|| panic!("{:#?}", outcome.problems))
}

fn shown(problems: &[crate::yaml::Problem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

fn values(known: &[(&str, &str)]) -> BTreeMap<String, String> {
    let known = known.iter();
    known
        .map(|&(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn filled(text: &str, known: &[(&str, &str)]) -> Filled {
    let known = values(known);
    let filled = Template::parse(text).fill(1_000_000, |variable| {
        let value = known.get(&variable.to_string())?;
        Some(Cow::Owned(value.clone()))
    });
    filled.expect("a short text")
}

fn is_true(condition: &str, known: &[(&str, &str)]) -> bool {
    let known = values(known);
    let value_of = |variable: &Variable| known.get(&variable.to_string()).map(Cow::from);
    let condition = Condition::parse(condition).unwrap_or_else(|error| panic!("{error}"));
    condition.is_true(&value_of)
}

#[test]
fn workflow_has_all_its_fields() {
    let workflow = workflow(
        r#"
version: "1.0"
name: swe
description: Changes code
inputs:
  - {name: description, type: string, required: true}
  - {name: rounds, type: number, required: false, default: 2}
outputs:
  - {name: summary, type: file, filename: summary.md}
defaults: {tool: codex, model: small}
config: {timeout: 600, continueOnError: true, loopLimit: 5}
steps:
  - id: plan
    name: Planning
    prompt: "Plan {{inputs.description}}"
    outputs:
      - {name: complexity, type: string, required: true}
  - id: test
    type: command
    command: cargo
    args: [test, 7, ""]
    allow_failure: true
    config: {timeout: 60, retries: 2}
  - id: repair
    type: loop
    until: steps.again.outputs.success == true
    maxIterations: 4
    steps:
      - {id: again, type: command, command: make test}
  - id: choose
    type: conditional
    condition: steps.plan.outputs.complexity == complex
    then:
      - {id: long, prompt: long}
    else:
      - {id: short, prompt: short}
  - id: both
    if: inputs.rounds != 0
    type: parallel
    steps:
      - {id: one, type: command, command: "true"}
      - {id: draw, type: capsule, capsule: chart, args: {kind: bar}, files: {table: data.csv}}
"#,
    );
    assert_eq!(workflow.settings.timeout_seconds, Some(600));
    assert!(workflow.settings.continues_on_error);
    let ids: Vec<&str> = workflow
        .all_steps()
        .iter()
        .map(|step| step.id.as_str())
        .collect();
    assert_eq!(
        ids,
        [
            "plan", "test", "repair", "again", "choose", "long", "short", "both", "one", "draw"
        ]
    );
    let Kind::Command(command) = &workflow.steps[1].kind else {
        panic!("{:?}", workflow.steps[1]);
    };
    let arguments = command.arguments.as_ref().expect("arguments");
    assert_eq!(arguments.len(), 3);
    assert_eq!(arguments[1], Template::parse("7"));
    assert_eq!(workflow.steps[1].limits.retries, Some(2));
    assert_eq!(workflow.steps[1].name, "test");
    assert!(workflow.steps[4].condition.is_some());
}

#[test]
fn all_problems_are_reported_with_their_places() {
    let outcome = outcome(
        r#"name: ""
inputs:
  - {name: a, type: text, required: true}
  - {name: b, type: string, required: true}
  - {name: b, type: number, required: true, default: x}
steps:
  - id: "a b"
    prompt: x
  - id: one
    type: agnet
  - id: two
  - id: two
    type: command
    command: x
    if: steps.one.outputs == 1
  - id: three
    type: parallel
    steps:
      - {id: four, type: loop, until: inputs.b == 1, steps: []}
"#,
    );
    let problems = shown(&outcome.problems);
    let expected = [
        ("flow.yml:1:7", "an empty name"),
        ("flow.yml:3:21", "expected one of string, number, boolean"),
        ("flow.yml:5:5", "defined twice"),
        ("flow.yml:5:5", "expected number"),
        ("flow.yml:7:9", "invalid id \"a b\""),
        ("flow.yml:10:11", "expected one of agent, command"),
        ("flow.yml:11:5", "\"prompt\" is missing"),
        ("flow.yml:12:9", "used twice; first in line 11"),
        (
            "flow.yml:15:9",
            "expected inputs.NAME or steps.ID.outputs.NAME",
        ),
        ("flow.yml:19:14", "cannot run in parallel"),
    ];
    assert_eq!(problems.len(), expected.len(), "{problems:#?}");
    for (problem, (place, words)) in problems.iter().zip(expected) {
        assert!(
            problem.starts_with(place) && problem.contains(words),
            "{problem}: {place} {words}"
        );
    }
    assert_eq!(outcome.value, None);
}

#[test]
fn files_without_a_workflow_have_one_problem() {
    for (yaml, words) in [
        ("", "an empty file"),
        ("- a", "a list found; expected a mapping"),
        ("name: a\n", "\"steps\" is missing"),
        ("name: a\nsteps: null\n", "expected a list"),
        ("name: a\nsteps: []\ninputs: null\n", "expected a list"),
        ("name: a\nname: b\nsteps: []\n", "duplicate"),
        ("name: [\n", "flow.yml:"),
    ] {
        let problems = shown(&outcome(yaml).problems);
        assert!(
            problems.len() == 1 && problems[0].contains(words),
            "{yaml:?}: {problems:?}"
        );
    }
}

#[test]
fn unknown_keys_and_values_are_warnings() {
    let outcome = outcome(
        r#"name: a
icon: star
config: {timeout: 10}
steps:
  - id: plan
    description: why
    prompt: "{{inputs.title}} {{inputs.descripton}} {{steps.plann.outputs.x}} {{else}}"
    outputs: [{name: file, type: file, filename: a.md}]
    config: {timeout: 8, retries: 1}
  - id: use
    type: command
    command: "{{steps.plan.outputs.file_content}} {{steps.plan.outputs.flie}} {{steps.plan.outputs}}"
  - id: empty
    type: loop
    until: steps.use.outputs.sucess == true
    steps: []
"#,
    );
    assert!(outcome.value.is_some(), "{:?}", outcome.problems);
    let warnings = shown(&outcome.warnings);
    let expected = [
        ("flow.yml:1:1", "16 s together, more than 10 s"),
        ("flow.yml:2:1", "unknown key \"icon\""),
        (
            "flow.yml:5:9",
            "inputs.descripton: no such input; did you mean \"description\"?",
        ),
        (
            "flow.yml:5:9",
            "steps.plann.outputs.x: no such step; did you mean \"plan\"?",
        ),
        ("flow.yml:6:5", "unknown key \"description\""),
        (
            "flow.yml:10:9",
            "outputs.flie: the step has no such output; did you mean \"file\"?",
        ),
        (
            "flow.yml:13:9",
            "outputs.sucess: the step has no such output; did you mean \"success\"?",
        ),
    ];
    assert_eq!(warnings.len(), expected.len(), "{warnings:#?}");
    for (warning, (place, words)) in warnings.iter().zip(expected) {
        assert!(
            warning.starts_with(place) && warning.contains(words),
            "{warning}: {place} {words}"
        );
    }
}

#[test]
fn strict_reading_wants_the_name_of_each_file() {
    let yaml = "name: a\nsteps:\n  - id: b\n    prompt: c\n    outputs: [{name: d, type: file}]\n";
    assert!(read("flow.yml", yaml.as_bytes(), false).value.is_some());
    let strict = read("flow.yml", yaml.as_bytes(), true);
    assert!(shown(&strict.problems)[0].contains("\"filename\""));
}

#[test]
fn hostile_files_are_refused_quickly() {
    let laughs = (1..40).map(|level| {
        let below = level - 1;
        format!("a{level}: &a{level} [*a{below}, *a{below}]\n")
    });
    let laughs = format!("a0: &a0 [x, x]\n{}", laughs.collect::<String>());
    assert_eq!(outcome(&laughs).value, None);
    let deep = format!("name: a\nsteps: {}", "[".repeat(5_000));
    assert_eq!(outcome(&deep).value, None);
    let many = (0..1_001).map(|number| format!("  - {{id: s{number}, prompt: x}}\n"));
    let many = format!("name: a\nsteps:\n{}", many.collect::<String>());
    assert!(shown(&outcome(&many).problems)[0].contains("more than 1000 steps"));
    let mut nested = "{id: s9, prompt: x}".to_owned();
    for level in 0..9 {
        nested =
            format!("{{id: s{level}, type: loop, until: inputs.title == 1, steps: [{nested}]}}");
    }
    let nested = format!("name: a\nsteps: [{nested}]\n");
    assert!(shown(&outcome(&nested).problems)[0].contains("8 deep"));
}

#[test]
fn time_limits_of_nested_loops_are_added_without_overflow() {
    let mut step = "{id: s0, prompt: x, config: {timeout: 2592000, retries: 20}}".to_owned();
    for level in 1..6 {
        step = format!(
            "{{id: s{level}, type: loop, until: inputs.title == 1, maxIterations: 10000, steps: [{step}]}}"
        );
    }
    let other = step.replace("id: s", "id: t");
    let outcome = outcome(&format!(
        "name: a\nconfig: {{timeout: 9}}\nsteps: [{step}, {other}]\n"
    ));
    let warnings = shown(&outcome.warnings);
    assert!(warnings[0].contains("more than 9 s"), "{warnings:?}");
}

#[test]
fn windows_line_ends_mean_the_same() {
    let yaml = "name: a\nsteps:\n  - id: b\n    prompt: |\n      one\n      two\n";
    assert_eq!(workflow(yaml), workflow(&yaml.replace('\n', "\r\n")));
}

#[test]
fn values_are_inserted_once_and_as_they_are() {
    let known = [
        ("inputs.a", "{{inputs.b}} $& <b> \\1"),
        ("inputs.b", "B"),
        ("steps.one.outputs.x", ""),
        ("steps.one.outputs", "{\"x\":\"\"}"),
    ];
    let text = "{{inputs.a}}|{{ inputs.b }}|{{steps.one.outputs.x}}|{{steps.one.outputs}}";
    let all = filled(text, &known);
    assert_eq!(all.text, "{{inputs.b}} $& <b> \\1|B||{\"x\":\"\"}");
    assert_eq!(all.unknown, []);
}

#[test]
fn other_texts_in_braces_stay() {
    for text in [
        "{{#if x}}{{else}}{{/if}}",
        "{{inputs}} {{inputs.}} {{steps.a}} {{steps.a.output.b}} {{ }} {{{{}}}}",
        "{{inputs.a b}} {{inputs.a",
        "}} {{ {",
    ] {
        let same = filled(text, &[("inputs.a", "A")]);
        assert_eq!((same.text.as_str(), same.unknown.len()), (text, 0));
    }
    assert_eq!(filled("{{{inputs.a}}}", &[("inputs.a", "A")]).text, "{A}");
}

#[test]
fn text_beyond_its_limit_is_not_made() {
    let template = Template::parse("{{inputs.a}}{{inputs.a}}");
    let fill = |bytes_max| template.fill(bytes_max, |_| Some("12345".into()));
    assert_eq!(fill(9), None);
    assert_eq!(
        fill(10).map(|filled| filled.text).as_deref(),
        Some("1234512345")
    );
}

#[test]
fn unknown_values_stay_and_are_named_once() {
    let filled = filled("{{inputs.x}} {{ inputs.x }} {{steps.s.outputs.y}}", &[]);
    assert_eq!(
        filled.text,
        "{{inputs.x}} {{ inputs.x }} {{steps.s.outputs.y}}"
    );
    let names: Vec<String> = filled.unknown.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["inputs.x", "steps.s.outputs.y"]);
}

#[test]
fn comparisons_ignore_spaces_and_spellings_of_truth() {
    let known = [
        ("inputs.a", " YES\n"),
        ("inputs.b", "no"),
        ("inputs.c", "Two words "),
    ];
    for truth in ["true", "1", "yes", "'True'"] {
        assert!(is_true(&format!("inputs.a == {truth}"), &known), "{truth}");
        assert!(is_true(&format!("inputs.b != {truth}"), &known), "{truth}");
    }
    assert!(is_true("inputs.b == 0", &known));
    assert!(is_true("inputs.c == Two words", &known));
    assert!(is_true("inputs.c == \"Two words\"", &known));
    assert!(!is_true("inputs.c == two words", &known));
    assert!(is_true("inputs.c==Two words&&inputs.a==1", &known));
}

#[test]
fn undefined_values_differ_from_everything() {
    assert!(!is_true("steps.a.outputs.b == ''", &[]));
    assert!(is_true("steps.a.outputs.b != ''", &[]));
}

#[test]
fn and_binds_tighter_than_or() {
    let known = [("inputs.t", "1"), ("inputs.f", "0")];
    assert!(is_true(
        "inputs.t == 1 || inputs.t == 1 && inputs.f == 1",
        &known
    ));
    assert!(!is_true(
        "(inputs.t == 1 || inputs.t == 1) && inputs.f == 1",
        &known
    ));
}

#[test]
fn mistakes_of_conditions_name_their_character() {
    for (text, words) in [
        ("", "the end at character 1; expected inputs.NAME"),
        ("inputs.a", "the end at character 9; expected == or !="),
        ("inputs.a = 1", "at character 10; expected == or !="),
        ("inputs.a ==", "the end at character 12; expected a text"),
        (
            "inputs.ä == 'x",
            "\"'x\" at character 13; expected a closing quotation mark",
        ),
        (
            "(inputs.a == 1",
            "the end at character 15; expected &&, || or )",
        ),
        (
            "inputs.a == 1)",
            "\")\" at character 14; expected &&, || or the end",
        ),
        (
            "steps.a.outputs == 1",
            "at character 1; expected inputs.NAME",
        ),
    ] {
        let error = Condition::parse(text).expect_err(text).to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
    let deep = format!("{}inputs.a == 1{}", "(".repeat(17), ")".repeat(17));
    assert!(Condition::parse(&deep).is_err());
}

/// A condition as text, and its value by the plain rule.
fn arbitrary_condition() -> impl Strategy<Value = (String, bool)> {
    let leaf = (0..4_u8, any::<bool>()).prop_map(|(value, is_equality)| {
        let operator = if is_equality { "==" } else { "!=" };
        // `inputs.v` is `2`.
        let text = format!("inputs.v {operator} {value}");
        (text, (value == 2) == is_equality)
    });
    leaf.prop_recursive(4, 32, 4, |inner| {
        (any::<bool>(), prop::collection::vec(inner, 1..4)).prop_map(|(is_all, terms)| {
            let (operator, value) = if is_all {
                (" && ", terms.iter().all(|(_, value)| *value))
            } else {
                ("||", terms.iter().any(|(_, value)| *value))
            };
            let texts: Vec<String> = terms
                .into_iter()
                .map(|(text, _)| format!("({text})"))
                .collect();
            (texts.join(operator), value)
        })
    })
}

proptest! {
    #[test]
    fn any_condition_has_the_value_of_its_terms((text, expected) in arbitrary_condition()) {
        prop_assert_eq!(is_true(&text, &[("inputs.v", "2")]), expected, "{}", text);
    }

    #[test]
    fn any_text_without_values_stays_as_it_is(text in "[{} .a-z]{0,60}|(\\{\\{inputs\\.[a-c]\\}\\}|x){0,8}") {
        prop_assert_eq!(filled(&text, &[]).text, text);
    }

    #[test]
    fn any_value_is_inserted_between_its_neighbours(value in ".{0,40}", left in "[a-z]{0,9}", right in "[a-z]{0,9}") {
        let text = format!("{left}{{{{inputs.v}}}}{right}");
        let filled = filled(&text, &[("inputs.v", &value)]);
        prop_assert_eq!(filled.text, format!("{left}{value}{right}"));
    }
}

fn output(name: &str, kind: OutputType) -> Output {
    Output {
        name: name.into(),
        description: None,
        kind,
        is_required: false,
    }
}

fn captured(answer: &str, names: &[&str]) -> BTreeMap<String, String> {
    let outputs: Vec<Output> = names
        .iter()
        .map(|name| output(name, OutputType::Text))
        .collect();
    capture(answer, &outputs).values
}

#[test]
fn object_with_most_outputs_counts_and_the_last_of_equals() {
    for (answer, expected) in [
        (
            r#"So: {"a": "1"} or {"a": "2", "b": "3"} or {"a": "4"}."#,
            "2",
        ),
        (r#"{"a": "1"} {"a": "2"}"#, "2"),
        (r#"{"result": {"a": "1"}}"#, "1"),
        ("x {not json} {\"a\": \"1\"} } {", "1"),
        ("{\"c\": \"{\\\"a\\\": 9}\", \"a\": \"1\"}", "1"),
        ("fn f() { if x { \"} ", ""),
        (
            "```json\n{\"a\": \"1\"}\n```\n{\"a\": \"2\", \"b\": \"3\"}",
            "1",
        ),
        (
            "```\n{}\n```\n```json\n{\"a\": \"1\"}\n```\n```js\n{\"c\": 1}\n```",
            "1",
        ),
        ("```\nnothing\n```\n{\"a\": \"1\"}", "1"),
        ("```json\n{\"a\": \"1\"}", "1"),
    ] {
        let found = captured(answer, &["a", "b"]);
        let found = found.get("a").map(String::as_str).unwrap_or_default();
        assert_eq!(found, expected, "{answer}");
    }
}

#[test]
fn values_keep_their_text_and_types_are_compared() {
    let outputs = [
        output("text", OutputType::Text),
        output("number", OutputType::Number),
        output("truth", OutputType::Boolean),
        output("list", OutputType::Text),
        output("nothing", OutputType::Text),
        output("file", OutputType::File(None)),
    ];
    let answer = r#"{"text": "a\n\"b\" $& {{x}}", "number": 18446744073709551616, "truth": "true", "list": [1, 2.50]}"#;
    let captured = capture(answer, &outputs);
    let expected = [
        ("list", "[1, 2.50]"),
        ("number", "18446744073709551616"),
        ("text", "a\n\"b\" $& {{x}}"),
        ("truth", "true"),
    ];
    assert_eq!(captured.values, values(&expected));
    assert_eq!(captured.missing, ["nothing"]);
    assert_eq!(captured.misfits, ["truth", "list"]);
}

#[test]
fn hostile_answers_are_searched_quickly() {
    for piece in ["{", "{\"a\":", "{\"a\":{", "{}", "{\"", "```\n{\n"] {
        let answer = piece.repeat((4 << 20) / piece.len());
        let found = captured(&format!("{{\"a\": \"1\"}} {answer}"), &["a"]);
        assert!(found.len() <= 1, "{piece}");
    }
}

#[test]
fn prompt_asks_for_values_and_files() {
    let described = |name: &str, kind, description: &str, is_required| Output {
        description: Some(description.into()),
        is_required,
        ..output(name, kind)
    };
    let outputs = [
        described(
            "verdict",
            OutputType::Text,
            "Either \"yes\"\n  or \"no\"",
            true,
        ),
        output("a \"b\"", OutputType::Number),
        described("done", OutputType::Boolean, " ", false),
        described(
            "report",
            OutputType::File(Some("out/report.md".into())),
            "The report",
            true,
        ),
        output("lost", OutputType::File(None)),
    ];
    let expected = r#"Look {{at}} it.

---

Outputs of this step:

End your answer with one JSON object in a fenced block that begins with ```json. The object has exactly these members:

- "verdict" (string, required): Either "yes" or "no"
- "a \"b\"" (number)
- "done" (boolean)

Write these files, with paths relative to the current directory, unless the instructions above exclude a file:

- out/report.md (required): The report
"#;
    assert_eq!(
        prompt::with_outputs("Look {{at}} it.\n", &outputs),
        expected
    );
    // An answer that repeats the prompt has no values.
    assert!(capture(expected, &outputs).values.is_empty());
}

#[test]
fn prompt_without_outputs_stays_as_it_is() {
    assert_eq!(prompt::with_outputs("Look. \n", &[]), "Look. \n");
    let lost = [output("lost", OutputType::File(None))];
    assert_eq!(prompt::with_outputs("Look. \n", &lost), "Look. \n");
}
