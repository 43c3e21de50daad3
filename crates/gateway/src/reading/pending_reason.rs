//! The reason why a run waits, as text.

use aod_domain::flow::{Block, Rate, Why};
use aod_domain::id::RunId;
use aod_domain::placement::fits;
use aod_domain::run::{Note, Phase, Placement, Refused, Work};
use aod_domain::subject::Class;
use aod_ports::presence::{Member, NodeMember};
use aod_ports::work_queue::Waiting;
use jiff::Timestamp;

use crate::context::Context;
use crate::reading::views::Seen;

/// The reason why `seen` waits, if it waits and the reason is known.
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
                    "the next attempt starts at {until}, after a failure: {}",
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
            // If all nodes have refused it, the run waits for one of them.
            let nodes = if others.is_empty() { all } else { others };
            let reason = queued(&launched.placement, &nodes, &queue);
            Some(refused.map_or(reason.clone(), |refused| format!("{refused}; {reason}")))
        }
    }
}

/// The reason why `run` waits for admission.
pub(crate) fn admission(context: &Context, run: RunId) -> String {
    let now = context.ports.clock.now();
    match context.admitter.why(context, run) {
        Some(why) => sentence(&why, now),
        None => "a gateway is about to launch the run".into(),
    }
}

/// The block of a run, its place in line, and an estimate.
fn sentence(why: &Why, now: Timestamp) -> String {
    let Some(block) = &why.block else {
        return "a gateway is about to admit the run".into();
    };
    let held = match block {
        Block::Concurrency { bucket, max: 0 } => format!("rule {bucket} allows no runs"),
        Block::Concurrency { bucket, max } => {
            let holders = holders(why);
            let runs = if *max == 1 { "run" } else { "runs" };
            format!("rule {bucket} allows {max} concurrent {runs}: {holders}")
        }
        Block::Rate { bucket, rate } => {
            let Rate { runs, seconds } = rate;
            let starts = if *runs == 1 { "start" } else { "starts" };
            format!("rule {bucket} allows {runs} {starts} within {seconds} s")
        }
        Block::Slots { pool, slots: 0 } => format!("no node in pool {pool} takes work now"),
        Block::Slots { pool, slots } => {
            format!("all {slots} slots of pool {pool} are busy, and the queue of the pool is full")
        }
        Block::NoNode(pool) => format!("no node in pool {pool}"),
    };
    let place = match why.place {
        1 => "next in line".to_owned(),
        place => format!("number {place} in line"),
    };
    let estimate = why.estimate.map(|at| {
        let seconds = at.duration_since(now).as_secs().max(1);
        format!(", in about {seconds} s")
    });
    format!("{held}; {place}{}", estimate.unwrap_or_default())
}

/// The runs of the tenant by their ids, and the number of other runs.
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
    match (seen.current_note()?, &seen.run.launched.event.work) {
        (Note::CapsuleStarted(_) | Note::WaitEnded(_), Work::Build { name, .. }) => {
            Some(format!("the build of the image of {name}"))
        }
        (Note::PreparationStarted(kind), _) => {
            let text = kind.text.clone();
            text.or_else(|| Some("image and files, which the node fetches".into()))
        }
        (Note::WaitStarted(kind), _) => Some(kind.callee.map_or_else(
            || "a callee".into(),
            |callee| format!("its callee {callee}"),
        )),
        _ => None,
    }
}

/// Maximum number of nodes in a reason; it contains only the number of the remaining nodes.
const NODES_NAMED_MAX: usize = 3;

/// The nodes that refused the run, with the last reason.
fn refused(refusals: &[Refused], nodes: &[NodeMember]) -> Option<String> {
    let last = refusals.last()?;
    let node = nodes.iter().find(|node| node.node == last.node);
    let name = node.map_or_else(|| last.node.to_string(), |node| node.host.clone());
    let others = match refusals.len() {
        1 => String::new(),
        count => format!(" and {} more nodes", count - 1),
    };
    Some(format!(
        "{name}{others} refused the run: {}",
        last.error.message
    ))
}

/// The reason why no node has taken a launch with `placement` yet.
fn queued(placement: &Placement, nodes: &[NodeMember], queue: &[Waiting]) -> String {
    let Placement {
        pool,
        class,
        requirements,
        ..
    } = placement;
    let of_pool: Vec<&NodeMember> = nodes
        .iter()
        .filter(|node| node.pools.contains(pool))
        .collect();
    if of_pool.is_empty() {
        return format!("no node in pool {pool}");
    }
    let refusals = |node: &NodeMember| {
        let pools = &node.pools;
        fits(pool, requirements, pools, &node.place.equipment).err()
    };
    let fitting: Vec<&NodeMember> = of_pool
        .iter()
        .copied()
        .filter(|node| refusals(node).is_none())
        .collect();
    if fitting.is_empty() {
        let reasons = named(&of_pool, |node| {
            let refusals = refusals(node).unwrap_or_default();
            let refusals: Vec<String> = refusals.iter().map(ToString::to_string).collect();
            Some(format!("{} has {}", node.host, refusals.join(", ")))
        });
        return format!("no node in pool {pool} meets the requirements: {reasons}");
    }
    let taking: Vec<&NodeMember> = fitting
        .iter()
        .copied()
        .filter(|node| !node.draining)
        .collect();
    if taking.is_empty() {
        let all = if requirements.is_nothing() {
            format!("all {} nodes in pool {pool}", fitting.len())
        } else {
            format!("all {} suitable nodes", fitting.len())
        };
        return match fitting[..] {
            [node] => format!("{} is draining", node.host),
            _ => format!("{all} are draining"),
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
            .filter(|waiting| waiting.pool == name && waiting.class == *class);
        match same.map(|waiting| waiting.pending).sum::<u64>() {
            0 | 1 => format!("all {slots} slots busy"),
            pending => format!("all {slots} slots busy, {pending} in line"),
        }
    })
}

/// The nodes that start runs of `class` now, or the reason why none does.
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

/// What suitable nodes lack other than slots; none if they lack slots.
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
        let reasons = named(ready, |node| {
            let name = lacks(node)?;
            let free = node.place.devices_free.get(&name).copied();
            let (free, wanted) = (free.unwrap_or_default(), wanted.get(&name)?);
            Some(format!("{} has {free} of {wanted} {name} free", node.host))
        });
        return Some(format!("other runs use the devices: {reasons}"));
    }
    let mut with_slots = ready
        .iter()
        .filter(|node| lacks(node).is_none() && node.running < node.slots)
        .peekable();
    with_slots.peek()?;
    let stopped: Vec<&NodeMember> = with_slots.clone().copied().collect();
    let is_stopped = |node: &&NodeMember| node.place.roots_lack.is_some();
    if placement.class == Class::Root && stopped.iter().all(is_stopped) {
        return Some(named(&stopped, |node| {
            Some(format!("{} {}", node.host, node.place.roots_lack?))
        }));
    }
    Some("a node is about to take the run".into())
}

/// `reason` of the first few nodes, and the number of the remaining ones.
fn named(nodes: &[&NodeMember], reason: impl Fn(&NodeMember) -> Option<String>) -> String {
    let reasons = nodes.iter().filter_map(|node| reason(node));
    let mut reasons: Vec<String> = reasons.take(NODES_NAMED_MAX).collect();
    if nodes.len() > reasons.len() {
        reasons.push(format!("and {} more", nodes.len() - reasons.len()));
    }
    reasons.join("; ")
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
    use aod_domain::subject::Pool;
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
            pools: vec![Pool::any()],
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
            pool: Pool::any(),
            class: Class::Root,
            pending,
            delivered: 0,
        }];
        let placement = Placement::new(Pool::any(), Class::Root);
        assert_eq!(queued(&placement, nodes, &queue), expected);
    }

    fn bucket(rule: &str, key: &str) -> RuleKey {
        RuleKey {
            rule: rule.parse().expect("a name"),
            key: key.into(),
        }
    }

    fn run(number: u128) -> RunId {
        RunId::root_of(Uuid::from_u128(number))
    }

    /// Checks the reason of a run that `block` holds at `place`, with this number of holders.
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
    fn admission_wait_reports_block_place_in_line_and_estimate() {
        let concurrency = |key: &str, max| {
            let bucket = bucket("scrapers", key);
            Some(Block::Concurrency { bucket, max })
        };
        check_admission(None, 1, 0, "a gateway is about to admit the run");
        check_admission(
            concurrency("example.com", 1),
            1,
            1,
            "rule scrapers for example.com allows 1 concurrent run: ONE; next in line",
        );
        check_admission(
            concurrency("", 2),
            7,
            2,
            "rule scrapers allows 2 concurrent runs: ONE, TWO; number 7 in line, in about 90 s",
        );
        check_admission(
            concurrency("birds,survey", 30),
            2,
            30,
            "rule scrapers for birds,survey allows 30 concurrent runs: ONE, TWO, 28 more; number 2 in line",
        );
        check_admission(
            concurrency("", 0),
            3,
            0,
            "rule scrapers allows no runs; number 3 in line",
        );
        let rate = Rate {
            runs: 100,
            seconds: 60,
        };
        let rated = |key: &str| {
            let bucket = bucket("model-api", key);
            Some(Block::Rate { bucket, rate })
        };
        check_admission(
            rated(""),
            1,
            0,
            "rule model-api allows 100 starts within 60 s; next in line",
        );
        check_admission(
            rated("gpt-5.2"),
            3,
            2,
            "rule model-api for gpt-5.2 allows 100 starts within 60 s; number 3 in line, in about 90 s",
        );
        let pool = Pool::any();
        let none = Block::Slots {
            pool: pool.clone(),
            slots: 0,
        };
        let expected = "no node in pool any takes work now; next in line";
        check_admission(Some(none), 1, 0, expected);
        check_admission(
            Some(Block::Slots { pool, slots: 8 }),
            12,
            16,
            "all 8 slots of pool any are busy, and the queue of the pool is full; number 12 in line",
        );
        check_admission(
            Some(Block::NoNode("gpu".parse().unwrap())),
            1,
            0,
            "no node in pool gpu; next in line",
        );
    }

    /// Checks the reason of a run with these requirements.
    fn check_required(required: &Requirements, class: Class, nodes: &[NodeMember], expected: &str) {
        let placement = Placement {
            requirements: required.clone(),
            ..Placement::new(Pool::any(), class)
        };
        assert_eq!(queued(&placement, nodes, &[]), expected);
    }

    /// `host-NUMBER`, with attributes, and with `gpus` devices, `free` of them free.
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
    fn unfit_nodes_report_missing_requirements() {
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
        check(&[], "no node in pool any");
        check(
            std::slice::from_ref(&us),
            "no node in pool any meets the requirements: host-1 has no ssd, zone=us not zone=eu",
        );
        let many = [us.clone(), us.clone(), us.clone(), us.clone(), us.clone()];
        let each = "host-1 has no ssd, zone=us not zone=eu";
        let all = format!(
            "no node in pool any meets the requirements: {each}; {each}; {each}; and 2 more"
        );
        check(&many, &all);
        let fits = equipped(2, &["zone=eu", "ssd"], 0, 0);
        check(
            &[us.clone(), fits.clone()],
            "a node is about to take the run",
        );
        let draining = NodeMember {
            draining: true,
            ..fits.clone()
        };
        check(&[us.clone(), draining.clone()], "host-2 is draining");
        check(
            &[us.clone(), draining.clone(), draining],
            "all 2 suitable nodes are draining",
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
        let why = "no node in pool any meets the requirements: host-1 has 4 of 8 processors, 8 GiB of 64 GiB memory";
        check_required(&large, Class::Root, &small, why);
    }

    #[test]
    fn taken_devices_and_full_nodes_are_reported() {
        let two = Requirements {
            devices: BTreeMap::from([("gpu".parse().expect("a name"), 2)]),
            ..Requirements::default()
        };
        let nodes = [equipped(1, &[], 2, 1), equipped(2, &[], 4, 0)];
        let why =
            "other runs use the devices: host-1 has 1 of 2 gpu free; host-2 has 0 of 2 gpu free";
        check_required(&two, Class::Child, &nodes, why);
        let nodes = [equipped(1, &[], 2, 1), equipped(2, &[], 4, 2)];
        check_required(
            &two,
            Class::Child,
            &nodes,
            "a node is about to take the run",
        );
        let stopped = |lack| {
            let mut node = equipped(1, &[], 0, 0);
            node.place.roots_lack = Some(lack);
            [node]
        };
        let nothing = Requirements::default();
        for (lack, why) in [
            (Lack::Memory, "host-1 has reserved all its memory"),
            (Lack::Processors, "host-1 has reserved all its processors"),
            (
                Lack::Containers,
                "host-1 has reached its maximum number of containers",
            ),
        ] {
            check_required(&nothing, Class::Root, &stopped(lack), why);
            let taken = "a node is about to take the run";
            check_required(&nothing, Class::Child, &stopped(lack), taken);
        }
    }

    #[test]
    fn refusal_names_last_node_and_its_reason() {
        let refusal = |number: u128| Refused {
            attempt: 1,
            node: NodeId::new(Uuid::from_u128(number)),
            error: RunError::new(ErrorCode::NodeUnfit, "/dev/a is not a device"),
        };
        let nodes = [node(0)];
        assert_eq!(refused(&[], &nodes), None);
        let text = refused(&[refusal(1)], &nodes).expect("one refusal");
        assert_eq!(text, "host-1 refused the run: /dev/a is not a device");
        let text = refused(&[refusal(2), refusal(1)], &nodes).expect("two refusals");
        assert_eq!(
            text,
            "host-1 and 1 more nodes refused the run: /dev/a is not a device"
        );
    }

    #[test]
    fn runs_of_other_tenants_are_counted_and_not_named() {
        let why = Why {
            block: Some(Block::Concurrency {
                bucket: bucket("scrapers", ""),
                max: 2,
            }),
            holders: Vec::new(),
            holders_count: 2,
            place: 1,
            estimate: None,
        };
        let expected = "rule scrapers allows 2 concurrent runs: 2 of other tenants; next in line";
        assert_eq!(sentence(&why, NOW), expected);
    }

    #[test]
    fn nearest_reason_is_reported() {
        check(&[], 1, "no node in pool any");
        check(
            &[NodeMember {
                pools: vec!["gpu".parse().unwrap()],
                ..node(0)
            }],
            1,
            "no node in pool any",
        );
        let draining = NodeMember {
            draining: true,
            ..node(0)
        };
        let both = [draining.clone(), draining.clone()];
        check(&both, 1, "all 2 nodes in pool any are draining");
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
        check(&[node(2), node(1)], 1, "a node is about to take the run");
    }
}
