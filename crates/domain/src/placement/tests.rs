use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::*;
use crate::id::NodeId;

fn requirements(attributes: &[&str], devices: &[(&str, u16)]) -> Requirements {
    let read = |text: &&str| text.parse().expect("a requirement");
    let device = |(name, count): &(&str, u16)| (name.parse().expect("a name"), *count);
    Requirements {
        attributes: attributes.iter().map(read).collect(),
        devices: devices.iter().map(device).collect(),
        size: None,
    }
}

fn equipment(attributes: &[&str], devices: &[(&str, usize)]) -> Equipment {
    let read = |text: &&str| Equipment::read_attribute(text).expect("an attribute");
    let device = |(name, count): &(&str, usize)| (name.parse().expect("a name"), *count);
    Equipment {
        attributes: attributes.iter().map(read).collect(),
        devices: devices.iter().map(device).collect(),
        ..Equipment::default()
    }
}

/// Checks whether a node with `attribute` meets `wanted`, and that `wanted` is shown as parsed.
fn check_met(wanted: &str, attribute: &str, is_met: bool) {
    let requirement: Requirement = wanted.parse().expect("a requirement");
    assert_eq!(requirement.to_string(), wanted);
    let stored = serde_json::to_string(&requirement).expect("text");
    assert_eq!(
        serde_json::from_str::<Requirement>(&stored).expect("stored"),
        requirement
    );
    let found = (!attribute.is_empty()).then(|| Equipment::read_attribute(attribute));
    let found = found.map(|found| found.expect("an attribute").1);
    assert_eq!(
        requirement.is_met(found.as_deref()),
        is_met,
        "{wanted} of {attribute:?}"
    );
}

#[test]
fn numbers_are_compared_as_numbers_and_texts_as_texts() {
    check_met("zone=eu", "zone=eu", true);
    check_met("zone=eu", "zone=us", false);
    check_met("zone!=eu", "zone=us", true);
    check_met("zone!=eu", "zone=eu", false);
    check_met("memory>=24", "memory=100", true);
    check_met("memory>=24", "memory=24.0", true);
    check_met("memory=24", "memory=24.0", true);
    check_met("memory!=24", "memory=24.0", false);
    check_met("memory>24", "memory=24", false);
    check_met("memory<=24", "memory=9", true);
    check_met("memory<9", "memory=10", false);
    check_met("memory<9", "memory=large", false);
    check_met("memory>=9", "memory=large", false);
    check_met("version=1.2.3", "version=1.2.3", true);
    check_met("ssd", "ssd", true);
    check_met("ssd", "ssd=no", true);
}

#[test]
fn missing_attribute_differs_and_is_neither_less_nor_greater() {
    for wanted in [
        "ssd",
        "zone=eu",
        "memory<9",
        "memory>9",
        "memory<=9",
        "memory>=9",
    ] {
        check_met(wanted, "", false);
    }
    check_met("zone!=eu", "", true);
}

#[test]
fn malformed_requirement_is_refused_with_its_mistake() {
    let check = |text: &str, expected: &str| {
        let error = text.parse::<Requirement>().unwrap_err().to_string();
        assert!(error.contains(expected), "{text:?}: {error}");
    };
    for text in [
        "", "Zone=eu", "=eu", "9=9", "zo ne=eu", "!ssd", "zone!eu", "zone~eu", "ä=1",
    ] {
        check(text, "expected 1 to 63 of a-z");
    }
    check("zone=", "invalid value \"\"");
    check("zone=a b", "invalid value \"a b\"");
    check(
        &format!("zone={}", "x".repeat(64)),
        "expected 1 to 63 printable",
    );
    check("memory>=lots", "\"lots\" is not a number");
    check("memory<NaN", "\"NaN\" is not a number");
    check("memory>inf", "\"inf\" is not a number");
    assert!(Equipment::read_attribute("a b=c").is_err());
    assert!(Equipment::read_attribute("zone=").is_err());
}

#[test]
fn all_unmet_requirements_are_reported() {
    let wanted = Requirements {
        size: Some(Size {
            cpu_millis: 8_000,
            memory_bytes: 64 << 30,
        }),
        ..requirements(&["gpu_memory>=24", "ssd", "zone=eu"], &[("gpu", 2)])
    };
    let node = Equipment {
        cpu_millis: Some(2_500),
        memory_bytes: Some(8 << 30),
        ..equipment(&["zone=us", "gpu_memory=16"], &[("gpu", 1)])
    };
    let pool: Pool = "fast".parse().expect("a pool");
    let refusals = fits(&pool, &wanted, &[Pool::any()], &node).unwrap_err();
    let texts: Vec<String> = refusals.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "no pool fast",
            "gpu_memory=16 not gpu_memory>=24",
            "no ssd",
            "zone=us not zone=eu",
            "1 of 2 gpu",
            "2.5 of 8 processors",
            "8 GiB of 64 GiB memory",
        ]
    );
    let all = "gpu_memory>=24, ssd, zone=eu, 2 gpu, 8 processors, 64 GiB memory";
    assert_eq!(wanted.to_string(), all);
    let better = Equipment {
        cpu_millis: Some(8_000),
        memory_bytes: Some(64 << 30),
        ..equipment(&["zone=eu", "gpu_memory=24", "ssd"], &[("gpu", 2)])
    };
    assert_eq!(
        fits(&pool, &wanted, std::slice::from_ref(&pool), &better),
        Ok(())
    );
    // A node that does not announce its size counts as large enough.
    let silent = equipment(&["zone=eu", "gpu_memory=24", "ssd"], &[("gpu", 2)]);
    assert_eq!(
        fits(&pool, &wanted, std::slice::from_ref(&pool), &silent),
        Ok(())
    );
}

#[test]
fn queue_name_depends_on_all_requirements() {
    let any = Pool::any();
    let queue = |wanted: &Requirements| wanted.queue(&any);
    assert_eq!(queue(&Requirements::default()), any);
    assert!(!is_for_requirements(&any));
    let eu = queue(&requirements(&["zone=eu", "ssd"], &[]));
    assert!(is_for_requirements(&eu), "{eu}");
    assert_eq!(eu, queue(&requirements(&["ssd", "zone=eu", "ssd"], &[])));
    let others = [
        queue(&requirements(&["zone=eu"], &[])),
        queue(&requirements(&["zone=eu", "ssd"], &[("gpu", 1)])),
        requirements(&["zone=eu", "ssd"], &[]).queue(&"gpu".parse().expect("a pool")),
    ];
    assert!(!others.contains(&eu));
    assert_eq!(BTreeSet::from(others).len(), 3);
    // Subjects of launches contain the name, so it must never change.
    assert_eq!(eu.as_str(), "needs-d3224fe94d7cd57a890b86e34fdb4e44");
}

#[test]
fn requirements_of_capsule_and_request_add_up() {
    let of_capsule = requirements(&["zone=eu"], &[("gpu", 2), ("card", 1)]);
    let asked = requirements(&["ssd"], &[("gpu", 1)]);
    let both = requirements(&["zone=eu", "ssd"], &[("gpu", 2), ("card", 1)]);
    assert_eq!(of_capsule.and(&asked), both);
}

#[test]
fn size_counts_only_if_nodes_differ() {
    let large = Resources {
        memory_bytes: 32 << 30,
        ..Resources::default()
    };
    let node = |gibibytes: u64| Equipment {
        memory_bytes: Some(gibibytes << 30),
        ..Equipment::default()
    };
    let pools = [Pool::any()];
    let matters = |nodes: &[Equipment]| {
        let nodes = nodes.iter().map(|node| (&pools[..], node));
        size_that_matters(&Pool::any(), &large, nodes).is_some()
    };
    assert!(matters(&[node(8), node(64)]));
    assert!(
        !matters(&[node(8), node(16)]),
        "no node can hold it: as always"
    );
    assert!(!matters(&[node(64), Equipment::default()]));
    assert!(
        !matters(&[node(8), Equipment::default()]),
        "no node is known to hold it"
    );
    assert!(!matters(&[]));
    let other = ["gpu".parse().expect("a pool")];
    let small = node(8);
    let mixed = [(&pools[..], &node(64)), (&other[..], &small)];
    assert_eq!(size_that_matters(&Pool::any(), &large, mixed), None);
}

#[test]
fn no_device_is_taken_twice() {
    let gpu: Name = "gpu".parse().expect("a name");
    let files = ["/dev/a", "/dev/b", "/dev/c"].map(|file| Some(file.to_owned()));
    let all = Devices::new(BTreeMap::from([(gpu.clone(), files.to_vec())]));
    let mut free = all.clone();
    let wanted = |count| BTreeMap::from([(gpu.clone(), count)]);
    let two = free.take(&wanted(2)).expect("there are three");
    assert_eq!(
        two.files().collect::<Vec<_>>(),
        [(&gpu, vec!["/dev/a", "/dev/b"])]
    );
    assert_eq!(free.take(&wanted(2)), None);
    assert_eq!(free.counts(), BTreeMap::from([(gpu.clone(), 1)]));
    let one = free.take(&wanted(1)).expect("one is left");
    assert_eq!(one.files().collect::<Vec<_>>(), [(&gpu, vec!["/dev/c"])]);
    free.give_back(two);
    free.give_back(one);
    assert_eq!(free, all);
    let unknown = BTreeMap::from([("card".parse().expect("a name"), 1)]);
    assert_eq!(free.take(&unknown), None);
    assert_eq!(free.take(&BTreeMap::new()), Some(Devices::default()));
}

fn spot(number: u128, has_image: bool, running: usize) -> Spot {
    Spot {
        node: NodeId::new(Uuid::from_u128(number)),
        has_image,
        running,
        slots: 4,
    }
}

#[test]
fn run_prefers_the_node_with_its_files_and_image() {
    let mib = |number: u64| number << 20;
    let near = |number: u128, bytes| {
        let node = spot(number, false, 0).node;
        Some(Near { node, bytes })
    };
    let check = |near, here: Spot, others: &[Spot], expected: Option<u128>| {
        let found = preferred(near, mib(50), &here, others.iter().copied());
        let expected = expected.map(|number| spot(number, false, 0).node);
        assert_eq!(found, expected);
    };
    // Everything is here, or the difference is negligible.
    check(
        near(1, mib(100)),
        spot(1, true, 0),
        &[spot(2, true, 0)],
        None,
    );
    check(
        near(2, mib(1) - 1),
        spot(1, true, 0),
        &[spot(2, true, 0)],
        None,
    );
    check(None, spot(1, false, 0), &[spot(2, false, 0)], None);
    // The files are elsewhere.
    check(
        near(2, mib(100)),
        spot(1, true, 0),
        &[spot(2, true, 3)],
        Some(2),
    );
    check(
        near(2, mib(100)),
        spot(1, true, 0),
        &[spot(2, true, 4)],
        None,
    );
    check(
        near(3, mib(100)),
        spot(1, true, 0),
        &[spot(2, true, 0)],
        None,
    );
    // Files weigh more than an image that is smaller.
    check(
        near(2, mib(100)),
        spot(1, true, 0),
        &[spot(2, false, 0)],
        Some(2),
    );
    check(
        near(2, mib(40)),
        spot(1, true, 0),
        &[spot(2, false, 0)],
        None,
    );
    // Of the nodes with the image, the one with the lowest load is chosen.
    let others = [spot(2, true, 2), spot(3, true, 1), spot(4, false, 0)];
    check(None, spot(1, false, 0), &others, Some(3));
}
