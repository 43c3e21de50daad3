//! What the command line takes, and what it says of itself.

use clap::{CommandFactory as _, Parser as _};

use super::{Arguments, CapsuleCommand, Command, RunsCommand};
use crate::console::Format;

/// Wide enough for any terminal, so that snapshots do not depend on one.
const HELP_WIDTH: usize = 100;

fn help_of(path: &[&str]) -> String {
    let mut command = Arguments::command()
        .term_width(HELP_WIDTH)
        .max_term_width(HELP_WIDTH);
    command.build();
    let mut command = &mut command;
    for name in path {
        command = command
            .find_subcommand_mut(name)
            .expect("a command of ours");
    }
    command.render_help().to_string()
}

#[test]
fn every_command_explains_itself() {
    let commands: [&[&str]; 43] = [
        &[],
        &["up"],
        &["down"],
        &["gateway"],
        &["node"],
        &["credentials"],
        &["run"],
        &["runs"],
        &["runs", "ls"],
        &["runs", "logs"],
        &["runs", "tree"],
        &["runs", "at"],
        &["runs", "diff"],
        &["runs", "rerun"],
        &["runs", "cancel"],
        &["events", "query"],
        &["events", "tail"],
        &["deadletters"],
        &["deadletters", "ls"],
        &["audit"],
        &["audit", "export"],
        &["audit", "verify"],
        &["capsule"],
        &["capsule", "graph"],
        &["capsule", "inspect"],
        &["capsule", "new"],
        &["capsule", "run"],
        &["capsule", "schema"],
        &["capsule", "test"],
        &["capsule", "validate"],
        &["capsule", "build"],
        &["rules"],
        &["rules", "set"],
        &["tokens"],
        &["tokens", "create"],
        &["retention"],
        &["retention", "set"],
        &["hold"],
        &["gc"],
        &["nodes"],
        &["nodes", "drain"],
        &["doctor"],
        &["completions"],
    ];
    for path in commands {
        let name = format!("help_{}", path.join("_"));
        insta::assert_snapshot!(name.trim_end_matches('_'), help_of(path));
    }
}

#[test]
fn the_definition_is_consistent() {
    Arguments::command().debug_assert();
}

fn parsed(line: &str) -> Command {
    let words = std::iter::once("aod").chain(line.split(' '));
    Arguments::try_parse_from(words)
        .unwrap_or_else(|error| panic!("{error}"))
        .command
}

#[test]
fn a_run_takes_what_it_is_given() {
    let Command::Run(run) =
        parsed("run chart -i a=1 --input b=@x.csv -o out --timeout 9 --label gpu --detach")
    else {
        panic!("another command");
    };
    assert_eq!(
        (run.capsule.as_str(), run.call.inputs.as_slice()),
        (
            "chart",
            ["a=1".to_owned(), "b=@x.csv".to_owned()].as_slice()
        )
    );
    assert_eq!(
        (
            run.call.output_dir,
            run.limits.timeout,
            run.label.as_deref(),
            run.detach
        ),
        (Some("out".into()), Some(9), Some("gpu"), true)
    );
}

#[test]
fn the_format_may_stand_anywhere() {
    for line in [
        "--output json runs ls",
        "runs --output json ls",
        "runs ls --output json",
    ] {
        let words = std::iter::once("aod").chain(line.split(' '));
        assert_eq!(
            Arguments::try_parse_from(words).unwrap().output,
            Format::Json,
            "{line}"
        );
    }
}

#[test]
fn labels_of_a_node_replace_the_usual_one() {
    let labels = |line: &str| match parsed(line) {
        Command::Node(node) => node
            .capacity
            .labels
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        _ => panic!("another command"),
    };
    assert_eq!(labels("node --nats nats://one"), ["any"]);
    assert_eq!(
        labels("node --nats nats://one --label gpu --label any"),
        ["gpu", "any"]
    );
}

#[test]
fn several_servers_of_one_cluster_are_named_at_once() {
    let Command::Gateway(gateway) = parsed("gateway --nats nats://one,nats://two") else {
        panic!("another command")
    };
    assert_eq!(gateway.broker.nats, ["nats://one", "nats://two"]);
}

#[test]
fn contents_are_only_kept_and_told_where_that_is_asked_for() {
    let up = |line: &str| match parsed(line) {
        Command::Up(up) => (up.capacity.keep_model_contents, up.traces.otlp_contents),
        _ => panic!("another command"),
    };
    assert_eq!(up("up --otlp http://one"), (false, false));
    // Neither is part of the other: what is kept stays, and what is told leaves the cluster.
    assert_eq!(up("up --keep-model-contents"), (true, false));
    assert_eq!(up("up --otlp http://one --otlp-contents"), (false, true));
}

#[test]
fn commands_have_their_own_words() {
    assert!(
        matches!(parsed("runs logs -f run_1"), Command::Runs(RunsCommand::Logs(arguments)) if arguments.follow)
    );
    assert!(matches!(
        parsed("capsule build . --open-handoffs"),
        Command::Capsule(CapsuleCommand::Build(arguments)) if arguments.open_handoffs
    ));
}

#[test]
fn what_is_not_understood_ends_with_2() {
    for line in [
        "",
        "runs",
        "run",
        "run x --timeout 0",
        "node",
        "runs ls --limit 501",
        "up --label A",
        "up --otlp-contents",
        "gateway --nats nats://one --otlp-contents",
        "capsule validate",
    ] {
        let words = std::iter::once("aod").chain(line.split(' ').filter(|word| !word.is_empty()));
        let error = Arguments::try_parse_from(words).expect_err(line);
        assert_eq!(error.exit_code(), 2, "{line}");
    }
}
