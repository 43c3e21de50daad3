//! Tasks: workflows whose steps are processes of one container.

use std::fs;
use std::path::Path;

use aod_domain::task::{read, schema};
use aod_tests::client::eventually;
use aod_tests::docker_cluster::DockerCluster;
use aod_tests::images::CapsuleDirectory;
use serde_json::{Value, json};

/// The capsule of a workflow, with busybox.
fn task(name: &str, workflow: &str) -> CapsuleDirectory {
    let capsule = CapsuleDirectory::new(name);
    with_workflow(&capsule, workflow);
    capsule
}

fn with_workflow(capsule: &CapsuleDirectory, workflow: &str) {
    let outcome = read("workflow.yaml", workflow.as_bytes(), false);
    let parsed = outcome
        .value
        .unwrap_or_else(|| panic!("{:?}", outcome.problems));
    capsule.write("schema.json", &schema(&parsed).to_string());
    capsule.write("workflow.yaml", workflow);
}

/// The ended steps of a run: names with their endings.
async fn steps(cluster: &DockerCluster, run: &str) -> Vec<String> {
    let (_, page) = cluster.client.get(&format!("/v1/runs/{run}/events")).await;
    let events = page["items"].as_array().into_iter().flatten();
    let ended = events.filter(|event| event["type"] == "dev.aod.run.step_ended.v1");
    ended
        .map(|event| {
            let data = &event["data"];
            let iterations = data["position"]["iterations"].as_array();
            let iterations = iterations
                .into_iter()
                .flatten()
                .map(|number| format!(".{number}"));
            let step = data["position"]["step"].as_str().expect("a step");
            let ending = data["ending"].as_str().expect("an ending");
            format!("{step}{} {ending}", iterations.collect::<String>())
        })
        .collect()
}

const CONTROL_FLOW: &str = r#"
name: control flow
inputs:
  - {name: word, type: string, required: true}
outputs:
  - {name: stdout, type: string}
config: {continueOnError: true}
steps:
  - {id: write, type: command, command: 'true'}
  - {id: shown, type: command, command: printf, args: ['%s', '{{inputs.word}}']}
  - {id: same, type: command, command: printf, args: ['%s', '{{steps.shown.outputs.stdout}}']}
  - {id: skipped, type: command, if: 'inputs.word == other', command: 'false'}
  - {id: may_fail, type: command, allow_failure: true, command: 'echo told >&2; exit 7'}
  - {id: late, type: command, config: {timeout: 1}, command: 'trap "" TERM; while :; do sleep 0.1; done'}
  - id: both
    type: parallel
    steps:
      - {id: leaves, type: command, command: 'setsid sh -c "trap \"\" TERM HUP; sleep 1000" & echo left'}
      - {id: fails, type: command, config: {retries: 1}, command: 'echo try >> tries; exit 3'}
  - {id: alone, type: command, command: 'set -- /proc/[0-9]*; echo $# $(cat tries)'}
  - id: again
    type: loop
    until: 'steps.count.outputs.stdout == xx'
    maxIterations: 4
    steps:
      - {id: count, type: command, command: 'printf x >> count; cat count'}
  - id: either
    type: conditional
    condition: 'steps.again.outputs.iterations == 2'
    then:
      - {id: bytes, type: command, command: 'printf "\377\n"; head -c 200000 /dev/zero | tr "\0" a'}
    else:
      - {id: never, type: command, command: 'true'}
  - {id: unknown, type: command, command: 'echo {{inputs.none}} {{steps.never.outputs.stdout}}'}
  - {id: no_program, type: command, command: no-such-program, args: [x]}
  - id: last
    type: command
    command: printf
    args: ['%s;', '{{steps.same.outputs.stdout}}', '{{steps.may_fail.outputs.exit_code}}', '{{steps.alone.outputs.stdout}}']
"#;

#[tokio::test(flavor = "multi_thread")]
async fn task_follows_its_workflow() {
    let cluster = DockerCluster::start(&[]).await;
    let capsule = task("worker", CONTROL_FLOW);
    cluster.build_directory(&capsule, "").await;
    let word = "$& {{inputs.word}} \"<'\\";
    let request = json!({"capsule": "worker", "arguments": {"word": word}});
    let (status, view) = cluster.post_run(&request, &[]).await;
    assert_eq!(status, 202, "{view}");
    let run = view["id"].as_str().expect("an id");
    let result = cluster.client.result(run).await;
    let expected = [
        "write succeeded",
        "shown succeeded",
        "same succeeded",
        "skipped skipped",
        "may_fail succeeded",
        "late failed",
        "leaves succeeded",
        "fails failed",
        "both failed",
        "alone succeeded",
        "count.1 succeeded",
        "count.2 succeeded",
        "again succeeded",
        "bytes succeeded",
        "either succeeded",
        "unknown failed",
        "no_program failed",
        "last succeeded",
    ];
    assert_eq!(steps(&cluster, run).await, expected, "{result:#}");
    assert_eq!(result["error"]["code"], "task_partial", "{result:#}");
    let message = "4 steps failed: \"late\", \"fails\", \"unknown\", \"no_program\"";
    assert_eq!(result["error"]["message"], message);
    assert_eq!(result["output"]["status"], "partial");
    // The gate and the shell.
    let expected = format!("{word};7;2 try try\n;");
    assert_eq!(result["output"]["outputs"]["stdout"], expected.as_str());
}

#[tokio::test(flavor = "multi_thread")]
async fn task_continues_on_another_node_after_its_last_step() {
    let mut cluster = DockerCluster::start(&[]).await;
    let workflow = "
name: six
outputs: [{name: stdout, type: string}]
steps:
  - {id: s1, type: command, command: 'mkdir -p d/e; chmod 500 d/e; ln -s ../log d/link; mkfifo d/fifo; echo 1 >> log'}
  - {id: s2, type: command, command: 'echo 2 >> d/link; chmod 640 log'}
  - {id: s3, type: command, command: 'echo 3 >> log; echo waiting; until [ -e /workspace/go ]; do sleep 0.1; done; rm go'}
  - {id: s4, type: command, command: 'echo 4 >> log'}
  - {id: s5, type: command, command: 'echo 5 >> log; echo $(ls d)'}
  - {id: s6, type: command, command: 'cat log; ls -ld d/e log | cut -c1-10; echo {{steps.s5.outputs.stdout}}'}
";
    cluster.build_directory(&task("worker", workflow), "").await;
    let (status, view) = cluster.post_run(&json!({"capsule": "worker"}), &[]).await;
    assert_eq!(status, 202, "{view}");
    let run = view["id"].as_str().expect("an id");
    cluster.wait_for_line(run, "waiting").await;
    cluster.replace_node().await;
    eventually("the third step runs again", async || {
        let (_, page) = cluster.client.get(&format!("/v1/runs/{run}/logs")).await;
        let lines = page["items"].as_array().into_iter().flatten();
        lines
            .filter(|line| line["text"] == "waiting" && line["attempt"] == 2)
            .count()
            == 1
    })
    .await;
    cluster.touch_in_containers("/workspace/go");
    let result = cluster.client.result(run).await;
    let stdout = "1\n2\n3\n4\n5\ndr-x------\n-rw-r-----\ne link\n";
    assert_eq!(result["output"]["outputs"]["stdout"], stdout, "{result:#}");
    let expected = ["s1", "s2", "s3", "s4", "s5", "s6"].map(|step| format!("{step} succeeded"));
    assert_eq!(steps(&cluster, run).await, expected);
}

/// The stand-ins in an image with Python.
fn with_tools(name: &str, workflow: &str) -> CapsuleDirectory {
    let capsule = CapsuleDirectory::as_it_stands("tools");
    capsule.write(
        "Dockerfile",
        "FROM python:3.11-slim\nCOPY . /opt/tools\nENV PATH=/opt/tools:/usr/local/bin:/usr/bin:/bin\n",
    );
    capsule.write(
        "agent.yaml",
        &format!("name: {name}\nenv: {{HOME: /tmp}}\n"),
    );
    with_workflow(&capsule, workflow);
    capsule
}

async fn outputs_of(cluster: &DockerCluster, request: Value) -> Value {
    let (status, view) = cluster.post_run(&request, &[]).await;
    assert_eq!(status, 202, "{view}");
    let run = view["id"].as_str().expect("an id");
    let result = cluster.client.result(run).await;
    assert_eq!(result["output"]["status"], "completed", "{result:#}");
    result["output"]["outputs"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn ai_tools_perform_steps() {
    let cluster = DockerCluster::start(&[]).await;
    let mut workflow = "
name: tools
outputs: [{name: last, type: string}, {name: plan, type: file, filename: plan.md}]
steps:
"
    .to_owned();
    for tool in ["claude", "codex", "gemini", "opencode", "qwen"] {
        let step = format!(
            "
  - id: {tool}
    tool: {tool}
    prompt: |
      -- not a flag
      AOD-STAND-IN: answer {{\"last\": \"by {tool}\"}}
      AOD-STAND-IN: write plans/{tool}.md planned by {tool}
    outputs:
      - {{name: last, type: string}}
      - {{name: plan, type: file, filename: plans/{tool}.md}}
"
        );
        workflow.push_str(&step);
    }
    workflow.push_str(
        "  - {id: files, type: command, command: 'cat plans/*'}
  - {id: check, type: command, command: test, args: ['{{steps.codex.outputs.plan}}', =, \"planned by codex\\n\"]}
",
    );
    cluster
        .build_directory(&with_tools("tools", &workflow), "")
        .await;
    let outputs = outputs_of(&cluster, json!({"capsule": "tools"})).await;
    let expected = json!({"last": "by qwen", "plan": "planned by qwen\n"});
    assert_eq!(outputs, expected);
}

/// A real workflow of Rover, unchanged.
#[tokio::test(flavor = "multi_thread")]
async fn workflow_of_rover_runs() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/samples/rover/swe.yml");
    let Ok(workflow) = fs::read_to_string(&path) else {
        eprintln!("not run: {} does not exist", path.display());
        return;
    };
    let cluster = DockerCluster::start(&[]).await;
    cluster
        .build_directory(&with_tools("swe", &workflow), "")
        .await;
    let description =
        "\nAOD-STAND-IN: write context.md the context\nAOD-STAND-IN: write summary.md the summary";
    let arguments = json!({"title": "a title", "description": description});
    let outputs = outputs_of(&cluster, json!({"capsule": "swe", "arguments": arguments})).await;
    assert_eq!(outputs["plan"], "[File not created]");
}
