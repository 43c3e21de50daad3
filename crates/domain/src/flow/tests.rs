mod deadlocks;

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};
use uuid::Uuid;

use super::*;
use crate::event::{CloudEvent, Header};
use crate::id::EventId;
use crate::run::fixtures::{NOW, ended, launched, launched_child, node_holder};
use crate::run::{Admitted, Lease, Payload, Returned};

/// A log of what flow control goes by, and what it adds up to.
#[derive(Clone, Default)]
struct Log {
    flow: Flow,
    sequence: u64,
    seconds: i64,
    slots: Slots,
    /// Everything in its order.
    history: Vec<Stored>,
}

/// An event of the log.
#[derive(Clone)]
enum Stored {
    Rule(Recorded<Event>),
    Run(RunId, Recorded<run::Event>),
    Granted(Recorded<Granted>),
}

fn run(number: u128) -> RunId {
    RunId::root_of(Uuid::from_u128(number))
}

fn rule(name: &str) -> Rule {
    Rule {
        name: name.parse().expect("a name"),
        capsules: Vec::new(),
        tenants: Vec::new(),
        key: Vec::new(),
        concurrency_max: None,
        rate: None,
        is_fair: false,
        weights: BTreeMap::new(),
    }
}

fn by(part: &str) -> Vec<KeyPart> {
    vec![part.parse().expect("a part of a key")]
}

impl Log {
    fn with(rules: impl IntoIterator<Item = Rule>) -> Self {
        let mut log = Self {
            slots: BTreeMap::from([(Label::any(), 1_000)]),
            ..Self::default()
        };
        rules.into_iter().for_each(|rule| log.set(rule));
        log
    }

    fn now(&self) -> Timestamp {
        NOW + SignedDuration::from_secs(self.seconds)
    }

    fn recorded<E: Serialize + serde::de::DeserializeOwned>(&mut self, event: E) -> Recorded<E> {
        self.sequence += 1;
        let header = Header {
            id: EventId::new(Uuid::from_u128(self.sequence.into())),
            source: "/test".into(),
            time: self.now(),
        };
        let event = CloudEvent::new(header, "test".into(), None, event);
        let bytes = event.encode().expect("a small event");
        Recorded::decode(self.sequence, &bytes).expect("what was just written")
    }

    fn set(&mut self, rule: Rule) {
        let requested_by = "operator".to_owned();
        let recorded = self.recorded(Event::Set { rule, requested_by });
        self.take(Stored::Rule(recorded));
    }

    /// Asks for `id` with these labels and arguments.
    fn ask(&mut self, id: RunId, team: &str, arguments: Value, priority: i8) {
        let launched = Launched {
            labels: BTreeMap::from([("team".to_owned(), team.to_owned())]),
            payload: Payload::Inline(arguments),
            ..launched()
        };
        self.request(id, launched, priority, vec![]);
    }

    fn request(
        &mut self,
        id: RunId,
        mut launched: Launched,
        priority: i8,
        shared: Vec<Held>,
    ) -> Option<Admission> {
        let Payload::Inline(arguments) = &launched.payload else {
            panic!("a small payload");
        };
        let facts = Facts {
            capsule: launched.work.name(),
            tenant: &launched.tenant,
            requested_by: &launched.requested_by,
            labels: &launched.labels,
            arguments,
        };
        let class = launched.placement.class;
        let admission = Admission::of(self.flow.rules(), &facts, priority, shared, class)?;
        launched.admission = Some(Box::new(admission.clone()));
        if admission.must_wait() {
            let recorded = self.recorded(run::Event::Requested(Box::new(launched)));
            self.take(Stored::Run(id, recorded));
        }
        Some(admission)
    }

    /// Admits whoever may go now, and tells who they are.
    fn admit(&mut self) -> Vec<RunId> {
        let Some(granted) = self.flow.next(&self.slots, self.now()) else {
            return Vec::new();
        };
        let runs = granted.runs().to_vec();
        let recorded = self.recorded(granted);
        self.take(Stored::Granted(recorded));
        runs
    }

    /// Stores what follows for a run.
    fn store(&mut self, id: RunId, event: run::Event) {
        let recorded = self.recorded(event);
        self.take(Stored::Run(id, recorded));
    }

    fn launch(&mut self, id: RunId) {
        let admitted = Admitted {
            placement: launched().placement,
            memory_bytes: 1,
            cpu_millis: None,
        };
        self.store(id, run::Event::Admitted(admitted));
    }

    fn give_back(&mut self, Grant { run, granted }: Grant) {
        self.store(run, run::Event::Returned(Returned { granted }));
    }

    fn end(&mut self, id: RunId) {
        self.store(id, run::Event::Ended(Box::new(ended(1))));
    }

    fn take(&mut self, stored: Stored) {
        apply(&mut self.flow, &stored);
        self.history.push(stored);
    }

    /// As a gateway that begins: rules and the last admission are looked up, then everything comes again.
    fn restart(&mut self) -> Vec<RunId> {
        let granted = self.history.iter().rev().find_map(|stored| match stored {
            Stored::Granted(granted) => Some(granted.clone()),
            _ => None,
        });
        self.flow = self.flow.begin(1, granted.as_ref());
        let mut early = Vec::new();
        for stored in self.history.clone() {
            let next = self.flow.next(&self.slots, self.now());
            let is_behind = self.flow.last().is_some() && self.flow.behind.is_some();
            early.extend(next.filter(|_| is_behind).map(|next| next.runs().to_vec()));
            apply(&mut self.flow, &stored);
        }
        early.concat()
    }

    fn why(&self, id: RunId) -> Why {
        let why = self.flow.why(id, &self.slots, self.now());
        why.expect("a run that waits")
    }
}

fn apply(flow: &mut Flow, stored: &Stored) {
    match stored {
        Stored::Rule(recorded) => flow.apply_rule(recorded.clone()),
        Stored::Run(id, recorded) => flow.apply_run(*id, recorded),
        Stored::Granted(recorded) => flow.apply_granted(recorded),
    }
}

#[test]
fn who_has_not_taken_all_admissions_in_admits_nobody() {
    let one = Rule {
        concurrency_max: Some(1),
        ..rule("one")
    };
    let mut log = Log::with([one]);
    log.ask(run(1), "a", json!({}), 0);
    log.ask(run(2), "a", json!({}), 0);
    assert_eq!(log.admit(), [run(1)]);
    let [
        Stored::Rule(_),
        Stored::Run(..),
        Stored::Run(..),
        Stored::Granted(granted),
    ] = &log.history[..]
    else {
        panic!("one rule, two requests, one admission");
    };
    let mut flow = log.flow.begin(2, Some(granted));
    apply(&mut flow, &log.history[1]);
    assert_eq!(flow.next(&log.slots, NOW), None, "it was admitted already");
    apply(&mut flow, &log.history[3]);
    apply(&mut flow, &log.history[2]);
    assert_eq!(flow.next(&log.slots, NOW), None, "the room is full");
    let flow = log.flow.begin(5, Some(granted));
    assert_eq!(
        flow.last(),
        log.flow.last(),
        "who begins behind it is not behind"
    );
    assert_eq!(flow.behind, None);
}

#[test]
fn a_room_takes_so_many_at_once_and_the_next_when_one_has_ended() {
    let two = Rule {
        concurrency_max: Some(2),
        key: by("argument:/site"),
        ..rule("scrapers")
    };
    let mut log = Log::with([two]);
    for number in 1..=3 {
        log.ask(run(number), "a", json!({"site": "one"}), 0);
    }
    log.ask(run(4), "a", json!({"site": "another"}), 0);
    assert_eq!(log.admit(), [run(1), run(2), run(4)]);
    assert_eq!(log.admit(), []);
    log.end(run(2));
    assert_eq!(log.admit(), [run(3)]);
    for number in [1, 3, 4] {
        log.end(run(number));
    }
    assert!(log.flow.is_idle());
}

#[test]
fn a_run_that_ends_while_it_waits_takes_no_room() {
    let one = Rule {
        concurrency_max: Some(1),
        ..rule("one")
    };
    let mut log = Log::with([one]);
    log.ask(run(1), "a", json!({}), 0);
    log.ask(run(2), "a", json!({}), 0);
    log.end(run(1));
    // As an admission that was decided on before the end was known.
    let late = log.recorded(Granted::Granted {
        runs: vec![run(1)],
        rules: 1,
    });
    log.flow.apply_granted(&late);
    assert_eq!(log.admit(), [run(2)]);
}

#[test]
fn a_callee_goes_with_its_caller_through_the_room_that_it_has() {
    let one = Rule {
        concurrency_max: Some(1),
        ..rule("one")
    };
    let other = Rule {
        concurrency_max: Some(1),
        key: by("argument:/site"),
        ..rule("sites")
    };
    let mut log = Log::with([one, other]);
    let caller = log.request(run(1), launched(), 7, vec![]);
    let caller = caller.expect("it waits").shared_below(run(1));
    assert_eq!(log.admit(), [run(1)]);
    let callee = Launched {
        payload: Payload::Inline(json!({"site": "one"})),
        ..launched_child()
    };
    let child = run(1).child(&Digest::of("call"));
    let admission = log.request(child, callee, 7, caller);
    let admission = admission.expect("it waits for its own room");
    let rooms: Vec<&str> = admission
        .rooms
        .iter()
        .map(|room| room.rule.as_str())
        .collect();
    assert_eq!(rooms, ["sites"]);
    assert_eq!(log.admit(), [child]);
    let shared = admission.shared_below(child);
    let below = log.request(child, launched_child(), 7, shared);
    assert!(below.is_some_and(|below| !below.must_wait() || below.rooms.len() == 1));
}

#[test]
fn fair_shares_are_for_roots_alone() {
    let fair = Rule {
        is_fair: true,
        key: by("label:team"),
        ..rule("teams")
    };
    let mut log = Log::with([fair]);
    assert_eq!(log.request(run(1), launched_child(), 0, vec![]), None);
}

#[test]
fn no_more_begin_within_a_time_than_may() {
    let rated = Rule {
        rate: Some(Rate {
            runs: 2,
            seconds: 10,
        }),
        ..rule("rated")
    };
    let mut log = Log::with([rated]);
    for number in 1..=5 {
        log.ask(run(number), "a", json!({}), 0);
    }
    assert_eq!(log.admit(), [run(1), run(2)]);
    log.end(run(1));
    log.seconds = 9;
    assert_eq!(log.admit(), [], "an end makes no room in a rate");
    let next = log.why(run(3));
    assert_eq!(next.estimate, Some(NOW + SignedDuration::from_secs(10)));
    let last = log.why(run(5));
    assert_eq!(last.place, 3);
    assert_eq!(last.estimate, Some(NOW + SignedDuration::from_secs(20)));
    log.seconds = 10;
    assert_eq!(log.admit(), [run(3), run(4)]);
}

#[test]
fn rooms_that_nobody_needs_any_more_are_forgotten() {
    let rated = Rule {
        rate: Some(Rate {
            runs: 1,
            seconds: 10,
        }),
        key: by("argument:/number"),
        ..rule("rated")
    };
    let mut log = Log::with([rated]);
    for number in 0..=2 * ROOMS_KEPT_MAX as u128 {
        log.ask(run(number), "a", json!({"number": number.to_string()}), 0);
        log.admit();
        log.end(run(number));
        log.seconds += i64::from(number % 2 == 0);
    }
    assert!(
        log.flow.rooms.len() <= ROOMS_KEPT_MAX,
        "{}",
        log.flow.rooms.len()
    );
}

#[test]
fn callees_go_first_and_then_the_highest_priority() {
    let one = Rule {
        concurrency_max: Some(1),
        ..rule("one")
    };
    let mut log = Log::with([one]);
    log.ask(run(1), "a", json!({}), 0);
    log.ask(run(2), "a", json!({}), 5);
    log.ask(run(3), "a", json!({}), 5);
    log.ask(run(4), "a", json!({}), -5);
    let child = run(9).child(&Digest::of("call"));
    log.request(child, launched_child(), -100, vec![]);
    let mut order = Vec::new();
    while let [next] = log.admit()[..] {
        order.push(next);
        log.end(next);
    }
    assert_eq!(order, [child, run(2), run(3), run(1), run(4)]);
}

#[test]
fn whoever_has_less_than_its_share_goes_first() {
    let fair = Rule {
        is_fair: true,
        key: by("label:team"),
        weights: BTreeMap::from([("heavy".to_owned(), 3)]),
        ..rule("teams")
    };
    let mut log = Log::with([fair]);
    log.slots = BTreeMap::from([(Label::any(), 4)]);
    for number in 0..100 {
        log.ask(run(number), "heavy", json!({}), 0);
    }
    for number in 100..110 {
        log.ask(run(number), "light", json!({}), 0);
    }
    let admitted = log.admit();
    let light = admitted.iter().filter(|&&id| id >= run(100)).count();
    assert_eq!(
        (admitted.len(), light),
        (8, 2),
        "twice the slots, a quarter of them"
    );
    log.end(run(0));
    assert_eq!(
        log.admit(),
        [run(6)],
        "whoever has ended makes room for its own"
    );
    log.end(run(100));
    assert_eq!(log.admit(), [run(102)]);
}

#[test]
fn roots_wait_for_slots_and_say_so() {
    let mut log = Log::with([rule("in-order")]);
    log.slots = BTreeMap::from([(Label::any(), 1)]);
    for number in 1..=4 {
        log.ask(run(number), "a", json!({}), 0);
    }
    assert_eq!(log.admit(), [run(1), run(2)]);
    let why = log.why(run(4));
    let label = Label::any();
    assert_eq!(why.block, Some(Block::Slots { label, slots: 1 }));
    assert_eq!(why.place, 2);
    assert_eq!(why.holders, [run(1), run(2)]);
    assert_eq!(why.estimate, None, "nobody has ended yet");
    log.slots.clear();
    assert_eq!(log.why(run(4)).block, Some(Block::NoNode(Label::any())));
}

#[test]
fn an_estimate_goes_by_the_ends_there_were() {
    let one = Rule {
        concurrency_max: Some(1),
        ..rule("one")
    };
    let mut log = Log::with([one]);
    for number in 1..=6 {
        log.ask(run(number), "a", json!({}), 0);
    }
    for number in 1..=3 {
        assert_eq!(log.admit(), [run(number)]);
        log.seconds += 5;
        log.end(run(number));
    }
    assert_eq!(log.admit(), [run(4)]);
    let why = log.why(run(6));
    assert_eq!(why.holders, [run(4)]);
    assert_eq!(why.place, 2);
    assert_eq!(
        why.estimate,
        Some(log.now() + SignedDuration::from_secs(10))
    );
}

#[test]
fn a_rule_that_changes_counts_at_once_and_one_that_is_gone_holds_nobody() {
    let one = |max| Rule {
        concurrency_max: Some(max),
        ..rule("one")
    };
    let mut log = Log::with([one(0)]);
    for number in 1..=4 {
        log.ask(run(number), "a", json!({}), 0);
    }
    assert_eq!(log.admit(), []);
    log.set(one(2));
    assert_eq!(log.admit(), [run(1), run(2)]);
    log.set(one(1));
    log.end(run(1));
    assert_eq!(log.admit(), [], "one is there still");
    let removed = log.recorded(Event::Removed {
        name: "one".parse().expect("a name"),
        requested_by: "operator".into(),
    });
    log.flow.apply_rule(removed);
    assert_eq!(log.admit(), [run(3), run(4)]);
}

#[test]
fn a_launch_that_was_left_out_is_known() {
    let mut log = Log::with([rule("in-order")]);
    log.ask(run(1), "a", json!({}), 0);
    log.ask(run(2), "a", json!({}), 0);
    log.admit();
    let granted = log.sequence;
    log.launch(run(1));
    assert_eq!(log.flow.not_launched(log.now()), []);
    log.seconds = 1;
    let run = run(2);
    assert_eq!(log.flow.not_launched(log.now()), [Grant { run, granted }]);
}

/// A room for one, with a run that is launched and that no node takes.
fn unused(launched: Launched) -> (Log, Grant) {
    let one = Rule {
        concurrency_max: Some(1),
        ..rule("one")
    };
    let mut log = Log::with([one]);
    log.request(run(1), launched, 0, vec![]);
    log.admit();
    let granted = log.sequence;
    log.launch(run(1));
    log.seconds = 1;
    let run = run(1);
    (log, Grant { run, granted })
}

#[test]
fn a_run_that_no_node_takes_lets_callees_go_first() {
    let (mut log, unused) = unused(launched());
    assert_eq!(log.flow.not_taken(log.now()), [], "nobody waits");
    log.request(run(2), launched_child(), 0, vec![]);
    assert_eq!(log.flow.not_taken(log.now()), [unused]);
    log.give_back(unused);
    assert_eq!(log.flow.waiting(), 2);
    assert_eq!(log.admit(), [run(2)]);
    log.launch(run(2));
    log.end(run(2));
    assert_eq!(log.admit(), [run(1)]);
    log.end(run(1));
    assert!(log.flow.is_idle());
}

#[test]
fn who_is_in_no_callees_way_keeps_its_admission() {
    let (mut log, _) = unused(launched());
    log.ask(run(2), "a", json!({}), 0);
    assert_eq!(log.flow.not_taken(log.now()), [], "a root can wait");
    log.request(run(3), launched_child(), 0, vec![]);
    let lease = Lease {
        attempt: 1,
        holder: node_holder(1, 1),
    };
    log.store(run(1), run::Event::Leased(lease));
    assert_eq!(log.flow.not_taken(log.now()), [], "a node has it");
}

#[test]
fn of_callees_only_those_with_devices_give_their_admission_back() {
    let (mut log, _) = unused(launched_child());
    log.request(run(2), launched_child(), 0, vec![]);
    assert_eq!(log.flow.not_taken(log.now()), [], "it waits for a slot");
    let mut with_device = launched_child();
    let gpu = "gpu".parse().expect("a name");
    with_device.placement.requirements.devices.insert(gpu, 1);
    let (mut log, grant) = unused(with_device);
    log.request(run(2), launched_child(), 0, vec![]);
    assert_eq!(log.flow.not_taken(log.now()), [grant]);
}

#[test]
fn long_keys_are_told_by_their_hash() {
    let name = "survey".parse().expect("a name");
    let arguments = json!({"text": "x".repeat(1_000), "number": 7});
    let facts = Facts {
        capsule: &name,
        tenant: &Tenant::default(),
        requested_by: "operator",
        labels: &BTreeMap::new(),
        arguments: &arguments,
    };
    let key = |parts: &[&str]| {
        let key = parts.iter().map(|part| part.parse().expect("a part"));
        let rule = Rule {
            key: key.collect(),
            ..rule("one")
        };
        rule.room(&facts).expect("a room").key
    };
    assert_eq!(
        key(&["tenant", "capsule", "argument:/number", "label:team"]),
        "default,survey,7,"
    );
    assert_eq!(key(&["argument:/text"]).len(), 64);
}

/// A request of `tenant`.
fn of_tenant(tenant: &str) -> Launched {
    Launched {
        tenant: tenant.parse().expect("a name"),
        payload: Payload::Inline(json!({})),
        ..launched()
    }
}

#[test]
fn tenants_share_by_weight_however_many_they_have_waiting() {
    let fair = Rule {
        key: by("tenant"),
        is_fair: true,
        weights: BTreeMap::from([("small".to_owned(), 2)]),
        ..rule("tenants")
    };
    let mut log = Log::with([fair]);
    log.slots = BTreeMap::from([(Label::any(), 3)]);
    for number in 1..=20 {
        log.request(run(number), of_tenant("large"), 0, vec![]);
    }
    for number in 101..=104 {
        log.request(run(number), of_tenant("small"), 0, vec![]);
    }
    // Two for each slot: of each three, two are of the one with twice the weight.
    let admitted = log.admit();
    let of_small = admitted.iter().filter(|&&id| id >= run(101));
    assert_eq!((admitted.len(), of_small.count()), (6, 4));
}

#[test]
fn a_rule_for_one_tenant_leaves_others_alone_and_names_none_of_their_runs() {
    let one = Rule {
        tenants: vec!["acme".parse().expect("a name")],
        concurrency_max: Some(1),
        ..rule("acme")
    };
    let both = Rule {
        concurrency_max: Some(2),
        ..rule("all")
    };
    let mut log = Log::with([one, both]);
    log.request(run(1), of_tenant("acme"), 0, vec![]);
    log.request(run(2), of_tenant("acme"), 0, vec![]);
    log.request(run(3), of_tenant("birds"), 0, vec![]);
    log.request(run(4), of_tenant("birds"), 0, vec![]);
    assert_eq!(log.admit(), [run(1), run(3)]);
    let why = log.why(run(4));
    assert_eq!((why.holders, why.holders_count), (vec![run(3)], 2));
    let why = log.why(run(2));
    assert_eq!((why.holders, why.holders_count), (vec![run(1)], 1));
}

#[derive(Clone, Debug)]
enum Step {
    Ask { team: u8, priority: i8 },
    Admit,
    End(usize),
    Return(usize),
    Limit(u32),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3u8, -1..=1i8).prop_map(|(team, priority)| Step::Ask { team, priority }),
        3 => Just(Step::Admit),
        3 => any::<usize>().prop_map(Step::End),
        1 => any::<usize>().prop_map(Step::Return),
        1 => (0..4u32).prop_map(Step::Limit),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    /// Places in line are those in which they would go.
    #[test]
    fn a_place_in_line_is_the_one_that_comes(
        steps in proptest::collection::vec(step(), 1..60),
        weights in proptest::collection::btree_map("[0-2]", 1..5u32, 0..3),
    ) {
        let fair = Rule {
            is_fair: true,
            weights,
            key: by("label:team"),
            ..rule("teams")
        };
        let mut log = Log::with([fair]);
        let mut asked = 0;
        let mut going = Vec::new();
        for step in steps {
            log.slots = BTreeMap::from([(Label::any(), 2)]);
            match step {
                Step::Ask { team, priority } => {
                    asked += 1;
                    log.ask(run(asked), &team.to_string(), json!({}), priority);
                }
                Step::End(index) if !going.is_empty() => {
                    let gone = going.swap_remove(index % going.len());
                    log.end(gone);
                }
                _ => going.extend(log.admit()),
            }
        }
        log.slots = BTreeMap::from([(Label::any(), 0)]);
        let mut ahead = Ahead::new(&log.flow, &log.slots, NOW);
        let mut place = 0;
        while let Some(next) = ahead.take(|_, _| true) {
            place += 1;
            prop_assert_eq!(log.why(next).place, place, "{}", next);
        }
        prop_assert_eq!(place, log.flow.waiting());
    }

    /// Whatever is asked for, ends and changes, in whatever order: nobody is admitted into a full room, nobody
    /// twice, everybody is admitted in the end, and no room is left over.
    #[test]
    fn no_room_is_given_twice_or_lost(steps in proptest::collection::vec(step(), 1..80)) {
        let limited = |max| Rule {
            concurrency_max: Some(max),
            key: by("label:team"),
            ..rule("teams")
        };
        let mut log = Log::with([limited(2)]);
        let (mut max, mut asked) = (2, 0);
        let (mut going, mut teams) = (BTreeSet::new(), BTreeMap::new());
        for step in steps {
            match step {
                Step::Ask { team, priority } => {
                    asked += 1;
                    teams.insert(run(asked), team);
                    log.ask(run(asked), &team.to_string(), json!({}), priority);
                }
                Step::Admit => {
                    for id in log.admit() {
                        prop_assert!(going.insert(id), "{id} was admitted twice");
                        let same = going.iter().filter(|&other| teams[other] == teams[&id]);
                        prop_assert!(same.count() <= max as usize);
                    }
                }
                Step::End(index) if !going.is_empty() => {
                    let index = index % going.len();
                    let id = *going.iter().nth(index).expect("one of them");
                    going.remove(&id);
                    log.end(id);
                }
                Step::Return(index) if !going.is_empty() => {
                    let id = *going.iter().nth(index % going.len()).expect("one of them");
                    going.remove(&id);
                    log.give_back(Grant { run: id, granted: log.sequence });
                }
                Step::End(_) | Step::Return(_) => (),
                Step::Limit(to) => {
                    max = to;
                    log.set(limited(max));
                }
                Step::Restart => {
                    let (last, waiting) = (log.flow.last(), log.flow.waiting());
                    prop_assert_eq!(log.restart(), []);
                    prop_assert_eq!(log.flow.last(), last);
                    prop_assert_eq!(log.flow.waiting(), waiting);
                }
            }
        }
        log.set(limited(1));
        let mut rounds = 0;
        while !log.flow.is_idle() {
            going.extend(log.admit());
            for id in std::mem::take(&mut going) {
                log.end(id);
            }
            rounds += 1;
            prop_assert!(rounds <= asked + 1, "somebody waits for ever");
        }
    }
}
