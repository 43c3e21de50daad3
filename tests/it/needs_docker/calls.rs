//! Rejected requests and calls, from outside and from inside, and a few accepted ones.

use std::collections::BTreeMap;

use aod_tests::docker_cluster::DockerCluster;
use aod_tests::images::CapsuleDirectory;
use serde_json::{Value, json};

use super::redaction::redacted;

/// Makes every kind of invalid call. Each line of its answer is one call.
const WRONG_CALLS: &str = r#"
cd $OUTGOING
echo 'a page' >page.txt
echo 'a page' >'line
feed.txt'
ln -s /etc/hostname link.txt
ln -s /etc linked
mkfifo fifo
mkdir pages
ln -s ../../secret pages/link.txt
echo x >one && ln one two
printf '{"target": "reader", "args": {"file": "page.txt", "notes": %s}}' "$(many 100000 "")" >/workspace/large
printf '{"target": "reader", "args": {"file": "page.txt", "notes": ["%s"]}}' "$(letters 100000)" >/workspace/base64
printf '{"target": "reader", "args": {"file": "page.txt", "notes": ["data:image/png;base64,%s"]}}' "$(letters 100000)" >/workspace/url
printf '{"target": "reader", "args": {"file": ' >/workspace/half
printf '{"tarjet": "reader", "args": [], "timeout_seconds": 0}' >/workspace/fields
{
    printf '{"unknown target": %s' "$(call nobody '{}')"
    printf ', "target with a star": %s' "$(call 'read*' '{}')"
    printf ', "target with an angle": %s' "$(call 'reader>' '{}')"
    printf ', "target with a dot": %s' "$(call 'reader.v2' '{}')"
    printf ', "only wildcards": %s' "$(call '*.>' '{}')"
    printf ', "arguments that do not fit": %s' "$(call reader '{"file": 7, "pages": 0, "mode": "loud", "extra": true}')"
    printf ', "missing file": %s' "$(call reader '{"file": "nothing.txt"}')"
    printf ', "file in the directory above": %s' "$(call reader '{"file": "../x"}')"
    printf ', "absolute name": %s' "$(call reader '{"file": "/etc/hostname"}')"
    printf ', "name in another directory": %s' "$(call reader '{"file": "/io/input/script.sh"}')"
    printf ', "name with a line feed": %s' "$(call reader '{"file": "line\nfeed.txt"}')"
    printf ', "symbolic link": %s' "$(call reader '{"file": "link.txt"}')"
    printf ', "below a symbolic link": %s' "$(call reader '{"file": "linked/hostname"}')"
    printf ', "FIFO": %s' "$(call reader '{"file": "fifo"}')"
    printf ', "own hard link": %s' "$(call reader '{"file": "two"}')"
    printf ', "directory": %s' "$(call reader '{"file": "pages"}')"
    printf ', "several files": %s' "$(call reader '{"file": "link.txt", "notes": ["fifo", "fine", "two"]}')"
    printf ', "300 KiB of JSON": %s' "$(ask POST /handoff /workspace/large)"
    printf ', "base64": %s' "$(ask POST /handoff /workspace/base64)"
    printf ', "data URL": %s' "$(ask POST /handoff /workspace/url)"
    printf ', "half a body": %s' "$(ask POST /handoff /workspace/half)"
    printf ', "wrong fields": %s}' "$(ask POST /handoff /workspace/fields)"
} | answer
"#;

/// Makes the calls of an agent-on-demand client, and of an AOD client.
const RIGHT_CALLS: &str = r#"
cd $OUTGOING
echo 'a page' >page.txt
cat >fail.sh <<'END'
printf '{"error": {"code": "paper_jam", "message": "no paper", "detail": {"tray": 2}, "retryable": true}}' | answer
exit 9
END
post() { printf '%s' "$2" >/workspace/body; ask POST "$1" /workspace/body; }
{
    printf '{"handoff": %s' "$(call reader '{"file": "page.txt"}')"
    printf ', "callee that fails": %s' "$(call probe '{"script": "fail.sh"}')"
    printf ', "agent-on-demand handoff": %s' "$(post /handoff '{"session_id": "another", "target": "reader", "args": {"file": "page.txt", "pages": 2}}')"
    printf ', "agent-on-demand execute": %s' "$(post /execute '{"capsule": "reader", "input": {"file": "page.txt", "pages": 3}, "files": {}}')"
    printf ', "agent-on-demand callee that fails": %s' "$(post /execute '{"capsule": "probe", "input": {"script": "fail.sh"}}')"
    printf ', "agent-on-demand unknown target": %s' "$(post /handoff '{"session_id": "another", "target": "nobody", "args": {}}')"
    printf ', "agent-on-demand missing file": %s' "$(post /execute '{"capsule": "reader", "input": {"file": "nothing.txt"}}')"
    printf ', "agent-on-demand without a target": %s' "$(post /handoff '{"session_id": "another", "args": {}}')"
    printf ', "agent-on-demand half a body": %s' "$(post /execute '{"capsule": ')"
    printf ', "capsules": %s' "$(ask GET /capsules)"
    printf ', "health": %s}' "$(ask GET /health)"
} | answer
"#;

/// Hands over a file that another process swaps and rewrites all the time: ten answers.
const RACE: &str = r#"
cd $OUTGOING
head -c 4194304 /dev/zero | tr '\0' 'a' >/workspace/a
head -c 4194304 /dev/zero | tr '\0' 'b' >/workspace/b
cp /workspace/a raced.txt
while :; do
    cat /workspace/b >raced.txt
    cp /workspace/a .new && mv .new raced.txt
    ln -s /etc/hostname .link && mv .link raced.txt
    cp /workspace/b .new && mv .new raced.txt
done 2>/dev/null &
{
    printf '{"answers": ['
    for number in 0 1 2 3 4 5 6 7 8 9; do
        [ "$number" = 0 ] || printf ', '
        call reader "{\"file\": \"raced.txt\", \"pages\": $((number + 1))}"
    done
    printf ']}'
} >/workspace/answers
kill $!
answer </workspace/answers
"#;

/// The rejected requests of `POST /v1/runs`.
async fn wrong_requests(cluster: &DockerCluster) -> BTreeMap<&'static str, Value> {
    let page: [(&str, &[u8]); 1] = [("page.txt", b"a page\n")];
    let reader = |arguments: Value| json!({"capsule": "reader", "arguments": arguments});
    let large = vec![""; 100_000];
    let base64 = "A".repeat(100_000);
    let requests = [
        ("unknown target", json!({"capsule": "nobody"})),
        ("target with a star", json!({"capsule": "read*"})),
        ("target with an angle", json!({"capsule": "reader>"})),
        ("target with a dot", json!({"capsule": "reader.v2"})),
        ("target with a line feed", json!({"capsule": "reader\n"})),
        (
            "no target",
            json!({"capsules": "reader", "timeout_seconds": -1}),
        ),
        (
            "arguments that do not fit",
            reader(json!({"file": 7, "pages": 0, "mode": "loud", "extra": true})),
        ),
        ("missing file", reader(json!({"file": "nothing.txt"}))),
        (
            "file in the directory above",
            reader(json!({"file": "../x"})),
        ),
        ("absolute name", reader(json!({"file": "/etc/hostname"}))),
        (
            "name with a line feed",
            reader(json!({"file": "line\nfeed.txt"})),
        ),
        (
            "300 KiB of JSON",
            reader(json!({"file": "page.txt", "notes": large})),
        ),
        (
            "base64",
            reader(json!({"file": "page.txt", "notes": [base64]})),
        ),
        (
            "data URL",
            reader(
                json!({"file": "page.txt", "notes": [format!("data:image/png;base64,{base64}")]}),
            ),
        ),
        (
            "pool of no node's kind",
            json!({"capsule": "reader", "pool": "a.*"}),
        ),
    ];
    let mut answers = BTreeMap::new();
    for (name, request) in requests {
        answers.insert(name, cluster.post_run(&request, &page).await);
    }
    let request = reader(json!({"file": "page.txt"}));
    for (name, file) in [
        ("upload called ../x", "../x"),
        ("upload with an absolute name", "/etc/hostname"),
        ("upload with a line feed", "line\nfeed.txt"),
        ("upload without a name", ""),
    ] {
        let answer = cluster.post_run(&request, &[page[0], (file, b"x")]).await;
        answers.insert(name, answer);
    }
    with_status(answers)
}

/// The rejected names of `POST /v1/capsules`, from `agent.yaml` or the directory.
async fn wrong_names(cluster: &DockerCluster) -> BTreeMap<&'static str, Value> {
    let capsule = CapsuleDirectory::new("reader");
    let mut answers = BTreeMap::new();
    for (case, name) in [
        ("a star", "read*"),
        ("an angle", "reader>"),
        ("a dot", "reader.v2"),
        ("a line feed", "reader\n"),
        ("a slash", "../reader"),
    ] {
        let manifest = format!("version: 1\nname: {}\n", json!(name));
        std::fs::write(capsule.path().join("agent.yaml"), manifest).expect("a test directory");
        answers.insert(case, cluster.post_capsule("reader", capsule.packed()).await);
    }
    std::fs::remove_file(capsule.path().join("agent.yaml")).expect("a test file");
    let answer = cluster.post_capsule("*.>", capsule.packed()).await;
    answers.insert("a directory of wildcards", answer);
    with_status(answers)
}

fn with_status(answers: BTreeMap<&'static str, (u16, Value)>) -> BTreeMap<&'static str, Value> {
    let answers = answers.into_iter();
    answers
        .map(|(name, (status, answer))| {
            (name, redacted(json!({"status": status, "answer": answer})))
        })
        .collect()
}

/// Whether every answer is about bytes that existed at one time, and that the log names.
async fn check_race(cluster: &DockerCluster, run: &str) {
    let result = cluster.client.result(run).await;
    let answers = result["output"]["answers"].as_array().cloned();
    let answers = answers.unwrap_or_default();
    assert_eq!(answers.len(), 10, "{result}");
    let (taken, refused): (Vec<_>, Vec<_>) =
        answers.iter().partition(|answer| answer["status"] == 200);
    assert!(!taken.is_empty(), "no file was taken: {result}");
    for answer in taken {
        let child = answer["answer"]["run_id"]
            .as_str()
            .expect("a run has an id");
        let (_, view) = cluster.client.get(&format!("/v1/runs/{child}")).await;
        let (sent, read) = (&view["inputs"][0], &answer["answer"]["output"]);
        assert_eq!(sent["digest"], read["digest"], "{view} {answer}");
        assert_eq!(sent["size_bytes"], read["size_bytes"], "{view} {answer}");
        let beginning = cluster.file(child, "beginning.txt").await;
        let is_ours = |letter: char| letter == 'a' || letter == 'b';
        assert!(
            beginning.chars().all(is_ours),
            "from somewhere else: {beginning:?}"
        );
    }
    for answer in refused {
        insta::allow_duplicates! {
            insta::assert_json_snapshot!("race_refused", redacted(answer.clone()));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_calls_are_rejected_with_all_their_problems() {
    let cluster = DockerCluster::start(&["probe", "reader"]).await;
    let race = cluster.start_script(RACE, json!({})).await;
    let (outside, names, wrong, right) = tokio::join!(
        wrong_requests(&cluster),
        wrong_names(&cluster),
        cluster.run_script(WRONG_CALLS),
        cluster.run_script(RIGHT_CALLS),
    );
    insta::assert_json_snapshot!("requests_from_outside", outside);
    insta::assert_json_snapshot!("wrong_names", names);
    assert_eq!(wrong["success"], true, "{wrong}");
    insta::assert_json_snapshot!("wrong_calls_from_inside", redacted(wrong["output"].clone()));
    assert_eq!(right["success"], true, "{right}");
    insta::assert_json_snapshot!("right_calls_from_inside", redacted(right["output"].clone()));
    check_race(&cluster, &race).await;
}
