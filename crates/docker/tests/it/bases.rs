//! Base images: the references of images, pulls, and builds with another `Dockerfile`.

use aod_ports::container_runtime::{ContainerRuntime as _, ImageBuild};
use aod_testkit::RegistryServer;
use tokio::sync::mpsc;

use crate::fixture::{Fixture, docker, finish};
use crate::images::context;

#[tokio::test]
async fn image_is_pulled_by_its_digest_with_the_credentials_of_the_node() {
    let registry = RegistryServer::start();
    let fixture = Fixture::with(|config| aod_docker::Config {
        registries: Some(registry.credentials()),
        ..config
    })
    .await;
    let runtime = &fixture.runtime;
    let context = context(&fixture, "FROM scratch\nADD root.tar /\nCMD busybox true");
    let reference = format!("{}/demo/base:1", registry.name());
    let (progress, _lines) = mpsc::channel(1);
    let build = ImageBuild::new(context, "base", &reference, progress.clone());
    runtime.build_image(build).await.expect("it builds");
    let credentials = registry.credentials();
    let directory = credentials.parent().expect("a directory").to_owned();
    let directory = directory.to_str().expect("a test path");
    docker(&["--config", directory, "push", "--quiet", &reference]);
    let named = async |reference: &str| runtime.named_image(reference).await.expect("an answer");
    let image = named(&reference).await.expect("it was built");
    let [digest] = &image.digests[..] else {
        panic!("{image:?}");
    };
    let digest = digest.clone();

    docker(&["rmi", "-f", &image.id]);
    assert_eq!(named(&digest).await, None);
    let pulled = runtime.pull_image(&digest, progress.clone()).await;
    pulled.expect("it is pulled");
    assert_eq!(named(&digest).await, Some(image.clone()));
    assert_eq!(named(&image.id).await, Some(image));
    assert_eq!(named(&reference).await, None, "only the digest was pulled");

    let stranger = Fixture::new().await;
    let refused = stranger.runtime.pull_image(&reference, progress).await;
    let refused = format!("{refused:?}");
    assert!(refused.contains("no basic auth credentials"), "{refused}");
}

#[tokio::test]
async fn other_dockerfile_takes_the_place_of_the_one_in_the_directory() {
    let fixture = Fixture::new().await;
    let context = context(&fixture, "NONSENSE");
    let label = format!("LABEL dev.aod.cluster={}", fixture.cluster);
    let dockerfile =
        format!("FROM scratch\n{label}\nADD root.tar /\nCOPY . /\nCMD busybox cat /Dockerfile\n");
    let tag = format!("aod/{}:other", fixture.cluster);
    let (progress, _lines) = mpsc::channel(1);
    let build = ImageBuild {
        dockerfile: Some(dockerfile.clone()),
        ..ImageBuild::new(context, "demo", &tag, progress)
    };
    let image = fixture.runtime.build_image(build).await.expect("it builds");
    let outcome = finish(fixture.start(fixture.spec(&image)).await).await;
    assert_eq!(outcome.stdout, dockerfile);
}
