//! Images of capsules need no AOD software: a shell script, a Node program and a static binary in an empty image pass
//! a file on.

use aod_tests::docker_cluster::DockerCluster;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn file_passes_through_shell_node_and_static_binary_capsules() {
    let cluster = DockerCluster::start(&[]).await;
    tokio::join!(
        cluster.build("chain/shell", ""),
        cluster.build("chain/node", ""),
        cluster.build("chain/native", ""),
    );
    let request = json!({"capsule": "shell", "arguments": {"text": "lines.txt"}});
    let files: [(&str, &[u8]); 1] = [("lines.txt", b"one\ntwo\n")];
    let (status, view) = cluster.post_run(&request, &files).await;
    assert_eq!(status, 202, "{view}");
    let run = view["id"].as_str().expect("a run has an id");
    let result = cluster.client.result(run).await;
    assert_eq!(
        result["output"],
        json!({"text": "turned.txt", "makers": ["native", "node", "shell"]}),
        "{result:#}"
    );
    assert_eq!(
        cluster.file(run, "turned.txt").await,
        "native\nnode\nshell\ntwo\none\n"
    );
}
