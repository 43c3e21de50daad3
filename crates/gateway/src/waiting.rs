//! Why a run waits, in a sentence for people.

use aod_domain::flow::{Block, Rate, Why};
use aod_domain::id::RunId;
use aod_domain::run::{Phase, Work};
use aod_domain::subject::{Class, Label};
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
            Some(queued(
                &launched.placement.label,
                launched.placement.class,
                &nodes,
                &queue,
            ))
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

/// Why no node has taken a launch of `class` for `label` yet.
fn queued(label: &Label, class: Class, nodes: &[NodeMember], queue: &[Waiting]) -> String {
    let fitting: Vec<&NodeMember> = nodes
        .iter()
        .filter(|node| node.labels.contains(label))
        .collect();
    if fitting.is_empty() {
        return format!("no node with label {label}");
    }
    let taking: Vec<&&NodeMember> = fitting.iter().filter(|node| !node.draining).collect();
    if taking.is_empty() {
        return match fitting[..] {
            [node] => format!("{} is draining", node.host),
            _ => format!(
                "all {} nodes with label {label} are draining",
                fitting.len()
            ),
        };
    }
    let ready: Vec<&&&NodeMember> = taking
        .iter()
        .filter(|node| node.not_ready.is_none())
        .collect();
    if ready.is_empty() {
        let node = taking[0];
        return format!(
            "{} is not ready: {}",
            node.host,
            node.not_ready.as_deref().unwrap_or_default()
        );
    }
    let slots: usize = ready.iter().map(|node| node.slots).sum();
    if ready.iter().any(|node| node.running < node.slots) {
        return "a node is about to take it".into();
    }
    let same = queue
        .iter()
        .filter(|waiting| waiting.label == *label && waiting.class == class);
    match same.map(|waiting| waiting.pending).sum::<u64>() {
        0 | 1 => format!("all {slots} slots busy"),
        pending => format!("all {slots} slots busy, {pending} in line"),
    }
}

#[cfg(test)]
mod tests {
    use aod_domain::flow::RuleKey;
    use aod_domain::id::{IncarnationId, NodeId, RunId};
    use aod_domain::run::fixtures::NOW;
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
            not_ready: None,
        }
    }

    fn check(nodes: &[NodeMember], pending: u64, expected: &str) {
        let queue = [Waiting {
            label: Label::any(),
            class: Class::Root,
            pending,
            delivered: 0,
        }];
        assert_eq!(queued(&Label::any(), Class::Root, nodes, &queue), expected);
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
        check(
            &[broken, node(2), node(2)],
            3,
            "all 4 slots busy, 3 in line",
        );
        check(&[node(2), node(2)], 1, "all 4 slots busy");
        check(&[node(2), node(1)], 1, "a node is about to take it");
    }
}
