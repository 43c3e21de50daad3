//! Commands that need no gateway and no Docker.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use crate::cluster::{complete, program, write_capsule};

fn run(arguments: &[&str]) -> crate::cluster::Ended {
    program()
        .args(arguments)
        .output()
        .expect("the program starts")
        .into()
}

#[test]
fn validate_reports_all_problems_of_all_directories() {
    let directory = tempfile::tempdir().expect("a directory");
    let good = directory.path().join("good");
    write_capsule(&good, "true");
    let bad = directory.path().join("bad");
    std::fs::create_dir(&bad).expect("a directory");
    std::fs::write(bad.join("schema.json"), "{\n\"input\": {},\n\"output\": 7}")
        .expect("a directory of ours");
    run(&["capsule", "validate", &good.to_string_lossy()]).with(0);
    let checked = run(&[
        "capsule",
        "validate",
        &good.to_string_lossy(),
        &bad.to_string_lossy(),
    ])
    .with(2);
    assert!(
        checked.stderr.starts_with("error: 2 problems found\n"),
        "{}",
        checked.stderr
    );
    assert!(
        checked.stderr.contains("/bad/schema.json:3:11: /output: "),
        "{}",
        checked.stderr
    );
    let report = run(&[
        "capsule",
        "validate",
        &bad.to_string_lossy(),
        "--format",
        "json",
    ])
    .with(2)
    .json();
    assert_eq!(
        (
            &report["is_valid"],
            report["problems"].as_array().map(Vec::len)
        ),
        (&json!(false), Some(2))
    );
}

#[test]
fn validate_strict_treats_warnings_as_errors() {
    let directory = tempfile::tempdir().expect("a directory");
    let capsule = directory.path().join("capsule");
    write_capsule(&capsule, "true");
    std::fs::write(capsule.join("tools.yaml"), "capsules: [nobody]\n").expect("a file of ours");
    let path = capsule.to_string_lossy().into_owned();
    let lenient = run(&["capsule", "validate", &path]).with(0);
    let warning = "/capsule/tools.yaml:1:12: warning: no capsule is named \"nobody\"";
    assert!(lenient.stderr.contains(warning), "{}", lenient.stderr);
    let strict = run(&["capsule", "validate", "--strict", &path]).with(2);
    assert!(
        strict.stderr.starts_with("error: 1 problem found\n"),
        "{}",
        strict.stderr
    );
}

#[test]
fn directory_is_inspected_and_drawn_as_graph() {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, tools) in [
        ("caller", "capsules: [callee]\n"),
        ("callee", "capsules: [caller]\n"),
    ] {
        let path = directory.path().join(name);
        write_capsule(&path, "true");
        std::fs::write(path.join("tools.yaml"), tools).expect("a file of ours");
    }
    let path = directory
        .path()
        .join("caller")
        .to_string_lossy()
        .into_owned();
    let seen = run(&["capsule", "inspect", &path]).with(0).stdout;
    for expected in [
        "caller\n",
        "may call    callee\n",
        "  file    file, optional\n",
    ] {
        assert!(seen.contains(expected), "{expected}: {seen}");
    }
    let drawn = run(&["capsule", "graph", &path]).with(0).stdout;
    assert_eq!(
        drawn,
        "caller -> callee\ncallee -> caller\ncycle: caller -> callee -> caller\n"
    );
    let graph = run(&["capsule", "graph", &path, "--format", "json"])
        .with(0)
        .json();
    assert_eq!(graph["cycles"], json!([["caller", "callee"]]));
    let picture = run(&["capsule", "graph", &path, "--svg"]).with(0).stdout;
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
    for file in ["agent", "tools", "schema"] {
        let schema = run(&["capsule", "schema", file]).with(0).json();
        assert!(schema["$schema"].is_string(), "{schema}");
    }
}

#[test]
fn credentials_are_created_once_and_private() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("secrets");
    let made = run(&["credentials", &path.to_string_lossy(), "--format", "json"])
        .with(0)
        .json();
    assert_eq!(made["made"].as_array().map(Vec::len), Some(6));
    let parts = ["nats-admin.creds", "nats-gateway.creds", "nats-node.creds"];
    for name in parts
        .into_iter()
        .chain(["nats-users.conf", "token", "seal.key"])
    {
        let mode = std::fs::metadata(path.join(name))
            .expect(name)
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let again = run(&["credentials", &path.to_string_lossy(), "--format", "json"])
        .with(0)
        .json();
    assert_eq!(again["made"], json!([]));
}

#[test]
fn shells_ask_the_program_for_candidates() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&["completions", shell]).with(0).stdout;
        assert!(script.contains("AOD_COMPLETE"), "{shell}: {script}");
    }
    let completed = complete(&mut program(), &["caps"]);
    assert_eq!(completed, "capsule");
    // Without a gateway, there are no run ids.
    assert_eq!(complete(&mut program(), &["runs", "show", "run_"]), "");
}

#[test]
fn unreachable_gateway_has_its_own_exit_code() {
    // Nothing listens on port 1.
    let ended = run(&["runs", "ls", "--url", "http://127.0.0.1:1"]).with(3);
    assert!(
        ended
            .stderr
            .starts_with("error: the gateway at http://127.0.0.1:1 cannot be reached"),
        "{}",
        ended.stderr
    );
    // Commands that retry fail as soon: no gateway has ever answered there.
    run(&["run", "echo", "--url", "http://127.0.0.1:1"]).with(3);
    let id = "run_06H0DZA0PHTQF7V6G2FG22N1S4";
    run(&["runs", "logs", "-f", id, "--url", "http://127.0.0.1:1"]).with(3);
    run(&["runs", "ls", "--url", "127.0.0.1:1"]).with(2);
    run(&[
        "runs",
        "ls",
        "--url",
        "http://127.0.0.1:1",
        "--token-file",
        "/none",
    ])
    .with(2);
}
