//! Why a run waits, in a sentence for people.

use aod_domain::flow::{Block, Rate, Why};
use aod_domain::id::RunId;
use aod_domain::placement::fits;
use aod_domain::run::{Phase, Placement, Refused, Work};
use aod_domain::subject::Class;
use aod_ports::presence::{Member, NodeMember};
use aod_ports::work_queue::Waiting;
use jiff::Timestamp;

use crate::context::Context;
use crate::views::Seen;
use aod_api::runs::RunState;

/// Why `seen` waits, if it does. What cannot be found out is left out.
pub(crate) async fn reason(context: &Context, seen: &Seen) -> Option<String> {
    let launched = &seen.run.launched.event;
    match &seen.run.phase {
        Phase::Ended(_) => None,
        Phase::Leased(_) => held(seen),
        Phase::Requested => Some(admission(context, seen.run.id)),
        Phase::Queued => {
            if let Some(rest) = &seen.run.rests {
                let until = rest.until.strftime("%H:%M:%SZ");
                return Some(format!(
                    "it rests until {until}, after a failure: {}",
                    rest.error.message
                ));
            }
            let members = context.ports.presence.members().await.ok()?;
            let queue = context.ports.queue.waiting().await.unwrap_or_default();
            let nodes: Vec<NodeMember> = members.into_iter().filter_map(into_node).collect();
            let refusals = &seen.run.refusals;
            let has_refused =
                |node: &NodeMember| refusals.iter().any(|refused| refused.node == node.node);
            let refused = refused(refusals, &nodes);
            let (others, all): (Vec<NodeMember>, _) =
                nodes.into_iter().partition(|node| !has_refused(node));
            // Without any other they try again.
            let nodes = if others.is_empty() { all } else { others };
            let reason = queued(&launched.placement, &nodes, &queue);
            Some(refused.map_or(reason.clone(), |refused| format!("{refused}; {reason}")))
        }
    }
}

/// Why `run` is not admitted yet.
pub(crate) fn admission(context: &Context, run: RunId) -> String {
    let now = context.ports.clock.now();
    match context.admitter.why(context, run) {
        Some(why) => sentence(&why, now),
        None => "it is about to be launched".into(),
    }
}

/// What holds a run, its place in line, and when it goes.
fn sentence(why: &Why, now: Timestamp) -> String {
    let Some(block) = &why.block else {
        return "it is about to be admitted".into();
    };
    let held = match block {
        Block::Concurrency { room, max: 0 } => format!("rule {room} lets nobody go"),
        Block::Concurrency { room, max } => {
            let holders = holders(why);
            format!("rule {room} lets {max} go at once: {holders}")
        }
        Block::Rate { room, rate } => {
            let Rate { runs, seconds } = rate;
            format!("rule {room} lets {runs} begin within {seconds} s")
        }
        Block::Slots { label, slots: 0 } => format!("no node with label {label} takes work now"),
        Block::Slots { label, slots } => {
            format!("all {slots} slots of label {label} have work, and their queue is full")
        }
        Block::NoNode(label) => format!("no node with label {label}"),
    };
    let place = match why.place {
        1 => "it is next".to_owned(),
        place => format!("it is number {place} in line"),
    };
    let estimate = why.estimate.map(|at| {
        let seconds = at.duration_since(now).as_secs().max(1);
        format!(", in about {seconds} s")
    });
    format!("{held}; {place}{}", estimate.unwrap_or_default())
}

/// Those of the tenant by their ids, and how many there are besides.
fn holders(why: &Why) -> String {
    let mut names: Vec<String> = why.holders.iter().map(ToString::to_string).collect();
    match why.holders_count.saturating_sub(names.len()) {
        0 => (),
        others if names.is_empty() => names.push(format!("{others} of other tenants")),
        more => names.push(format!("{more} more")),
    }
    names.join(", ")
}

pub(crate) fn into_node(member: Member) -> Option<NodeMember> {
    match member {
        Member::Node(node) => Some(node),
        Member::Gateway(_) => None,
    }
}

fn held(seen: &Seen) -> Option<String> {
    let text = seen.note.as_ref().and_then(|note| note.kind().text.clone());
    match (seen.state(), &seen.run.launched.event.work) {
        (RunState::Running, Work::Build { name, .. }) => {
            Some(format!("the image of {name} is being built"))
        }
        (RunState::Preparing, _) => {
            text.or_else(|| Some("image and files are being brought to the node".into()))
        }
        (RunState::Waiting, _) => {
            let callee = seen.note.as_ref().and_then(|note| note.kind().callee);
            Some(callee.map_or_else(
                || "it waits for a callee".into(),
                |callee| format!("it waits for {callee}"),
            ))
        }
        _ => None,
    }
}

/// Nodes that are named one by one at the most; of more it is said how many there are.
const NODES_NAMED_MAX: usize = 3;

/// Who has given the run back, and why.
fn refused(refusals: &[Refused], nodes: &[NodeMember]) -> Option<String> {
    let last = refusals.last()?;
    let node = nodes.iter().find(|node| node.node == last.node);
    let name = node.map_or_else(|| last.node.to_string(), |node| node.host.clone());
    let others = match refusals.len() {
        1 => String::new(),
        count => format!(" and {} more nodes", count - 1),
    };
    Some(format!("{name}{others} refused it: {}", last.error.message))
}

/// Why no node has taken a launch yet that may start at `placement`.
fn queued(placement: &Placement, nodes: &[NodeMember], queue: &[Waiting]) -> String {
    let Placement {
        label,
        class,
        requirements,
        ..
    } = placement;
    let of_label: Vec<&NodeMember> = nodes
        .iter()
        .filter(|node| node.labels.contains(label))
        .collect();
    if of_label.is_empty() {
        return format!("no node with label {label}");
    }
    let refusals = |node: &NodeMember| {
        let labels = &node.labels;
        fits(label, requirements, labels, &node.place.equipment).err()
    };
    let fitting: Vec<&NodeMember> = of_label
        .iter()
        .copied()
        .filter(|node| refusals(node).is_none())
        .collect();
    if fitting.is_empty() {
        let told = named(&of_label, |node| {
            let refusals = refusals(node).unwrap_or_default();
            let refusals: Vec<String> = refusals.iter().map(ToString::to_string).collect();
            Some(format!("{} has {}", node.host, refusals.join(", ")))
        });
        return format!("no node with label {label} fits: {told}");
    }
    let taking: Vec<&NodeMember> = fitting
        .iter()
        .copied()
        .filter(|node| !node.draining)
        .collect();
    if taking.is_empty() {
        let that_fit = if requirements.is_nothing() {
            format!("with label {label}")
        } else {
            "that fit".to_owned()
        };
        return match fitting[..] {
            [node] => format!("{} is draining", node.host),
            _ => format!("all {} nodes {that_fit} are draining", fitting.len()),
        };
    }
    let ready = match ready_for(*class, &taking) {
        Ok(ready) => ready,
        Err(why) => return why,
    };
    taken_up(placement, &ready).unwrap_or_else(|| {
        let slots: usize = ready.iter().map(|node| node.slots).sum();
        let name = placement.queue();
        let same = queue
            .iter()
            .filter(|waiting| waiting.label == name && waiting.class == *class);
        match same.map(|waiting| waiting.pending).sum::<u64>() {
            0 | 1 => format!("all {slots} slots busy"),
            pending => format!("all {slots} slots busy, {pending} in line"),
        }
    })
}

/// Those of `nodes` that begin runs of `class` now, or why none does.
fn ready_for<'a>(class: Class, nodes: &[&'a NodeMember]) -> Result<Vec<&'a NodeMember>, String> {
    let all_but = |is_out: &dyn Fn(&NodeMember) -> bool, nodes: &[&'a NodeMember]| {
        let nodes = nodes.iter().copied();
        nodes.filter(|node| !is_out(node)).collect::<Vec<_>>()
    };
    let ready = all_but(&|node| node.not_ready.is_some(), nodes);
    if let ([first, ..], []) = (nodes, &ready[..]) {
        let why = first.not_ready.as_deref().unwrap_or_default();
        return Err(format!("{} is not ready: {why}", first.host));
    }
    let refuses = |node: &NodeMember| class == Class::Root && node.no_roots.is_some();
    let taking = all_but(&refuses, &ready);
    if let ([first, ..], []) = (&ready[..], &taking[..]) {
        let why = first.no_roots.as_deref().unwrap_or_default();
        return Err(format!("{} takes no new trees: {why}", first.host));
    }
    Ok(taking)
}

/// What nodes that fit lack beside slots; none if it is slots.
fn taken_up(placement: &Placement, ready: &[&NodeMember]) -> Option<String> {
    let wanted = &placement.requirements.devices;
    let lacks = |node: &NodeMember| {
        wanted
            .iter()
            .find(|(name, wanted)| {
                let free = node.place.devices_free.get(*name).copied();
                free.unwrap_or_default() < usize::from(**wanted)
            })
            .map(|(name, _)| name.clone())
    };
    if ready.iter().all(|node| lacks(node).is_some()) {
        let told = named(ready, |node| {
            let name = lacks(node)?;
            let free = node.place.devices_free.get(&name).copied();
            let (free, wanted) = (free.unwrap_or_default(), wanted.get(&name)?);
            Some(format!("{} has {free} of {wanted} {name} free", node.host))
        });
        return Some(format!("other runs have the devices: {told}"));
    }
    let mut with_slots = ready
        .iter()
        .filter(|node| lacks(node).is_none() && node.running < node.slots)
        .peekable();
    with_slots.peek()?;
    let stopped: Vec<&NodeMember> = with_slots.clone().copied().collect();
    let is_stopped = |node: &&NodeMember| node.place.roots_lack.is_some();
    if placement.class == Class::Root && stopped.iter().all(is_stopped) {
        let told = named(&stopped, |node| {
            Some(format!("{} {}", node.host, node.place.roots_lack?))
        });
        return Some(told);
    }
    Some("a node is about to take it".into())
}

/// What `tell` says of each of the nodes, of the first few of them.
fn named(nodes: &[&NodeMember], tell: impl Fn(&NodeMember) -> Option<String>) -> String {
    let told = nodes.iter().filter_map(|node| tell(node));
    let mut told: Vec<String> = told.take(NODES_NAMED_MAX).collect();
    if nodes.len() > told.len() {
        told.push(format!("{} more do not either", nodes.len() - told.len()));
    }
    told.join("; ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use aod_domain::admission::Lack;
    use aod_domain::error_code::ErrorCode;
    use aod_domain::flow::RuleKey;
    use aod_domain::id::{IncarnationId, NodeId, RunId};
    use aod_domain::placement::{Equipment, Name, Requirements, Size};
    use aod_domain::run::RunError;
    use aod_domain::run::fixtures::NOW;
    use aod_domain::subject::Label;
    use aod_ports::presence::Place;
    use jiff::SignedDuration;
    use uuid::Uuid;

    use super::*;

    fn node(running: usize) -> NodeMember {
        NodeMember {
            node: NodeId::new(Uuid::from_u128(1)),
            incarnation: IncarnationId::new(Uuid::from_u128(2)),
            host: "host-1".into(),
            version: "0".into(),
            labels: vec![Label::any()],
            slots: 2,
            running,
            waiting: 0,
            containers: running,
            draining: false,
            place: Place::default(),
            not_ready: None,
            no_roots: None,
        }
    }

    fn check(nodes: &[NodeMember], pending: u64, expected: &str) {
        let queue = [Waiting {
            label: Label::any(),
            class: Class::Root,
            pending,
            delivered: 0,
        }];
        let placement = Placement::new(Label::any(), Class::Root);
        assert_eq!(queued(&placement, nodes, &queue), expected);
    }

    fn room(rule: &str, key: &str) -> RuleKey {
        RuleKey {
            rule: rule.parse().expect("a name"),
            key: key.into(),
        }
    }

    fn run(number: u128) -> RunId {
        RunId::root_of(Uuid::from_u128(number))
    }

    /// What is said of a run that `block` holds at `place`, while so many are in its way.
    fn check_admission(block: Option<Block>, place: usize, holders: u128, expected: &str) {
        let why = Why {
            block,
            holders: (1..=holders.min(2)).map(run).collect(),
            holders_count: usize::try_from(holders).expect("a few"),
            place,
            estimate: (holders == 2).then(|| NOW + SignedDuration::from_secs(90)),
        };
        let names = [run(1), run(2)].map(|run| run.to_string());
        let expected = expected.replace("ONE", &names[0]).replace("TWO", &names[1]);
        assert_eq!(sentence(&why, NOW), expected);
    }

    #[test]
    fn what_holds_an_admission_is_told_with_the_place_in_line() {
        let concurrency = |key: &str, max| {
            let room = room("scrapers", key);
            Some(Block::Concurrency { room, max })
        };
        check_admission(None, 1, 0, "it is about to be admitted");
        check_admission(
            concurrency("example.com", 1),
            1,
            1,
            "rule scrapers for example.com lets 1 go at once: ONE; it is next",
        );
        check_admission(
            concurrency("", 2),
            7,
            2,
            "rule scrapers lets 2 go at once: ONE, TWO; it is number 7 in line, in about 90 s",
        );
        check_admission(
            concurrency("birds,survey", 30),
            2,
            30,
            "rule scrapers for birds,survey lets 30 go at once: ONE, TWO, 28 more; it is number 2 in line",
        );
        check_admission(
            concurrency("", 0),
            3,
            0,
            "rule scrapers lets nobody go; it is number 3 in line",
        );
        let rate = Rate {
            runs: 100,
            seconds: 60,
        };
        let rated = |key: &str| {
            let room = room("model-api", key);
            Some(Block::Rate { room, rate })
        };
        check_admission(
            rated(""),
            1,
            0,
            "rule model-api lets 100 begin within 60 s; it is next",
        );
        check_admission(
            rated("gpt-5.2"),
            3,
            2,
            "rule model-api for gpt-5.2 lets 100 begin within 60 s; it is number 3 in line, in about 90 s",
        );
        let label = Label::any();
        let none = Block::Slots {
            label: label.clone(),
            slots: 0,
        };
        let expected = "no node with label any takes work now; it is next";
        check_admission(Some(none), 1, 0, expected);
        check_admission(
            Some(Block::Slots { label, slots: 8 }),
            12,
            16,
            "all 8 slots of label any have work, and their queue is full; it is number 12 in line",
        );
        check_admission(
            Some(Block::NoNode("gpu".parse().unwrap())),
            1,
            0,
            "no node with label gpu; it is next",
        );
    }

    /// What is said of a run that requires this.
    fn check_required(required: &Requirements, class: Class, nodes: &[NodeMember], expected: &str) {
        let placement = Placement {
            requirements: required.clone(),
            ..Placement::new(Label::any(), class)
        };
        assert_eq!(queued(&placement, nodes, &[]), expected);
    }

    /// `host-NUMBER`, with attributes, and with so many devices of which so many are free.
    fn equipped(number: u128, attributes: &[&str], gpus: usize, free: usize) -> NodeMember {
        let gpu: Name = "gpu".parse().expect("a name");
        let read = |text: &&str| Equipment::read_attribute(text).expect("an attribute");
        let equipment = Equipment {
            attributes: attributes.iter().map(read).collect(),
            devices: BTreeMap::from([(gpu.clone(), gpus)]),
            cpu_millis: Some(4_000),
            memory_bytes: Some(8 << 30),
        };
        NodeMember {
            host: format!("host-{number}"),
            place: Place {
                equipment,
                devices_free: BTreeMap::from([(gpu, free)]),
                ..Place::default()
            },
            ..node(0)
        }
    }

    #[test]
    fn what_a_run_requires_and_nodes_lack_is_told() {
        let eu = Requirements {
            attributes: ["zone=eu", "ssd"]
                .map(|text| text.parse().expect("one"))
                .into(),
            ..Requirements::default()
        };
        let check = |nodes: &[NodeMember], expected: &str| {
            check_required(&eu, Class::Root, nodes, expected);
        };
        let us = equipped(1, &["zone=us"], 0, 0);
        check(&[], "no node with label any");
        check(
            std::slice::from_ref(&us),
            "no node with label any fits: host-1 has no ssd, zone=us not zone=eu",
        );
        let many = [us.clone(), us.clone(), us.clone(), us.clone(), us.clone()];
        let each = "host-1 has no ssd, zone=us not zone=eu";
        let all =
            format!("no node with label any fits: {each}; {each}; {each}; 2 more do not either");
        check(&many, &all);
        let fits = equipped(2, &["zone=eu", "ssd"], 0, 0);
        check(&[us.clone(), fits.clone()], "a node is about to take it");
        let draining = NodeMember {
            draining: true,
            ..fits.clone()
        };
        check(&[us.clone(), draining.clone()], "host-2 is draining");
        check(
            &[us.clone(), draining.clone(), draining],
            "all 2 nodes that fit are draining",
        );
        let busy = NodeMember { running: 2, ..fits };
        check(&[us, busy], "all 2 slots busy");
        let large = Requirements {
            size: Some(Size {
                cpu_millis: 8_000,
                memory_bytes: 64 << 30,
            }),
            ..Requirements::default()
        };
        let small = [equipped(1, &[], 0, 0)];
        let why =
            "no node with label any fits: host-1 has 4 of 8 processors, 8 GiB of 64 GiB memory";
        check_required(&large, Class::Root, &small, why);
    }

    #[test]
    fn devices_that_others_have_and_what_stops_roots_is_told() {
        let two = Requirements {
            devices: BTreeMap::from([("gpu".parse().expect("a name"), 2)]),
            ..Requirements::default()
        };
        let nodes = [equipped(1, &[], 2, 1), equipped(2, &[], 4, 0)];
        let why =
            "other runs have the devices: host-1 has 1 of 2 gpu free; host-2 has 0 of 2 gpu free";
        check_required(&two, Class::Child, &nodes, why);
        let nodes = [equipped(1, &[], 2, 1), equipped(2, &[], 4, 2)];
        check_required(&two, Class::Child, &nodes, "a node is about to take it");
        let stopped = |lack| {
            let mut node = equipped(1, &[], 0, 0);
            node.place.roots_lack = Some(lack);
            [node]
        };
        let nothing = Requirements::default();
        for (lack, why) in [
            (Lack::Memory, "host-1 has promised all its memory"),
            (Lack::Processors, "host-1 has promised all its processors"),
            (
                Lack::Containers,
                "host-1 has as many containers as it may have",
            ),
        ] {
            check_required(&nothing, Class::Root, &stopped(lack), why);
            let taken = "a node is about to take it";
            check_required(&nothing, Class::Child, &stopped(lack), taken);
        }
    }

    #[test]
    fn who_has_refused_is_named_with_the_last_reason() {
        let refusal = |number: u128| Refused {
            attempt: 1,
            node: NodeId::new(Uuid::from_u128(number)),
            error: RunError::new(ErrorCode::NodeUnfit, "/dev/a is no device"),
        };
        let nodes = [node(0)];
        assert_eq!(refused(&[], &nodes), None);
        let told = refused(&[refusal(1)], &nodes).expect("it was refused");
        assert_eq!(told, "host-1 refused it: /dev/a is no device");
        let told = refused(&[refusal(2), refusal(1)], &nodes).expect("it was refused");
        assert_eq!(
            told,
            "host-1 and 1 more nodes refused it: /dev/a is no device"
        );
    }

    #[test]
    fn runs_of_other_tenants_are_counted_and_not_named() {
        let of_others = Why {
            block: Some(Block::Concurrency {
                room: room("scrapers", ""),
                max: 2,
            }),
            holders: Vec::new(),
            holders_count: 2,
            place: 1,
            estimate: None,
        };
        let expected = "rule scrapers lets 2 go at once: 2 of other tenants; it is next";
        assert_eq!(sentence(&of_others, NOW), expected);
    }

    #[test]
    fn the_nearest_reason_is_told() {
        check(&[], 1, "no node with label any");
        check(
            &[NodeMember {
                labels: vec!["gpu".parse().unwrap()],
                ..node(0)
            }],
            1,
            "no node with label any",
        );
        let draining = NodeMember {
            draining: true,
            ..node(0)
        };
        let both = [draining.clone(), draining.clone()];
        check(&both, 1, "all 2 nodes with label any are draining");
        check(&[draining], 1, "host-1 is draining");
        let broken = NodeMember {
            not_ready: Some("the disk is full".into()),
            ..node(0)
        };
        check(
            std::slice::from_ref(&broken),
            1,
            "host-1 is not ready: the disk is full",
        );
        let full = NodeMember {
            no_roots: Some("disk_full: it is".into()),
            ..node(0)
        };
        check(
            std::slice::from_ref(&full),
            1,
            "host-1 takes no new trees: disk_full: it is",
        );
        check(&[full, node(2)], 1, "all 2 slots busy");
        check(
            &[broken, node(2), node(2)],
            3,
            "all 4 slots busy, 3 in line",
        );
        check(&[node(2), node(2)], 1, "all 4 slots busy");
        check(&[node(2), node(1)], 1, "a node is about to take it");
    }
}
