use std::collections::BTreeSet;

use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::contract::FileKind;
use crate::run::fixtures::{self, NOW, node_holder, requested, root, run_of};
use crate::run::{Event, Lease};

const SCHEMA: &str = r#"{
    "input": {
        "type": "object",
        "required": ["table"],
        "additionalProperties": false,
        "properties": {
            "table": {"type": "string", "format": "file_path"},
            "rows": {"type": "integer", "default": 10}
        }
    },
    "output": {"type": "object"}
}"#;

fn registration() -> Registration {
    Registration {
        schema: Digest::of(SCHEMA),
        ..fixtures::registration("chart", "content")
    }
}

fn file(name: &str, size_bytes: u64) -> FileEntry {
    FileEntry {
        name: name.parse().unwrap(),
        digest: Digest::of(name),
        size_bytes,
    }
}

/// A request for a chart of `penguins.csv`.
fn wanted() -> Wanted {
    let arguments = json!({"table": "penguins.csv"});
    Wanted {
        target: "chart".into(),
        arguments: arguments.as_object().unwrap().clone(),
        files: vec![file("penguins.csv", 3)],
        pool: None,
        requirements: Requirements::default(),
        timeout_seconds: None,
        retries: Retries::default(),
        limits: Limits::default(),
        budget: Budget::default(),
    }
}

fn terms() -> Terms {
    Terms {
        labels: BTreeMap::new(),
        deadline_seconds: TOTAL_SECONDS_DEFAULT,
        priority: 0,
        is_cancelled_on_disconnect: false,
    }
}

/// The only caller of the check under test.
fn check_wanted(wanted: &Wanted, directory: Directory) -> Result<Checked, Rejection> {
    let contract = Contract::parse(SCHEMA.as_bytes()).unwrap();
    check(registration(), &contract, wanted, directory)
}

fn fits(wanted: &Wanted) -> Checked {
    check_wanted(wanted, Directory::Input).unwrap()
}

fn rejection(wanted: &Wanted) -> Rejection {
    check_wanted(wanted, Directory::Input).unwrap_err()
}

fn origin() -> Origin {
    Origin {
        tenant: Tenant::default(),
        parent: None,
        rerun: None,
        reuses: None,
        lineage: Lineage::default(),
        budget: Budget::default(),
        deadline: NOW,
        requested_by: "ada".into(),
        trace: None,
        labels: BTreeMap::new(),
        priority: 0,
        shared: Vec::new(),
        near: None,
    }
}

#[test]
fn request_that_fits_gets_defaults_of_schema_and_capsule() {
    let checked = fits(&wanted());
    assert_eq!(
        *checked.payload(),
        json!({"table": "penguins.csv", "rows": 10})
    );
    assert_eq!(*checked.pool(), Pool::any());
    assert_eq!(*checked.resources(), Resources::default());
    let launched = checked.launch(origin(), None);
    assert_eq!(launched.placement.class, Class::Root);
    assert_eq!(launched.files, wanted().files);
    assert_eq!(launched.limits, Limits::default().resolved());
}

#[test]
fn pool_and_timeout_of_the_request_replace_those_of_the_capsule() {
    let gpu: Pool = "gpu".parse().unwrap();
    let checked = fits(&Wanted {
        pool: Some(gpu.clone()),
        timeout_seconds: Some(7),
        ..wanted()
    });
    assert_eq!(*checked.pool(), gpu);
    assert_eq!(checked.resources().timeout_seconds, 7);
}

#[test]
fn arguments_that_do_not_fit_are_rejected_with_all_their_places() {
    let arguments = json!({"table": "missing.csv", "rows": "many", "other": 1});
    let rejected = rejection(&Wanted {
        arguments: arguments.as_object().unwrap().clone(),
        ..wanted()
    });
    assert_eq!(rejected.code(), ErrorCode::ArgumentsInvalid);
    let Rejection::Misfit { capsule, problems } = rejected else {
        panic!("{rejected:?}");
    };
    assert_eq!(capsule.as_str(), "chart");
    assert!(problems.len() >= 2, "{problems:?}");
}

#[test]
fn text_that_is_too_long_is_a_payload_that_is_too_large() {
    let arguments = json!({"table": "x".repeat(100_000)});
    let rejected = rejection(&Wanted {
        arguments: arguments.as_object().unwrap().clone(),
        ..wanted()
    });
    assert_eq!(rejected.code(), ErrorCode::PayloadTooLarge);
}

#[test]
fn files_that_cannot_exist_side_by_side_are_named_all_at_once() {
    let names = ["a", "a", "b", "b/c"];
    let rejected = rejection(&Wanted {
        files: names.map(|name| file(name, 1)).into(),
        ..wanted()
    });
    assert_eq!(rejected.code(), ErrorCode::FileRefused);
    let name = |text: &str| text.parse::<FileName>().unwrap();
    let below = NameClash::BelowFile {
        name: name("b/c"),
        parent: name("b"),
    };
    let clashes = vec![NameClash::Twice(name("a")), below];
    assert_eq!(rejected, Rejection::Files(clashes));
}

#[test]
fn handoff_passes_only_the_files_that_its_arguments_reference() {
    let wanted = Wanted {
        files: vec![file("penguins.csv", 3), file("notes.txt", 4)],
        ..wanted()
    };
    let files = |directory| {
        let checked = check_wanted(&wanted, directory).unwrap();
        checked.launch(origin(), None).files
    };
    assert_eq!(files(Directory::Outgoing), [file("penguins.csv", 3)]);
    assert_eq!(files(Directory::Input), wanted.files);
}

#[test]
fn referenced_directory_passes_what_is_in_it() {
    let files = [file("data/a", 1), file("data/b/c", 1), file("database", 1)];
    let reference = contract::Reference {
        pointer: "/table".into(),
        name: "data".parse().unwrap(),
        declared: true,
        kind: FileKind::Directory,
    };
    assert_eq!(referenced(&files, &[reference]), files[..2]);
    let names: BTreeSet<FileName> = files.iter().map(|file| file.name.clone()).collect();
    let kinds = ["data", "data/a", "dat", "data/b/c/d"].map(|name| kind_of(&names, name));
    let (directory, file) = (FileKind::Directory, FileKind::File);
    assert_eq!(kinds, [Some(directory), Some(file), None, None]);
}

#[test]
fn numbers_out_of_range_are_rejected_by_name() {
    let field = |wanted: Wanted| match check_ranges(&wanted) {
        Err(Rejection::OutOfRange { field, .. }) => Some(field),
        Ok(()) => None,
        other => panic!("{other:?}"),
    };
    let timeout = |seconds| Wanted {
        timeout_seconds: Some(seconds),
        ..wanted()
    };
    let retries = |capsule, time| Wanted {
        retries: Retries { capsule, time },
        ..wanted()
    };
    let limit = |seconds| Wanted {
        limits: Limits {
            queue_seconds: Some(seconds),
            ..Limits::default()
        },
        ..wanted()
    };
    for fine in [
        wanted(),
        timeout(1),
        timeout(TIMEOUT_SECONDS_MAX),
        retries(RETRIES_MAX, RETRIES_MAX),
        limit(1),
        limit(LIMIT_SECONDS_MAX),
    ] {
        assert_eq!(field(fine), None);
    }
    for seconds in [0, TIMEOUT_SECONDS_MAX + 1] {
        assert_eq!(field(timeout(seconds)), Some("timeout_seconds"));
    }
    assert_eq!(field(retries(RETRIES_MAX + 1, 0)), Some("retries"));
    assert_eq!(field(retries(0, RETRIES_MAX + 1)), Some("retries"));
    for seconds in [0, LIMIT_SECONDS_MAX + 1] {
        assert_eq!(field(limit(seconds)), Some("limits"));
    }
}

#[test]
fn requirements_of_capsule_and_request_have_a_common_maximum() {
    let require = |range: std::ops::Range<usize>| Requirements {
        attributes: range
            .map(|number| format!("a{number}=1").parse().unwrap())
            .collect(),
        ..Requirements::default()
    };
    let contract = Contract::parse(SCHEMA.as_bytes()).unwrap();
    let check_with = |of_request| {
        let mut registration = registration();
        registration.needs.placement = require(0..REQUIREMENTS_MAX);
        let wanted = Wanted {
            requirements: require(of_request),
            ..wanted()
        };
        check(registration, &contract, &wanted, Directory::Input).map(drop)
    };
    assert_eq!(check_with(0..1), Ok(()));
    let rejected = check_with(REQUIREMENTS_MAX..REQUIREMENTS_MAX + 1).unwrap_err();
    assert_eq!(rejected.code(), ErrorCode::RequestMalformed);
}

#[test]
fn every_field_of_a_request_changes_its_hash() {
    let gpu = Requirements {
        devices: BTreeMap::from([("gpu".parse().unwrap(), 1)]),
        ..Requirements::default()
    };
    let arguments = json!({"table": "penguins.csv", "rows": 3});
    let variants = [
        wanted(),
        Wanted {
            arguments: arguments.as_object().unwrap().clone(),
            ..wanted()
        },
        Wanted {
            files: vec![FileEntry {
                digest: Digest::of("other"),
                ..file("penguins.csv", 3)
            }],
            ..wanted()
        },
        Wanted {
            pool: Some("gpu".parse().unwrap()),
            ..wanted()
        },
        Wanted {
            requirements: gpu,
            ..wanted()
        },
        Wanted {
            timeout_seconds: Some(7),
            ..wanted()
        },
        Wanted {
            retries: Retries {
                capsule: 1,
                time: 0,
            },
            ..wanted()
        },
        Wanted {
            retries: Retries {
                capsule: 0,
                time: 1,
            },
            ..wanted()
        },
        Wanted {
            limits: Limits {
                queue_seconds: Some(5),
                ..Limits::default()
            },
            ..wanted()
        },
        Wanted {
            budget: Budget {
                tokens_max: Some(5),
                ..Budget::default()
            },
            ..wanted()
        },
    ];
    let hashes: Vec<Digest> = variants.iter().map(|wanted| fits(wanted).request).collect();
    let distinct: BTreeSet<&Digest> = hashes.iter().collect();
    assert_eq!(distinct.len(), variants.len());
    let again = fits(&wanted());
    assert_eq!(again.request, hashes[0]);
    let rerun = again.clone().with_part(&Digest::of("rerun"));
    assert_ne!(rerun.request, hashes[0]);
    assert_eq!(rerun.signature(), again.signature());
}

#[test]
fn every_term_of_a_root_changes_the_hash_of_its_request() {
    let again = fits(&wanted());
    let terms = [
        terms(),
        Terms {
            labels: BTreeMap::from([("team".into(), "blue".into())]),
            ..terms()
        },
        Terms {
            deadline_seconds: 60,
            ..terms()
        },
        Terms {
            priority: 1,
            ..terms()
        },
        Terms {
            is_cancelled_on_disconnect: true,
            ..terms()
        },
    ];
    let with_terms = terms.map(|terms| again.clone().with_part(&terms.digest()).request);
    assert_eq!(BTreeSet::from(with_terms).len(), 5);
}

#[test]
fn sizes_of_budget_and_requirements_change_the_hash_of_a_request() {
    let budget = |tokens| Wanted {
        budget: Budget {
            tokens_max: Some(tokens),
            ..Budget::default()
        },
        ..wanted()
    };
    let devices = |number| Wanted {
        requirements: Requirements {
            devices: BTreeMap::from([("gpu".parse().unwrap(), number)]),
            ..Requirements::default()
        },
        ..wanted()
    };
    let requests = [budget(1), budget(2), devices(1), devices(2)];
    let hashes = requests.map(|wanted| fits(&wanted).request);
    assert_eq!(BTreeSet::from(hashes).len(), 4);
}

#[test]
fn signature_depends_on_target_arguments_and_files_alone() {
    let one = fits(&wanted());
    let other = fits(&Wanted {
        timeout_seconds: Some(7),
        ..wanted()
    });
    assert_eq!(one.signature(), other.signature());
    let files = fits(&Wanted {
        files: vec![FileEntry {
            digest: Digest::of("other"),
            ..file("penguins.csv", 3)
        }],
        ..wanted()
    });
    assert_ne!(one.signature(), files.signature());
}

#[test]
fn callee_is_placed_as_a_child_near_its_files_if_they_are_large() {
    let node = NodeId::new(Uuid::from_u128(4));
    let launch = |size_bytes, parent: Option<Parent>| {
        let wanted = Wanted {
            files: vec![file("penguins.csv", size_bytes)],
            ..wanted()
        };
        let origin = Origin {
            parent,
            near: Some(node),
            ..origin()
        };
        fits(&wanted).launch(origin, None).placement
    };
    let parent = Parent {
        run: root(),
        attempt: 1,
        call_key: Digest::of("call"),
        event: Digest::of("lease"),
    };
    let small = launch(LOCALITY_BYTES_MIN - 1, Some(parent));
    assert_eq!((small.class, small.near), (Class::Child, None));
    let large = launch(LOCALITY_BYTES_MIN, None);
    let near = Near {
        node,
        bytes: LOCALITY_BYTES_MIN,
    };
    assert_eq!((large.class, large.near), (Class::Root, Some(near)));
}

/// A root that waits for nothing, leased by node 1, with everything that a callee inherits.
fn caller() -> Run {
    let mut launched = requested();
    launched.budget = Budget {
        tokens_max: Some(7),
        ..Budget::default()
    };
    let first = Event::Launched(Box::new(launched));
    let lease = Event::Leased(Lease {
        attempt: 1,
        holder: node_holder(1, 1),
    });
    run_of([first, lease])
}

fn call_origin() -> CallOrigin {
    CallOrigin {
        attempt: 1,
        call_key: Digest::of("call"),
        lineage: Lineage::default(),
        rerun: None,
        reuses: None,
    }
}

#[test]
fn callee_inherits_what_belongs_to_its_tree() {
    let caller = caller();
    let origin = Origin::of_callee(&caller, call_origin(), NOW);
    let launched = &caller.launched.event;
    assert_eq!(origin.tenant, launched.tenant);
    assert_eq!(origin.budget, launched.budget);
    assert_eq!(origin.priority, 5);
    assert_eq!(origin.requested_by, root().to_string());
    assert_eq!(origin.labels, BTreeMap::new());
    assert_eq!(origin.near, node_holder(1, 1).node());
    let parent = origin.parent.unwrap();
    assert_eq!((parent.run, parent.attempt), (root(), 1));
    assert_eq!(parent.event, caller.last.hash);
    assert_eq!(
        origin.shared.len(),
        launched.admission.as_ref().unwrap().buckets.len()
    );
}

#[test]
fn deadline_of_a_callee_is_at_most_that_of_its_caller() {
    let caller = caller();
    let deadline = |now| Origin::of_callee(&caller, call_origin(), now).deadline;
    assert_eq!(
        deadline(NOW + SignedDuration::from_hours(1)),
        caller.deadline()
    );
    let earlier = NOW - SignedDuration::from_hours(1);
    let total = SignedDuration::from_secs(TOTAL_SECONDS_DEFAULT.into());
    assert_eq!(deadline(earlier), earlier + total);
}

#[test]
fn payload_gets_the_room_that_files_and_labels_leave() {
    let mut launched = fits(&wanted()).launch(origin(), None);
    assert_eq!(room_for_payload(&launched), Ok(PAYLOAD_INLINE_BYTES_MAX));
    launched.files = (0..120)
        .map(|number| file(&format!("f{number}"), 1))
        .collect();
    let room = room_for_payload(&launched).unwrap();
    assert!((PAYLOAD_ARTIFACT_BYTES..=PAYLOAD_INLINE_BYTES_MAX).contains(&room));
    launched.files = (0..1_000)
        .map(|number| file(&format!("f{number}"), 1))
        .collect();
    let rejected = room_for_payload(&launched).unwrap_err();
    assert_eq!(rejected.code(), ErrorCode::PayloadTooLarge);
    assert_eq!(
        rejected,
        Rejection::TooLarge {
            files: 1_000,
            labels: 0
        }
    );
}
