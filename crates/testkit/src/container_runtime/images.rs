//! Conformance suite of images: build, store, fetch, and missing ones.

use aod_domain::capsule::{Image, ImageContent};
use aod_domain::digest::Digest;
use aod_ports::container_runtime::{ImageBuild, ImagePush, RuntimeError};
use aod_ports::log_stream::Output;
use tokio::sync::mpsc;

use super::{Behaviour, Bench, LONG, Recipe, Started, is_missing};
use crate::events::soon;

/// Buffered lines of a build's progress.
const LINES_MAX: usize = 1_000;

/// Runs the suite of images.
pub async fn check(bench: &dyn Bench) {
    what_is_not_here_is_missing(bench).await;
    name_refers_to_an_image_or_nothing(bench).await;
    a_build_that_is_asked_for_twice_is_one(bench).await;
    a_build_that_fails_says_what_it_last_said(bench).await;
    a_stored_image_is_fetched_as_what_it_is(bench).await;
    image_without_its_layers_is_not_fetched(bench).await;
    what_was_built_is_listed_until_it_is_removed(bench).await;
}

async fn has(bench: &dyn Bench, image: &str) -> bool {
    bench.runtime().has_image(image).await.expect("an answer")
}

/// Starts the image, to check its content.
async fn speaks(bench: &dyn Bench, image: &str) {
    let mut started = Started::of(bench, bench.spec(image, LONG)).await;
    started.end().await;
    assert_eq!(started.said(Output::Stdout), "one\nthree\n");
    started.remove(bench).await;
}

fn nobodys_image() -> String {
    format!("sha256:{}", "0".repeat(64))
}

async fn what_is_not_here_is_missing(bench: &dyn Bench) {
    let image = nobodys_image();
    assert!(!has(bench, &image).await);
    assert!(is_missing(bench, &image).await);
    let stored = store(bench, &image).await;
    assert!(
        matches!(&stored, Err(RuntimeError::ImageMissing { image: missing }) if *missing == image),
        "{stored:?}"
    );
}

async fn name_refers_to_an_image_or_nothing(bench: &dyn Bench) {
    let runtime = bench.runtime();
    let named = async |reference: &str| {
        let named = runtime.named_image(reference).await.expect("an answer");
        named.map(|named| named.id)
    };
    let context = bench.context(Recipe::Makes(Behaviour::Waits));
    let (progress, _lines) = mpsc::channel(LINES_MAX);
    let tag = bench.tag("named");
    assert_eq!(named(&tag).await, None);
    let build = ImageBuild::new(context, "named", &tag, progress.clone());
    let image = soon(runtime.build_image(build)).await.expect("an image");
    assert_eq!(named(&tag).await.as_ref(), Some(&image));
    assert_eq!(named(&image).await.as_ref(), Some(&image));
    assert_eq!(named(&nobodys_image()).await, None);
    assert_eq!(named("Not a reference").await, None);
    let unknown = "127.0.0.1:1/aod/nobody:1";
    let pulled = soon(runtime.pull_image(unknown, progress)).await;
    assert!(
        matches!(pulled, Err(RuntimeError::Engine { .. })),
        "{pulled:?}"
    );
    assert_eq!(named(unknown).await, None);
}

async fn a_build_that_is_asked_for_twice_is_one(bench: &dyn Bench) {
    let context = bench.context(Recipe::Makes(Behaviour::Speaks));
    let tag = bench.tag("twice");
    let (progress, mut lines) = mpsc::channel(LINES_MAX);
    let build = || {
        let build = bench.runtime().build_image(ImageBuild::new(
            context.clone(),
            "test",
            &tag,
            progress.clone(),
        ));
        soon(build)
    };
    let (first, second) = tokio::join!(build(), build());
    let image = first.expect("an image");
    assert_eq!(second.expect("an image"), image);
    drop(progress);
    let mut begun = 0;
    while let Some(line) = lines.recv().await {
        begun += u32::from(line.starts_with("Step 1/"));
    }
    assert_eq!(begun, 1, "both share one build");
    assert!(image.starts_with("sha256:"), "{image}");
    assert!(has(bench, &image).await);
    speaks(bench, &image).await;
}

async fn a_build_that_fails_says_what_it_last_said(bench: &dyn Bench) {
    let (progress, _lines) = mpsc::channel(1);
    let context = bench.context(Recipe::Fails);
    let tag = bench.tag("fails");
    let build = bench
        .runtime()
        .build_image(ImageBuild::new(context, "test", &tag, progress));
    match soon(build).await {
        Err(RuntimeError::BuildFailed { last_lines, .. }) => {
            let said = last_lines.iter().filter(|line| line.starts_with("line "));
            let wanted = (1..=30).map(|number| format!("line {number}"));
            let wanted: Vec<_> = wanted.skip(30 - said.clone().count()).collect();
            assert!(said.eq(&wanted) && wanted.len() > 10, "{last_lines:?}");
        }
        other => panic!("{other:?}"),
    }
}

async fn store(bench: &dyn Bench, image: &str) -> Result<Image, RuntimeError> {
    let (progress, _lines) = mpsc::channel(LINES_MAX);
    let artifacts = bench.artifacts();
    let push = ImagePush {
        image,
        artifacts,
        progress,
    };
    soon(bench.runtime().store_image(push)).await
}

async fn fetch(bench: &dyn Bench, image: &Image) -> Result<u64, RuntimeError> {
    soon(bench.runtime().fetch_image(image, bench.artifacts())).await
}

async fn a_stored_image_is_fetched_as_what_it_is(bench: &dyn Bench) {
    let id = bench.image(Behaviour::Speaks);
    let image = store(bench, &id).await.expect("it is here");
    assert_eq!(image.config_digest, id);
    assert!(image.size_bytes() > 0);
    for digest in image.artifacts() {
        let is_stored = bench.artifacts().contains(digest).await;
        assert!(is_stored.expect("the store answers"), "{digest}");
    }
    let again = store(bench, &id).await.expect("it is here");
    assert_eq!(again, image, "the same bytes");
    let fetched = fetch(bench, &image).await;
    assert_eq!(fetched.expect("nothing to do"), 0);

    bench.forget(&id);
    assert!(!has(bench, &id).await);
    assert!(is_missing(bench, &id).await);
    let other = Image {
        config_digest: nobodys_image(),
        ..image.clone()
    };
    assert!(fetch(bench, &other).await.is_err());
    assert!(!has(bench, &other.config_digest).await && !has(bench, &id).await);

    let (first, second) = tokio::join!(fetch(bench, &image), fetch(bench, &image));
    first.expect("it is fetched");
    second.expect("it is fetched");
    assert!(has(bench, &id).await);
    speaks(bench, &id).await;
}

async fn image_without_its_layers_is_not_fetched(bench: &dyn Bench) {
    let id = bench.image(Behaviour::Speaks);
    let mut image = store(bench, &id).await.expect("it is here");
    bench.forget(&id);
    let ImageContent::Layers { layers, .. } = &mut image.content else {
        panic!("an image has layers: {image:?}");
    };
    layers[0].digest = Digest::of("no such layer");
    assert!(fetch(bench, &image).await.is_err());
    assert!(!has(bench, &id).await);
}

async fn what_was_built_is_listed_until_it_is_removed(bench: &dyn Bench) {
    let runtime = bench.runtime();
    let listed = async |image: &str| {
        let images = runtime.built_images().await.expect("a list");
        let found = images.into_iter().find(|found| found.id == image);
        found.map(|found| found.capsule.to_string())
    };
    let context = bench.context(Recipe::Makes(Behaviour::Waits));
    let (progress, _lines) = mpsc::channel(LINES_MAX);
    let tag = bench.tag("garbage");
    let built =
        soon(runtime.build_image(ImageBuild::new(context, "garbage", &tag, progress))).await;
    let image = built.expect("an image");
    assert_eq!(listed(&image).await.as_deref(), Some("garbage"));

    let mut started = Started::of(bench, bench.spec(&image, LONG)).await;
    started.hear("ready").await;
    let removed = soon(runtime.remove_image(&image)).await;
    assert!(!removed.expect("an answer"), "a container has it");
    assert!(has(bench, &image).await);
    started.remove(bench).await;

    let removed = soon(runtime.remove_image(&image)).await;
    assert!(removed.expect("an answer"));
    assert!(!has(bench, &image).await);
    assert_eq!(listed(&image).await, None);
    let again = soon(runtime.remove_image(&image)).await;
    assert!(again.expect("an answer"), "what is gone is gone");
}
