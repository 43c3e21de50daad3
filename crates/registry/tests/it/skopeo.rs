//! A client that nobody here wrote: Debian's `skopeo`.

use std::process::Command;

use aod_registry::Transfer;
use aod_registry::layout::{self, Layout, Watch};

use crate::bench::Bench;

const SILENT: Watch<'_> = Watch {
    progress: &|_| (),
    is_stopped: &|| false,
};

/// Skopeo would compress the layers of these tests, which are no tar files.
const EXACT: [&str; 1] = ["--preserve-digests"];

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

#[tokio::test(flavor = "multi_thread")]
async fn skopeo_and_aod_read_the_layouts_of_each_other() {
    let bench = Bench::new().await;
    let (ours, theirs) = (
        bench.directory.path().join("ours"),
        bench.directory.path().join("theirs"),
    );
    let parts = bench.parts(&[b"one", b"two"]).await;
    let digest = layout::add(&ours, "1.0", &parts, &SILENT).expect("it is added");
    let (from, to) = (
        format!("oci:{}:1.0", ours.display()),
        format!("oci:{}:copy", theirs.display()),
    );
    skopeo(&EXACT, &from, &to);
    let layout = Layout::open(&theirs).expect("a layout");
    let found = layout.find(Some("copy")).await.expect("an image");
    assert_eq!((found.digest, found.manifest_digest), (digest, digest));
    let copied = layout.copy(&found, &bench.artifacts).await;
    assert_eq!(copied.expect("all parts").size_bytes(), 6);
    // Skopeo writes no tag without a name.
    let untagged = bench.directory.path().join("untagged");
    skopeo(&EXACT, &from, &format!("oci:{}", untagged.display()));
    let layout = Layout::open(&untagged).expect("a layout");
    let found = layout.find(None).await.expect("the only image");
    assert_eq!(found.digest, digest);
    // And a second image goes into its layout.
    let other = bench.parts(&[b"three"]).await;
    layout::add(&theirs, "2.0", &other, &SILENT).expect("it is added");
    for tag in ["copy", "2.0"] {
        let directory = format!("dir:{}", bench.directory.path().join(tag).display());
        skopeo(
            &EXACT,
            &format!("oci:{}:{tag}", theirs.display()),
            &directory,
        );
    }
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
