//! A client that nobody here wrote: Debian's `skopeo`.

use std::process::Command;

use aod_registry::Transfer;

use crate::bench::Bench;

#[tokio::test(flavor = "multi_thread")]
async fn skopeo_copies_out_of_and_into_the_registry() {
    let bench = Bench::new().await;
    let image = bench.image(&[b"one", b"two", b"three"]).await;
    let directory = bench.directory.path().join("copy");
    let outside = format!("dir:{}", directory.display());
    let pull = bench.pull(&image).await;
    skopeo(
        &["--src-tls-verify=false", "--src-creds", &credentials(&pull)],
        &address(&pull),
        &outside,
    );
    let push = bench.push();
    skopeo(
        &[
            "--dest-tls-verify=false",
            "--dest-creds",
            &credentials(&push),
        ],
        &outside,
        &address(&push),
    );
    assert_eq!(push.pushed(), Some(image));
    assert_eq!(push.moved_bytes(), 0, "the store has all layers");

    let layout = format!(
        "oci:{}:image",
        bench.directory.path().join("layout").display()
    );
    let (from, into) = (
        bench.pull(&push.pushed().expect("an image")).await,
        bench.push(),
    );
    skopeo(
        &["--src-tls-verify=false", "--src-creds", &credentials(&from)],
        &address(&from),
        &layout,
    );
    skopeo(
        &[
            "--dest-tls-verify=false",
            "--dest-creds",
            &credentials(&into),
        ],
        &layout,
        &address(&into),
    );
    let copied = into.pushed().expect("an image");
    assert_eq!(copied.size_bytes(), 11, "the same layers");
}

fn credentials(transfer: &Transfer) -> String {
    format!("{}:{}", transfer.user(), transfer.secret())
}

fn address(transfer: &Transfer) -> String {
    format!("docker://{}:{}", transfer.repository(), transfer.tag())
}

fn skopeo(options: &[&str], from: &str, to: &str) {
    let output = Command::new("skopeo")
        .args(["--insecure-policy", "copy"])
        .args(options)
        .args([from, to])
        .output()
        .expect("skopeo is installed: deploy/setup.sh test installs it");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
