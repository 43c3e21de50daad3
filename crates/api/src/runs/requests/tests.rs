use serde_json::json;

use super::*;

fn fields(body: &Value) -> Fields {
    Fields::parse(body.to_string().as_bytes()).expect("an object")
}

fn read(body: &Value) -> Result<NewRun> {
    CreateRun::read(fields(body), Vec::new())
}

/// Checks that the request is rejected for the fields at these pointers.
#[track_caller]
fn check(body: &Value, pointers: &[&str]) {
    let errors = read(body).expect_err("problems").errors;
    let found: Vec<&str> = errors.iter().map(|error| error.pointer.as_str()).collect();
    assert_eq!(found, pointers, "{errors:?}");
}

#[test]
fn request_with_all_fields_is_read() {
    let run = read(&json!({
        "capsule": "Survey",
        "arguments": {"n": 1},
        "labels": {"team": "birds"},
        "pool": "gpu",
        "require": ["zone=eu", "gpu_memory>=24"],
        "devices": {"gpu": 2},
        "timeout_seconds": 60,
        "retries": {"capsule": 2},
        "limits": {"queue_seconds": 5},
        "budget": {"tokens": 1000, "cost_usd": 0.5},
        "deadline_seconds": 600,
        "priority": -3,
        "on_disconnect": "cancel",
    }))
    .expect("a request");
    let wanted = &run.wanted;
    assert_eq!(wanted.target, "Survey");
    assert_eq!(wanted.requirements.attributes.len(), 2);
    assert_eq!(wanted.timeout_seconds, Some(60));
    assert_eq!(wanted.budget.cost_max, Cost::from_dollars(0.5));
    assert_eq!((run.terms.deadline_seconds, run.terms.priority), (600, -3));
    assert!(run.terms.is_cancelled_on_disconnect);
}

#[test]
fn request_with_a_capsule_alone_gets_defaults() {
    let run = read(&json!({"capsule": "survey", "priority": null})).expect("a request");
    assert_eq!(run.terms.deadline_seconds, TOTAL_SECONDS_DEFAULT);
    assert_eq!(run.terms.priority, 0);
    assert!(!run.terms.is_cancelled_on_disconnect);
    assert!(run.wanted.budget.is_none());
}

#[test]
fn every_field_out_of_its_bounds_is_reported() {
    check(
        &json!({
            "capsule": " ",
            "pool": "no pool",
            "require": ["zone", "a b"],
            "devices": {"gpu": DEVICES_MAX + 1},
            "timeout_seconds": TIMEOUT_SECONDS_MAX + 1,
            "retries": {"capsule": 99},
            "limits": {"queue_second": 5},
            "budget": {"tokens": -1, "cost_usd": 2e6, "euros": 1},
            "labels": {"team": "x".repeat(LABEL_BYTES_MAX + 1)},
            "deadline_seconds": LIMIT_SECONDS_MAX + 1,
            "priority": 101,
            "on_disconnect": "stay",
        }),
        &[
            "/capsule",
            "/pool",
            "/require/1",
            "/devices/gpu",
            "/timeout_seconds",
            "/retries/capsule",
            "/limits/queue_second",
            "/budget/tokens",
            "/budget/cost_usd",
            "/budget/euros",
            "/labels/team",
            "/deadline_seconds",
            "/priority",
            "/on_disconnect",
        ],
    );
    let labels: Map<String, Value> = (0..=LABELS_MAX)
        .map(|number| (number.to_string(), json!("")))
        .collect();
    check(
        &json!({"capsule": "survey", "labels": labels}),
        &["/labels"],
    );
}

#[test]
fn files_are_read_strictly_and_keep_their_index() {
    let mut fields = fields(&json!({"capsule": "a", "files": [
        {"name": "a.csv", "file": "aod:file/1"}, {"name": "b.csv"}, {"name": "c", "file": "d", "size": 3}
    ]}));
    let files = GivenFile::read_all(&mut fields);
    assert_eq!(files[0].1.file, "aod:file/1");
    assert_eq!(
        files.iter().map(|file| file.0).collect::<Vec<_>>(),
        [0, 1, 2]
    );
    let errors = CreateRun::read(fields, Vec::new())
        .expect_err("problems")
        .errors;
    let pointers: Vec<&str> = errors.iter().map(|error| error.pointer.as_str()).collect();
    assert_eq!(pointers, ["/files/1/file", "/files/2/size"]);
}

#[test]
fn rerun_recomputes_a_run_or_everything() {
    let rerun = RerunRun::read(fields(&json!({"arguments": {"n": null}, "fresh": true})));
    assert!(rerun.expect("a request").is_fresh);
    let run = "run_06H0FFHKRHR1Q7JC7VPS1X7SAG";
    let rerun = RerunRun::read(fields(&json!({"from": run}))).expect("a request");
    assert_eq!(rerun.from.map(|run| run.to_string()).as_deref(), Some(run));
    for body in [
        json!({"from": run, "fresh": true}),
        json!({"from": "run"}),
        json!({"fresh": 1}),
    ] {
        assert!(RerunRun::read(fields(&body)).is_err(), "{body}");
    }
}

#[test]
fn reason_of_a_cancel_request_is_optional_and_shortened() {
    assert_eq!(CancelRun::read(b"").expect("a request").reason, "");
    let long = json!({"reason": "x".repeat(REASON_LENGTH_MAX + 1)}).to_string();
    let read = CancelRun::read(long.as_bytes()).expect("a request");
    assert_eq!(read.reason.len(), REASON_LENGTH_MAX);
    assert!(CancelRun::read(br#"{"reasons": "x"}"#).is_err());
}
