//! Snapshots of terminal output for fixed data.

use std::collections::BTreeMap;

use aod_api::capsules::{
    BaseView, CapsuleView, LayerView, LayersView, RegisteredCapsule, ResourcesView,
};
use aod_api::dead_letters::{AttemptView, DeadLetterState, DeadLetterSummary, DeadLetterView};
use aod_api::events::{EventView, LogLineView, LogOutput};
use aod_api::files::FileView;
use aod_api::history::{
    LastEvent, OneSidedRun, PlaceDifference, ReplayDifference, ReplayView, RunDifference, RunPhase,
    TreeAt, TreeAtNode, TreeDifference,
};
use aod_api::nodes::{DevicesView, NodeView};
use aod_api::problem::{Problem, ProblemItem};
use aod_api::runs::{CancelView, ErrorView, RunKind, RunState, RunSummary, TimingsView, TreeNode};
use aod_domain::digest::Digest;
use aod_domain::error_code::{ErrorCode, ErrorSource};
use aod_domain::id::{NodeId, RunId};
use aod_domain::run::DeadLetterReason;
use aod_domain::tenant::Tenant;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{dead_letter, event, history, problem, run, table, tree};
use crate::failure::Failure;

const NOON: &str = "2026-03-01T12:00:00Z";

/// This number of milliseconds after noon.
fn at(milliseconds: i64) -> Timestamp {
    NOON.parse::<Timestamp>().unwrap() + SignedDuration::from_millis(milliseconds)
}

fn root() -> RunId {
    RunId::root_of(Uuid::from_u128(1))
}

fn summary(id: RunId, capsule: &str, state: RunState) -> RunSummary {
    RunSummary {
        id,
        tenant: Tenant::default(),
        root: id.root(),
        parent: (id != id.root()).then(|| id.root()),
        kind: RunKind::Capsule,
        capsule: capsule.to_owned(),
        state,
        attempts: 1,
        node: Some(NodeId::new(Uuid::from_u128(7))),
        requested_at: at(0),
        leased_at: (state != RunState::Queued).then(|| at(30)),
        ended_at: state.is_ended().then(|| at(4_200)),
        requested_by: "operator".to_owned(),
        cost_usd: (id == id.root()).then_some(0.0125),
        labels: [("team".to_owned(), "birds".to_owned())].into(),
        error: (state == RunState::Failed)
            .then(|| error("capsule_exit", "the capsule ended with exit code 3")),
    }
}

fn error(code: &str, message: &str) -> ErrorView {
    let detail = Some(json!({"code": 3, "log": ["reading", "no such column"]}));
    ErrorView {
        code: code.to_owned(),
        message: message.to_owned(),
        detail,
        retryable: false,
        source: ErrorSource::Capsule,
    }
}

fn timings(leased: i64, waiting: u64) -> TimingsView {
    TimingsView {
        requested_at: at(0),
        leased_at: Some(at(leased)),
        started_at: Some(at(leased + 100)),
        exited_at: Some(at(4_100)),
        ended_at: at(4_200),
        waiting_milliseconds: waiting,
    }
}

fn node(run: RunSummary, timings: Option<TimingsView>, children: Vec<TreeNode>) -> TreeNode {
    TreeNode {
        reused_from: None,
        run,
        timings,
        children,
    }
}

#[test]
fn tree_shows_calls_states_and_times() {
    let child = |key: &str| root().child(&Digest::of(key));
    let cover = node(
        summary(child("cover"), "chart", RunState::Failed),
        Some(timings(11, 0)),
        Vec::new(),
    );
    let charts = [("one", RunState::Succeeded), ("two", RunState::Running)];
    let mut children: Vec<TreeNode> = charts
        .into_iter()
        .map(|(key, state)| {
            node(
                summary(child(key), "chart", state),
                state.is_ended().then(|| timings(30, 0)),
                Vec::new(),
            )
        })
        .collect();
    children.insert(
        1,
        node(
            summary(child("report"), "report", RunState::Succeeded),
            Some(timings(30, 1_800)),
            vec![cover],
        ),
    );
    let queued = RunSummary {
        node: None,
        ..summary(child("three"), "chart", RunState::Queued)
    };
    children.push(node(queued, None, Vec::new()));
    let tree = node(summary(root(), "survey", RunState::Waiting), None, children);
    insta::assert_snapshot!(tree::draw(&tree, at(65_000)));
}

#[test]
fn runs_are_printed_as_a_table() {
    let build = RunSummary {
        kind: RunKind::Build,
        ..summary(root(), "chart", RunState::TimedOut)
    };
    let child = summary(root().child(&Digest::of("x")), "chart", RunState::Failed);
    insta::assert_snapshot!(table::runs(&[
        child,
        summary(root(), "survey", RunState::Waiting),
        build
    ]));
    assert_eq!(table::runs(&[]), "no runs");
}

#[test]
fn files_are_printed_as_a_table() {
    let file = |name: &str, size_bytes| FileView {
        name: name.parse().expect("a file name"),
        digest: Digest::of(name),
        size_bytes,
        url: format!("/v1/runs/run_1/files/{name}"),
    };
    let shown = table::files(&[file("chart.svg", 2_048), file("data/rows.csv", 7)]);
    assert_eq!(
        shown,
        "FILE           SIZE\nchart.svg      2.0 KiB\ndata/rows.csv  7 B"
    );
    assert_eq!(table::files(&[]), "no files");
}

fn dead_letter_summary(state: DeadLetterState) -> DeadLetterSummary {
    let why = ErrorView {
        source: ErrorSource::Platform,
        ..error("dead_letter", "5 attempts ended without a result")
    };
    DeadLetterSummary {
        run: RunSummary {
            attempts: 6,
            error: Some(why),
            ..summary(root().child(&Digest::of("x")), "chart", RunState::Failed)
        },
        reason: DeadLetterReason::AttemptsLost,
        dead_letter: state,
        requeued_as: (state == DeadLetterState::Requeued).then(root),
    }
}

#[test]
fn dead_letters_are_printed_as_a_table() {
    let letters = [
        dead_letter_summary(DeadLetterState::Open),
        dead_letter_summary(DeadLetterState::Requeued),
    ];
    insta::assert_snapshot!(dead_letter::table(&letters, at(3_700_000)));
    assert_eq!(dead_letter::table(&[], at(0)), "no dead letters");
}

#[test]
fn dead_letter_shows_attempts_and_last_output() {
    let attempt = |number, node: Option<u128>, text: &str| AttemptView {
        attempt: number,
        node: node.map(|node| NodeId::new(Uuid::from_u128(node))),
        leased_at: at(i64::from(number) * 1_000),
        ended_at: Some(at(i64::from(number) * 1_000 + 500)),
        error: Some(error("runtime_failed", text)),
    };
    let view = DeadLetterView {
        summary: dead_letter_summary(DeadLetterState::Open),
        deliveries: 7,
        attempts: vec![
            attempt(1, Some(7), "the engine does not answer"),
            attempt(6, None, "5 attempts ended without a result"),
        ],
        last_lines: vec![LogLineView {
            attempt: 1,
            number: 3,
            at: at(1_200),
            step: None,
            output: LogOutput::Stdout,
            text: "reading penguins.csv".to_owned(),
        }],
    };
    insta::assert_snapshot!(dead_letter::details(&view));
}

fn capsule(name: &str, handoffs: Option<Vec<String>>) -> CapsuleView {
    CapsuleView {
        name: name.to_owned(),
        title: Some("A Chart".to_owned()),
        description: None,
        aliases: Vec::new(),
        content: Digest::of(name),
        image: "sha256:1".to_owned(),
        bases: Vec::new(),
        pool: "any".to_owned(),
        resources: ResourcesView {
            cpu_millis: 1_000,
            memory_bytes: 512 << 20,
            pids: 64,
            disk_bytes: 1 << 30,
            timeout_seconds: 120,
        },
        handoffs,
        secrets: Vec::new(),
        egress: Vec::new(),
        registered_at: at(0),
        registered_by: "operator".to_owned(),
        layers: None,
        schema: None,
    }
}

#[test]
fn bases_are_printed_with_where_they_are() {
    let base = |reference: &str, digest: Option<&str>, is_stored| BaseView {
        reference: reference.to_owned(),
        image: "sha256:1234".to_owned(),
        digest: digest.map(str::to_owned),
        is_stored,
    };
    let shown = [
        base("python:3.11-slim", Some("python@sha256:5678"), true),
        base("ours:1", None, true),
        base("tools:local", None, false),
    ];
    insta::assert_snapshot!(shown.map(|base| super::capsule::base(&base)).join("\n"));
}

#[test]
fn layers_are_printed_with_the_capsules_that_share_them() {
    let layer = |name: &str, size_bytes, others: Option<&[&str]>| LayerView {
        digest: Digest::of(name),
        size_bytes,
        is_shared: others.is_some(),
        shared_with: others.map_or_else(Vec::new, |others| {
            others.iter().map(|other| (*other).to_owned()).collect()
        }),
    };
    let shown = super::capsule::layers(&LayersView {
        size_bytes: 421_000_000,
        own_bytes: 1_000,
        items: vec![
            layer("base", 320_000_000, Some(&["chart", "map"])),
            layer("libraries", 100_999_000, Some(&[])),
            layer("capsule", 1_000, None),
        ],
    });
    insta::assert_snapshot!(shown);
}

#[test]
fn capsules_are_printed_as_a_table() {
    let listed = capsule("report", Some(vec!["chart".to_owned(), "A Map".to_owned()]));
    insta::assert_snapshot!(table::capsules(&[
        capsule("chart", Some(Vec::new())),
        listed,
        capsule("old", None)
    ]));
}

#[test]
fn registration_is_printed_as_a_line() {
    let registered = |is_unchanged| RegisteredCapsule {
        capsule: capsule("chart", None),
        build: None,
        is_unchanged,
    };
    let lines = [false, true].map(|is_unchanged| run::registered(&registered(is_unchanged)));
    insta::assert_snapshot!(lines.join("\n"));
}

fn attributes(number: u128) -> BTreeMap<String, String> {
    let all = [("zone", "eu"), ("gpu_memory", "24")];
    let all = all.into_iter().filter(|_| number == 1);
    all.map(|(name, value)| (name.into(), value.into()))
        .collect()
}

fn devices(number: u128) -> BTreeMap<String, DevicesView> {
    let gpus = DevicesView { count: 2, free: 1 };
    let all = [("gpu".to_owned(), gpus)].into_iter();
    all.filter(|_| number == 1).collect()
}

#[test]
fn nodes_are_printed_as_a_table() {
    let node = |number, not_ready: Option<&str>, draining| NodeView {
        id: NodeId::new(Uuid::from_u128(number)),
        host: format!("host-{number}"),
        version: "0.1.0".to_owned(),
        pools: vec!["any".to_owned(), "gpu".to_owned()],
        slots: 16,
        running: 3,
        waiting: 12,
        containers: 15,
        draining,
        attributes: attributes(number),
        devices: devices(number),
        cpu_millis: Some(16_000),
        memory_bytes: Some(64 << 30),
        not_ready: not_ready.map(str::to_owned),
        no_roots: None,
    };
    let nodes = [
        node(1, None, false),
        node(2, None, true),
        node(3, Some("Docker does not answer"), false),
    ];
    insta::assert_snapshot!(table::nodes(&nodes));
}

#[test]
fn problem_shows_all_errors_hint_and_exit_code() {
    let errors = vec![
        ProblemItem::new("/arguments/rows", "\"ten\" given; expected integer"),
        ProblemItem::new("", "the whole is too large"),
    ];
    let refusal = |code, detail: &str| Problem {
        request_id: "req_7".to_owned(),
        ..Problem::new(code, detail)
    };
    let problems = [
        refusal(
            ErrorCode::ArgumentsInvalid,
            "the arguments do not match the schema of chart",
        )
        .with_errors(errors),
        refusal(ErrorCode::Unauthorized, "expected a token"),
        refusal(
            ErrorCode::UnknownCapsule,
            "no capsule is named \"chrat\"; did you mean \"chart\"?",
        ),
        refusal(ErrorCode::LogFull, "the log is nearly full"),
        refusal(ErrorCode::Internal, "an event cannot be read"),
    ];
    let shown = problems
        .iter()
        .map(Failure::refused)
        .map(|failure| format!("{}\nexit: {}\n", failure.render(), failure.exit.code()));
    insta::assert_snapshot!(shown.collect::<String>());
}

#[test]
fn error_detail_is_printed_line_by_line() {
    let detail = json!({"code": 3, "log": ["one", "two"], "text": "a\nb", "empty": "", "nothing": null, "deep": {"a": 1}});
    insta::assert_snapshot!(problem::detail_lines(&detail, "exit code 3: one").join("\n"));
}

fn stored(kind: &str, data: Value) -> EventView {
    EventView {
        sequence: 42,
        id: "event_1".to_owned(),
        kind: format!("dev.aod.run.{kind}.v1"),
        time: at(5),
        source: "/node/node_1".to_owned(),
        run: None,
        hash: Digest::of("x"),
        previous: None,
        data,
    }
}

#[test]
fn events_are_printed_line_by_line() {
    let events = [
        stored("launched", json!({})),
        stored("leased", json!({"attempt": 1})),
        stored(
            "preparation_started",
            json!({"attempt": 1, "text": "chart, 2 files"}),
        ),
        stored("wait_started", json!({"attempt": 1, "callee": "run_1"})),
        stored(
            "attempt_lost",
            json!({"attempt": 1, "error": {"message": "the node went silent"}}),
        ),
        stored(
            "attempt_failed",
            json!({"attempt": 1, "pause_ms": 1_400, "error": {"message": "exit code 1"}}),
        ),
        stored(
            "cancel_requested",
            json!({"requested_by": "ada", "reason": "enough"}),
        ),
        stored(
            "ended",
            json!({"outcome": "failed", "error": {"message": "exit code 3"}}),
        ),
    ];
    let lines: Vec<_> = events
        .iter()
        .map(|one| format!("{} | {}", event::line(one), event::short(one)))
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
    assert!(event::is_result(&events[7]) && !event::is_result(&events[1]));
}

fn at_node(id: RunId, capsule: &str, state: RunState, children: Vec<TreeAtNode>) -> TreeAtNode {
    let (phase, holder) = match state {
        RunState::Queued => (RunPhase::Queued, None),
        state if state.is_ended() => (RunPhase::Ended, None),
        _ => (RunPhase::Leased, Some(NodeId::new(Uuid::from_u128(7)))),
    };
    TreeAtNode {
        run: summary(id, capsule, state),
        phase,
        holder: holder.map(|node| node.to_string()),
        attempts_lost: 0,
        waits_for: None,
        open_callees: Vec::new(),
        cancel: None,
        timings: None,
        children,
    }
}

#[test]
fn tree_at_an_event_is_drawn() {
    let child = |key: &str| root().child(&Digest::of(key));
    let queued = TreeAtNode {
        waits_for: Some("a node in pool gpu".to_owned()),
        ..at_node(child("two"), "chart", RunState::Queued, Vec::new())
    };
    let done = at_node(child("one"), "chart", RunState::Failed, Vec::new());
    let cancel = CancelView {
        requested_by: "ada".to_owned(),
        reason: String::new(),
    };
    let tree = TreeAtNode {
        attempts_lost: 1,
        waits_for: Some("chart".to_owned()),
        cancel: Some(cancel),
        ..at_node(root(), "survey", RunState::Waiting, vec![done, queued])
    };
    let view = |event| TreeAt {
        event,
        last: LastEvent {
            sequence: 42,
            kind: "dev.aod.run.ended.v1".to_owned(),
            time: at(6_500),
            run: child("one"),
        },
        tree: tree.clone(),
    };
    let shown = [view(42), view(50)].map(|view| history::at(&view));
    insta::assert_snapshot!(shown.join("\n\n"));
}

#[test]
fn replay_shows_differences_of_lists_and_log() {
    let equal = ReplayView {
        root: root(),
        runs: 1,
        events: 3,
        as_of: 120,
        is_equal: true,
        differences: Vec::new(),
        left_out: 0,
    };
    let found = |place: &str, log: Option<Value>, read_model: Option<Value>| ReplayDifference {
        run: root().to_string(),
        place: place.to_owned(),
        log,
        read_model,
    };
    let different = ReplayView {
        runs: 2,
        is_equal: false,
        differences: vec![
            found("/state", Some(json!("succeeded")), Some(json!("running"))),
            found("/node", Some(json!(null)), Some(json!("x".repeat(80)))),
            found("", Some(json!({"state": "queued"})), None),
        ],
        left_out: 4,
        ..equal.clone()
    };
    let shown = [equal, different].map(|view| history::replay(&view));
    insta::assert_snapshot!(shown.join("\n\n"));
}

#[test]
fn differences_of_two_trees_are_printed() {
    let found = |place: &str, left: Option<Value>, right: Option<Value>| PlaceDifference {
        place: place.to_owned(),
        left,
        right,
    };
    let other = RunId::root_of(Uuid::from_u128(2));
    let measures = vec![
        found("/took_ms", Some(json!(4_200)), Some(json!(61_000))),
        found("/waited_ms", Some(json!(1_010)), Some(json!(1_020))),
        found("/cost_usd", Some(json!(0.0041)), None),
        found("/attempts", Some(json!(1)), Some(json!(2))),
    ];
    let whole = RunDifference {
        path: "survey".to_owned(),
        left: root(),
        right: other,
        differences: vec![
            found(
                "/arguments/table",
                Some(json!("a.csv")),
                Some(json!("b.csv")),
            ),
            found("/files/report.pdf", None, Some(json!("0".repeat(64)))),
        ],
        measures: measures.clone(),
    };
    let below = RunDifference {
        path: "survey/chart[2]".to_owned(),
        left: root().child(&Digest::of("one")),
        right: other.child(&Digest::of("two")),
        differences: vec![found(
            "/outcome",
            Some(json!("succeeded")),
            Some(json!("failed")),
        )],
        measures: Vec::new(),
    };
    let only = OneSidedRun {
        path: "survey/report".to_owned(),
        run: root().child(&Digest::of("report")),
        below: 2,
    };
    let different = TreeDifference {
        left: root(),
        right: other,
        is_same: false,
        compared: 3,
        runs: vec![whole.clone(), below],
        only_left: vec![only],
        only_right: Vec::new(),
        left_out: 0,
    };
    let same = TreeDifference {
        is_same: true,
        compared: 1,
        runs: vec![RunDifference {
            differences: Vec::new(),
            ..whole
        }],
        only_left: Vec::new(),
        ..different.clone()
    };
    let shown = [different, same].map(|view| history::difference(&view));
    insta::assert_snapshot!(shown.join("\n\n"));
}

#[test]
fn events_of_the_whole_log_are_printed_as_a_table() {
    let run = EventView {
        run: Some(root().child(&Digest::of("x"))),
        ..stored("leased", json!({"attempt": 1}))
    };
    let of_capsule = EventView {
        kind: "dev.aod.capsule.registered.v1".to_owned(),
        ..stored("", json!({"name": "chart"}))
    };
    let of_dead_letter = EventView {
        kind: "dev.aod.deadletter.purged.v1".to_owned(),
        ..stored("", json!({"run": root(), "requested_by": "ada"}))
    };
    let rows = [run, of_capsule, of_dead_letter].map(|one| event::row(&one));
    insta::assert_snapshot!(format!("{}\n{}", event::header(), rows.join("\n")));
}
