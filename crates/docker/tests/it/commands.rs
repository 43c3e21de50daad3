//! Command, user and directory of a container, and the report of its end.

use aod_docker::Config;
use aod_docker::config::CapsuleUser;
use aod_ports::container_runtime::{ContainerEvent, ContainerRuntime as _, RuntimeError};

use crate::fixture::{Fixture, command, finish};

#[tokio::test]
async fn exec_form_needs_only_its_own_program() {
    let fixture = Fixture::new().await;
    let image = fixture.image(&[
        "ENTRYPOINT [\"/bin/busybox\", \"echo\"]",
        &command(&["one argument", "$HOME"]),
    ]);
    let outcome = finish(fixture.start(fixture.spec(&image)).await).await;
    assert_eq!(outcome.stdout, "one argument $HOME\n");
    assert!(outcome.has_started);
    assert_eq!(
        (outcome.code(), outcome.verdict.exit_code),
        (Some(0), Some(0))
    );
    assert!(!outcome.verdict.out_of_memory);
}

#[tokio::test]
async fn shell_form_runs_in_shell_of_image() {
    let fixture = Fixture::new().await;
    let image = fixture.image(&["ENTRYPOINT echo $AOD_ATTEMPT; echo warning >&2; exit 3"]);
    let outcome = finish(fixture.start(fixture.spec(&image)).await).await;
    assert_eq!(
        (outcome.stdout.as_str(), outcome.stderr.as_str()),
        ("1\n", "warning\n")
    );
    assert_eq!(
        (outcome.code(), outcome.verdict.exit_code),
        (Some(3), Some(3))
    );
}

#[tokio::test]
async fn container_has_user_and_directory_of_image_unless_root() {
    let fixture = Fixture::new().await;
    let show = command(&[
        "/bin/sh",
        "-c",
        "echo $(busybox id -u):$(busybox id -g) $PWD $HOME $TMPDIR",
    ]);
    for (instructions, expected) in [
        (
            &["WORKDIR /made/for/it"][..],
            "65534:65534 /made/for/it /workspace /workspace\n",
        ),
        (
            &["USER root", "ENV HOME=/root"],
            "65534:65534 / /root /workspace\n",
        ),
        (
            &["USER 12:13", "WORKDIR /io"],
            "12:13 /io /workspace /workspace\n",
        ),
        (&["USER app"], "1234:1234 / /workspace /workspace\n"),
    ] {
        let image = fixture.image(&[&[show.as_str()], instructions].concat());
        let outcome = finish(fixture.start(fixture.spec(&image)).await).await;
        assert_eq!(outcome.stdout, expected, "{instructions:?} {outcome:?}");
    }
}

#[tokio::test]
async fn user_with_number_0_and_unknown_user_are_rejected() {
    let fixture = Fixture::new().await;
    for (user, reason) in [
        ("USER toor", "number 0"),
        ("USER nobody-of-that-name", "find user"),
    ] {
        let image = fixture.image(&[&command(&["/bin/sh", "-c", "true"]), user]);
        match fixture
            .runtime
            .start(fixture.spec(&image))
            .await
            .map(|_| ())
        {
            Err(RuntimeError::ImageRefused { message }) => {
                assert!(message.contains(reason), "{message}");
            }
            other => panic!("{user}: {other:?}"),
        }
    }
    assert_eq!(fixture.runtime.list().await.expect("a list"), []);
}

#[tokio::test]
async fn node_without_root_runs_capsules_as_itself() {
    let own = CapsuleUser::Own {
        uid: 4321,
        gid: 4322,
    };
    let fixture = Fixture::with(|config| Config {
        capsule_user: own,
        ..config
    })
    .await;
    let show = command(&["/bin/sh", "-c", "echo $(busybox id -u):$(busybox id -g)"]);
    for (user, is_run) in [
        ("USER root", true),
        ("USER 4321", true),
        ("USER 12", false),
        ("USER app", false),
    ] {
        let image = fixture.image(&[&show, user]);
        match fixture.runtime.start(fixture.spec(&image)).await {
            Ok(container) => {
                assert!(is_run, "{user}");
                assert_eq!(finish(container).await.stdout, "4321:4322\n", "{user}");
            }
            Err(RuntimeError::ImageRefused { .. }) => assert!(!is_run, "{user}"),
            Err(other) => panic!("{user}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn unusable_command_and_missing_image_are_reported() {
    let fixture = Fixture::new().await;
    let image = fixture.image(&[&command(&["/no/such/program"])]);
    let outcome = finish(fixture.start(fixture.spec(&image)).await).await;
    match outcome.last {
        Some(ContainerEvent::Unusable(why)) => assert!(why.contains("/no/such/program"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(outcome.verdict.exit_code, Some(127));

    let image = fixture.image(&[]);
    let started = fixture
        .runtime
        .start(fixture.spec(&image))
        .await
        .map(|_| ());
    assert!(
        matches!(started, Err(RuntimeError::ImageRefused { .. })),
        "{started:?}"
    );

    let missing = format!("sha256:{}", "0".repeat(64));
    let started = fixture
        .runtime
        .start(fixture.spec(&missing))
        .await
        .map(|_| ());
    assert!(
        matches!(started, Err(RuntimeError::ImageMissing { .. })),
        "{started:?}"
    );
}

#[tokio::test]
async fn end_by_signal_is_reported_with_signal() {
    let fixture = Fixture::new().await;
    let outcome = fixture.run_script("kill -SEGV $$").await;
    assert_eq!(
        (outcome.signal(), outcome.verdict.exit_code),
        (Some(11), Some(139))
    );
    let outcome = fixture.run_script("kill -KILL $$").await;
    assert_eq!(
        (outcome.signal(), outcome.verdict.exit_code),
        (Some(9), Some(137))
    );
    assert!(!outcome.verdict.out_of_memory);
}
