//! Which base image a build uses.

use serde_json::json;

use super::*;
use crate::image::Blob;

const PINNED: &str = "sha256:1111111111111111";
const NAMED: &str = "sha256:2222222222222222";

fn base(digest: Option<&str>) -> Base {
    Base {
        reference: "python:3.11".into(),
        image: PINNED.into(),
        digest: digest.map(str::to_owned),
        stored: None,
    }
}

/// Takes the steps of a build on a node until it uses an image or leaves it to the builder. `gives` sets what a step
/// changes on the node. Returns the names of the steps, and the line of the output.
fn check(
    mut situation: Situation<'_>,
    gives: impl Fn(&Step, &mut Situation<'_>),
    steps: &[&str],
    expected: &str,
) {
    let mut taken = Vec::new();
    let line = loop {
        let step = situation.next();
        match &step {
            Step::Use { image, reason } => break line("python:3.11", image, reason),
            Step::Leave => break "left".to_owned(),
            Step::PullPin { .. } | Step::Fetch | Step::Pull => situation.tried.push(step.clone()),
        }
        taken.push(match &step {
            Step::PullPin { digest } => digest.clone(),
            other => format!("{other:?}"),
        });
        gives(&step, &mut situation);
    };
    assert_eq!(
        (taken.as_slice(), line.as_str()),
        (
            &steps
                .iter()
                .map(|step| (*step).to_owned())
                .collect::<Vec<_>>()[..],
            expected
        )
    );
}

fn nothing(_: &Step, _: &mut Situation<'_>) {}

#[test]
fn pinned_image_on_the_engine_is_used() {
    let pin = base(Some("python@sha256:9"));
    let mut situation = Situation {
        pin: Some(&pin),
        pinned: Some(PINNED.into()),
        named: Some(PINNED.into()),
        ..Situation::default()
    };
    let line = "Base image python:3.11: 111111111111, pinned by the registered version";
    check(situation.clone(), nothing, &[], line);
    situation.named = Some(NAMED.into());
    let line = format!(
        "{line}; the name now refers to 222222222222 on this node: use --update-bases to update"
    );
    check(situation, nothing, &[], &line);
}

#[test]
fn missing_pinned_image_is_pulled_then_fetched_then_replaced_with_a_warning() {
    let pin = base(Some("python@sha256:9"));
    let situation = Situation {
        pin: Some(&pin),
        named: Some(NAMED.into()),
        is_stored: true,
        ..Situation::default()
    };
    let pinned = "Base image python:3.11: 111111111111, pinned by the registered version; the name now refers to \
                  222222222222 on this node: use --update-bases to update";
    let gives = |wanted: fn(&Step) -> bool| {
        move |step: &Step, situation: &mut Situation<'_>| {
            if wanted(step) {
                situation.pinned = Some(PINNED.into());
            }
        }
    };
    let pulls = gives(|step| matches!(step, Step::PullPin { .. }));
    check(situation.clone(), pulls, &["python@sha256:9"], pinned);
    let fetches = gives(|step| *step == Step::Fetch);
    check(
        situation.clone(),
        fetches,
        &["python@sha256:9", "Fetch"],
        pinned,
    );
    let missing = "Warning: base image python:3.11: 222222222222, the image of this name on this node; the registered \
                   version uses 111111111111, which is neither on this node nor in a registry or the artifact store";
    check(
        situation.clone(),
        nothing,
        &["python@sha256:9", "Fetch"],
        missing,
    );

    let local = base(None);
    let situation = Situation {
        pin: Some(&local),
        named: None,
        ..situation
    };
    check(situation.clone(), nothing, &["Fetch", "Pull"], "left");
    let named = |step: &Step, situation: &mut Situation<'_>| {
        if *step == Step::Pull {
            situation.named = Some(NAMED.into());
        }
    };
    check(situation, named, &["Fetch", "Pull"], missing);
}

#[test]
fn first_build_uses_the_engines_image_or_pulls_it() {
    let situation = Situation {
        named: Some(NAMED.into()),
        ..Situation::default()
    };
    let new = "Base image python:3.11: 222222222222, new; later versions use it, too";
    check(situation, nothing, &[], new);
    let pulls = |_: &Step, situation: &mut Situation<'_>| situation.named = Some(NAMED.into());
    check(Situation::default(), pulls, &["Pull"], new);
    check(Situation::default(), nothing, &["Pull"], "left");
}

#[test]
fn update_ignores_the_pin_and_pulls_first() {
    let pin = base(Some("python@sha256:9"));
    let situation = Situation {
        pin: Some(&pin),
        is_update: true,
        pinned: Some(PINNED.into()),
        named: Some(PINNED.into()),
        ..Situation::default()
    };
    let same =
        "Base image python:3.11: 111111111111, as before: the name refers to it on this node";
    check(situation.clone(), nothing, &["Pull"], same);
    let moves = |_: &Step, situation: &mut Situation<'_>| situation.named = Some(NAMED.into());
    let updated = "Base image python:3.11: 222222222222, updated from 111111111111";
    check(situation, moves, &["Pull"], updated);
    let unpinned = Situation {
        is_update: true,
        ..Situation::default()
    };
    let new = "Base image python:3.11: 222222222222, new; later versions use it, too";
    check(unpinned, moves, &["Pull"], new);
}

#[test]
fn digest_is_of_the_repository_of_the_reference() {
    let digests = [
        "127.0.0.1:5000/aod@sha256:1",
        "python@sha256:2",
        "host:1/a@sha256:3",
    ];
    let digests = digests.map(str::to_owned);
    for (reference, expected) in [
        ("python:3.11", Some("python@sha256:2")),
        ("docker.io/library/python", Some("python@sha256:2")),
        ("python@sha256:2", Some("python@sha256:2")),
        ("host:1/a:latest", Some("host:1/a@sha256:3")),
        ("host:1/b", None),
    ] {
        assert_eq!(digest_of(reference, &digests), expected, "{reference}");
    }
}

#[test]
fn another_image_for_a_pinned_reference_breaks_the_pin() {
    let other = Base {
        image: NAMED.into(),
        ..base(None)
    };
    let new = Base {
        reference: "go".into(),
        ..other.clone()
    };
    let pins = [base(None)];
    assert!(respects(&[], &pins));
    assert!(respects(&[base(Some("python@sha256:9")), new], &pins));
    assert!(!respects(&[other], &pins));
}

#[test]
fn stored_base_names_its_layers_by_their_number() {
    let image = |id: &str, layers: &[&str]| Image {
        config_digest: id.to_owned(),
        content: ImageContent::Layers {
            manifest: Digest::of(id),
            config: None,
            layers: layers
                .iter()
                .map(|name| Blob {
                    digest: Digest::of(name),
                    size_bytes: 7,
                })
                .collect(),
        },
    };
    let config = Digest::of("config");
    let below = image(&format!("sha256:{config}"), &["a", "b"]);
    let above = image("sha256:0", &["a", "b", "c"]);
    assert_eq!(StoredBase::of(&above, &below), None);
    let stored = Base {
        image: below.config_digest.clone(),
        stored: StoredBase::of(&below, &above),
        ..base(None)
    };
    assert_eq!(stored.stored(&above), Some(below.clone()));
    let manifest = Digest::of(&below.config_digest);
    assert_eq!(stored.artifacts(), [manifest, config]);
    assert_eq!(base(None).artifacts(), []);
    assert_eq!(
        serde_json::to_value(&stored).unwrap()["stored"],
        json!({"manifest": manifest, "layers": 2})
    );
    assert_eq!(stored.stored(&image("sha256:0", &["a"])), None);
}
