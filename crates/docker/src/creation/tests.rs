use std::path::PathBuf;
use std::time::Duration;

use aod_domain::id::{NodeId, RunId};
use aod_ports::secrets::SecretValue;
use uuid::Uuid;

use super::*;

fn spec() -> ContainerSpec {
    let path = |name: &str| PathBuf::from("/data").join(name);
    ContainerSpec {
        run: RunId::root_of(Uuid::from_u128(1)),
        attempt: 2,
        capsule: "chart".into(),
        image: "sha256:00".into(),
        io: IoPaths {
            io: path("io"),
            input_json: path("input.json"),
            inputs: path("inputs"),
            outputs: path("outputs"),
            handoff: path("handoff"),
            outgoing: path("out"),
            incoming: path("in"),
            workspace: path("workspace"),
            channel: path("channel"),
            volumes: path("volumes"),
        },
        environment: vec![("AOD_ATTEMPT".into(), "2".into())],
        secrets: Vec::new(),
        devices: Vec::new(),
        resources: Resources::default(),
        holds: false,
        lease_until: tokio::sync::watch::channel(Duration::from_secs(18)).1,
    }
}

fn config(capsule_user: CapsuleUser) -> Config {
    let node = NodeId::new(Uuid::from_u128(2));
    let config = Config::new(
        "/s".into(),
        "demo".into(),
        node,
        "/gate".into(),
        "/hosts".into(),
    );
    Config {
        capsule_user,
        ..config
    }
}

fn image(user: &str) -> ImageFacts {
    ImageFacts {
        command: vec!["/run".into()],
        user: user.into(),
        ..ImageFacts::default()
    }
}

#[test]
fn capsules_never_run_as_root() {
    const OWN: CapsuleUser = CapsuleUser::Own {
        uid: 1000,
        gid: 100,
    };
    for (policy, of_image, expected) in [
        (CapsuleUser::OfImage, "", Some("65534:65534")),
        (CapsuleUser::OfImage, "root", Some("65534:65534")),
        (CapsuleUser::OfImage, "0:5", Some("65534:65534")),
        (CapsuleUser::OfImage, "000", Some("65534:65534")),
        (CapsuleUser::OfImage, "10:10", Some("10:10")),
        (CapsuleUser::OfImage, "app", Some("app")),
        (OWN, "", Some("1000:100")),
        (OWN, "1000:7", Some("1000:100")),
        (OWN, "10", None),
        (OWN, "app", None),
        (CapsuleUser::Own { uid: 0, gid: 0 }, "", None),
    ] {
        assert_eq!(
            user(policy, &image(of_image)).ok().as_deref(),
            expected,
            "{policy:?} {of_image}"
        );
    }
    assert!(ensure_user(CapsuleUser::OfImage, 0).is_err());
    assert!(ensure_user(CapsuleUser::OfImage, 10).is_ok());
    assert!(ensure_user(OWN, 10).is_err());
    assert!(ensure_user(OWN, 1000).is_ok());
}

#[test]
fn variables_of_contract_override_those_of_image() {
    let mut image = image("");
    image.environment = [("HOME", "/root"), ("AOD_ATTEMPT", "99")]
        .map(|(key, value)| (key.into(), value.into()))
        .into();
    let creation = plan(&config(CapsuleUser::OfImage), &spec(), &image, &[], "x").expect("a plan");
    let last = |name: &str| {
        let found = creation.go.env.iter().rev().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    };
    assert_eq!(last("HOME"), Some("/root"));
    assert_eq!(last("TMPDIR"), Some(WORKSPACE));
    assert_eq!(last("PATH"), Some(PATH_DEFAULT));
    assert_eq!(last("AOD_ATTEMPT"), Some("2"));
    assert_eq!(
        creation.body.env, None,
        "the gate receives the environment later, not through the engine"
    );
}

#[test]
fn volume_is_a_directory_of_the_attempt() {
    let volumes = ["/data", "/srv/x"].map(str::to_owned);
    let creation = plan(
        &config(CapsuleUser::OfImage),
        &spec(),
        &image(""),
        &volumes,
        "x",
    );
    let host = creation.expect("a plan").body.host_config;
    let mounts = host.and_then(|host| host.mounts).unwrap_or_default();
    let source = |path: &str| {
        let mount = mounts
            .iter()
            .find(|mount| mount.target.as_deref() == Some(path));
        mount.and_then(|mount| mount.source.as_deref())
    };
    assert_eq!(source("/data"), Some("/data/volumes/0/data"));
    assert_eq!(source("/srv/x"), Some("/data/volumes/1/x"));
}

#[test]
fn request_to_engine_contains_no_secret() {
    let with_secrets = ContainerSpec {
        secrets: vec![SecretFile {
            name: "KEY".into(),
            value: SecretValue::new("opensesame".into()),
        }],
        ..spec()
    };
    let image = image("");
    let creation = plan(
        &config(CapsuleUser::OfImage),
        &with_secrets,
        &image,
        &[],
        "x",
    )
    .expect("a plan");
    assert_eq!(creation.go.secrets[0].path, "/run/secrets/KEY");
    assert_eq!(creation.go.secrets[0].value, "opensesame");
    let printed = serde_json::to_string(&creation.body).expect("JSON");
    assert!(!printed.contains("opensesame"), "{printed}");
    assert!(!format!("{creation:?}").contains("opensesame"));
    let mounts = creation.body.host_config.and_then(|host| host.mounts);
    let tmpfs = mounts
        .into_iter()
        .flatten()
        .filter(|mount| mount.typ == Some(MountType::TMPFS));
    let targets: Vec<_> = tmpfs.filter_map(|mount| mount.target).collect();
    assert_eq!(targets, ["/tmp", "/run/secrets"]);
}

#[test]
fn image_without_command_is_rejected() {
    let image = ImageFacts {
        command: vec![],
        ..image("")
    };
    let refused = plan(&config(CapsuleUser::OfImage), &spec(), &image, &[], "x");
    assert!(
        matches!(refused, Err(RuntimeError::ImageRefused { .. })),
        "{refused:?}"
    );
}
