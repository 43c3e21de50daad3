//! The command line: parsing and help.

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
            .expect("the subcommand exists");
    }
    command.render_help().to_string()
}

#[test]
fn help_of_every_command_matches_its_snapshot() {
    let commands: [&[&str]; 46] = [
        &[],
        &["up"],
        &["down"],
        &["gateway"],
        &["node"],
        &["credentials"],
        &["run"],
        &["runs"],
        &["runs", "ls"],
        &["runs", "wait"],
        &["runs", "files"],
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
        &["capsule", "rm"],
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
fn command_definition_is_consistent() {
    Arguments::command().debug_assert();
}

fn parsed(line: &str) -> Command {
    let words = std::iter::once("aod").chain(line.split(' '));
    Arguments::try_parse_from(words)
        .unwrap_or_else(|error| panic!("{error}"))
        .command
}

#[test]
fn run_arguments_are_parsed() {
    let Command::Run(run) =
        parsed("run chart -i a=1 --input b=@x.csv -o out --timeout 9 --pool gpu --detach")
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
            run.call.output,
            run.limits.timeout,
            run.pool.as_deref(),
            run.detach
        ),
        (Some("out".into()), Some(9), Some("gpu"), true)
    );
}

#[test]
fn format_flag_is_accepted_at_every_position() {
    for line in [
        "--format json runs ls",
        "runs --format json ls",
        "runs ls --format json",
    ] {
        let words = std::iter::once("aod").chain(line.split(' '));
        assert_eq!(
            Arguments::try_parse_from(words).unwrap().format,
            Format::Json,
            "{line}"
        );
    }
}

#[test]
fn pools_of_a_node_replace_the_default_pool() {
    let pools = |line: &str| match parsed(line) {
        Command::Node(node) => node
            .capacity
            .pools
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        _ => panic!("another command"),
    };
    assert_eq!(pools("node --nats nats://one"), ["any"]);
    assert_eq!(
        pools("node --nats nats://one --pool gpu --pool any"),
        ["gpu", "any"]
    );
}

#[test]
fn nats_flag_accepts_servers_separated_by_commas() {
    let Command::Gateway(gateway) = parsed("gateway --nats nats://one,nats://two") else {
        panic!("another command")
    };
    assert_eq!(gateway.broker.nats, ["nats://one", "nats://two"]);
}

#[test]
fn contents_are_stored_and_exported_only_with_their_own_flag() {
    let up = |line: &str| match parsed(line) {
        Command::Up(up) => (up.capacity.keep_model_contents, up.traces.otlp_contents),
        _ => panic!("another command"),
    };
    assert_eq!(up("up --otlp http://one"), (false, false));
    // The flags are independent: stored contents stay in the cluster, exported contents leave it.
    assert_eq!(up("up --keep-model-contents"), (true, false));
    assert_eq!(up("up --otlp http://one --otlp-contents"), (false, true));
}

#[test]
fn up_is_open_to_agent_on_demand_only_with_its_flag() {
    let is_open = |line: &str| match parsed(line) {
        Command::Up(up) => up.open_to_agent_on_demand,
        _ => panic!("another command"),
    };
    assert!(!is_open("up"));
    assert!(is_open("up --open-to-agent-on-demand"));
}

#[test]
fn subcommands_parse_their_own_flags() {
    assert!(
        matches!(parsed("runs logs -f run_1"), Command::Runs(RunsCommand::Logs(arguments)) if arguments.follow)
    );
    assert!(matches!(
        parsed("capsule build . --open-handoffs"),
        Command::Capsule(CapsuleCommand::Build(arguments)) if arguments.openness.open_handoffs
    ));
}

#[test]
fn invalid_command_line_exits_with_2() {
    for line in [
        "",
        "runs",
        "run",
        "run x --timeout 0",
        "node",
        "runs ls --limit 501",
        "up --pool A",
        "up --otlp-contents",
        "gateway --nats nats://one --otlp-contents",
        "capsule validate",
    ] {
        let words = std::iter::once("aod").chain(line.split(' ').filter(|word| !word.is_empty()));
        let error = Arguments::try_parse_from(words).expect_err(line);
        assert_eq!(error.exit_code(), 2, "{line}");
    }
}
