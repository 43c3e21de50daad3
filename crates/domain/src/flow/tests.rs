mod deadlocks;

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};
use uuid::Uuid;

use super::*;
use crate::chain::Chain as _;
use crate::error_code::ErrorCode;
use crate::event::{CloudEvent, Header};
use crate::id::EventId;
use crate::run::fixtures::{NOW, ended, launched, launched_child, node_holder};
use crate::run::{Admitted, AttemptLost, Lease, Payload, Returned, RunError};

/// A log of flow control, and the state after it.
#[derive(Clone, Default)]
struct Log {
    flow: Flow,
    sequence: u64,
    seconds: i64,
    slots: Slots,
    /// All events in their order.
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
            slots: BTreeMap::from([(Pool::any(), 1_000)]),
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

    /// Requests `id` with these labels and arguments.
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
        let admission = Admission::of(self.flow.rules().iter(), &facts, priority, shared, class)?;
        launched.admission = Some(Box::new(admission.clone()));
        if admission.must_wait() {
            let recorded = self.recorded(run::Event::Requested(Box::new(launched)));
            self.take(Stored::Run(id, recorded));
        }
        Some(admission)
    }

    /// Admits all runs that may be admitted now, and returns them.
    fn admit(&mut self) -> Vec<RunId> {
        let Some(granted) = self.flow.next(&self.slots, self.now()) else {
            return Vec::new();
        };
        let runs = granted.runs().to_vec();
        let recorded = self.recorded(granted);
        self.take(Stored::Granted(recorded));
        runs
    }

    /// Stores the next event of a run.
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
        self.store(run, run::Event::AdmissionReturned(Returned { granted }));
    }

    fn end(&mut self, id: RunId) {
        self.store(id, run::Event::Ended(Box::new(ended(1))));
    }

    fn take(&mut self, stored: Stored) {
        apply(&mut self.flow, &stored);
        self.history.push(stored);
    }

    /// Restarts the gateway: loads rules and the last admission, then applies all events again.
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
        Stored::Rule(recorded) => {
            let Ok(()) = flow.rules_mut().apply(recorded.clone());
        }
        Stored::Run(id, recorded) => flow.apply_run(*id, recorded),
        Stored::Granted(recorded) => flow.apply_granted(recorded),
    }
}

#[test]
fn gateway_that_lacks_an_admission_admits_no_run() {
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
    assert_eq!(flow.next(&log.slots, NOW), None, "the bucket is full");
    let flow = log.flow.begin(5, Some(granted));
    assert_eq!(
        flow.last(),
        log.flow.last(),
        "who begins behind it is not behind"
    );
    assert_eq!(flow.behind, None);
}

#[test]
fn full_bucket_admits_the_next_run_after_an_end() {
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
fn a_run_that_ends_while_it_waits_takes_no_bucket() {
    let one = Rule {
        concurrency_max: Some(1),
        ..rule("one")
    };
    let mut log = Log::with([one]);
    log.ask(run(1), "a", json!({}), 0);
    log.ask(run(2), "a", json!({}), 0);
    log.end(run(1));
    // Like an admission that was decided before the end was known.
    let late = log.recorded(Granted::Granted {
        runs: vec![run(1)],
        rules: 1,
    });
    log.flow.apply_granted(&late);
    assert_eq!(log.admit(), [run(2)]);
}

#[test]
fn callee_shares_the_bucket_of_its_caller() {
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
    let admission = admission.expect("it waits for its own bucket");
    let buckets: Vec<&str> = admission
        .buckets
        .iter()
        .map(|bucket| bucket.rule.as_str())
        .collect();
    assert_eq!(buckets, ["sites"]);
    assert_eq!(log.admit(), [child]);
    let shared = admission.shared_below(child);
    let below = log.request(child, launched_child(), 7, shared);
    assert!(below.is_some_and(|below| !below.must_wait() || below.buckets.len() == 1));
}

#[test]
fn fair_shares_apply_to_roots_only() {
    let fair = Rule {
        is_fair: true,
        key: by("label:team"),
        ..rule("teams")
    };
    let mut log = Log::with([fair]);
    assert_eq!(log.request(run(1), launched_child(), 0, vec![]), None);
}

#[test]
fn rate_limits_starts_within_its_period() {
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
    assert_eq!(log.admit(), [], "an end frees nothing of a rate");
    let next = log.why(run(3));
    assert_eq!(next.estimate, Some(NOW + SignedDuration::from_secs(10)));
    let last = log.why(run(5));
    assert_eq!(last.place, 3);
    assert_eq!(last.estimate, Some(NOW + SignedDuration::from_secs(20)));
    log.seconds = 10;
    assert_eq!(log.admit(), [run(3), run(4)]);
}

#[test]
fn unused_buckets_are_dropped() {
    let rated = Rule {
        rate: Some(Rate {
            runs: 1,
            seconds: 10,
        }),
        key: by("argument:/number"),
        ..rule("rated")
    };
    let mut log = Log::with([rated]);
    for number in 0..=2 * BUCKETS_KEPT_MAX as u128 {
        log.ask(run(number), "a", json!({"number": number.to_string()}), 0);
        log.admit();
        log.end(run(number));
        log.seconds += i64::from(number % 2 == 0);
    }
    assert!(
        log.flow.buckets.len() <= BUCKETS_KEPT_MAX,
        "{}",
        log.flow.buckets.len()
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
fn key_below_its_share_goes_first() {
    let fair = Rule {
        is_fair: true,
        key: by("label:team"),
        weights: BTreeMap::from([("heavy".to_owned(), 3)]),
        ..rule("teams")
    };
    let mut log = Log::with([fair]);
    log.slots = BTreeMap::from([(Pool::any(), 4)]);
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
        "an ended run frees its bucket for runs of the same key"
    );
    log.end(run(100));
    assert_eq!(log.admit(), [run(102)]);
}

#[test]
fn roots_without_slots_wait_and_report_it() {
    let mut log = Log::with([rule("in-order")]);
    log.slots = BTreeMap::from([(Pool::any(), 1)]);
    for number in 1..=4 {
        log.ask(run(number), "a", json!({}), 0);
    }
    assert_eq!(log.admit(), [run(1), run(2)]);
    let why = log.why(run(4));
    let pool = Pool::any();
    assert_eq!(why.block, Some(Block::Slots { pool, slots: 1 }));
    assert_eq!(why.place, 2);
    assert_eq!(why.holders, [run(1), run(2)]);
    assert_eq!(why.estimate, None, "no run has ended yet");
    log.slots.clear();
    assert_eq!(log.why(run(4)).block, Some(Block::NoNode(Pool::any())));
}

#[test]
fn estimate_follows_recent_ends() {
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
fn changed_rule_applies_immediately_and_removed_rule_blocks_no_run() {
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
    let Ok(()) = log.flow.rules_mut().apply(removed);
    assert_eq!(log.admit(), [run(3), run(4)]);
}

#[test]
fn admission_without_launch_is_found() {
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

/// A bucket for one run, with a launched run that no node takes.
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
fn untaken_run_lets_callees_go_first() {
    let (mut log, unused) = unused(launched());
    assert_eq!(log.flow.not_taken(log.now()), [], "no run waits");
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
fn untaken_run_without_waiting_callees_keeps_its_admission() {
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

/// Stores the lease and the loss of the first attempt of `run`.
fn lose_attempt(log: &mut Log, run: RunId) {
    let holder = node_holder(1, 1);
    log.store(run, run::Event::Leased(Lease { attempt: 1, holder }));
    let lost = AttemptLost {
        attempt: 1,
        error: RunError::new(ErrorCode::RuntimeFailed, "lost"),
    };
    log.store(run, run::Event::AttemptLost(lost));
}

#[test]
fn run_between_two_attempts_lets_callees_go_first() {
    let (mut log, unused) = unused(launched());
    log.request(run(2), launched_child(), 0, vec![]);
    lose_attempt(&mut log, run(1));
    assert_eq!(log.flow.not_taken(log.now()), [], "it has just been queued");
    log.seconds += 1;
    assert_eq!(log.flow.not_taken(log.now()), [unused]);
    log.give_back(unused);
    assert_eq!(log.admit(), [run(2)]);
}

#[test]
fn only_callees_with_devices_return_their_admission() {
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
fn long_keys_are_replaced_by_their_hash() {
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
        rule.bucket(&facts).expect("a bucket").key
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
fn tenants_share_by_weight_regardless_of_waiting_runs() {
    let fair = Rule {
        key: by("tenant"),
        is_fair: true,
        weights: BTreeMap::from([("small".to_owned(), 2)]),
        ..rule("tenants")
    };
    let mut log = Log::with([fair]);
    log.slots = BTreeMap::from([(Pool::any(), 3)]);
    for number in 1..=20 {
        log.request(run(number), of_tenant("large"), 0, vec![]);
    }
    for number in 101..=104 {
        log.request(run(number), of_tenant("small"), 0, vec![]);
    }
    // Two roots for each slot: of each three, two belong to the tenant with twice the weight.
    let admitted = log.admit();
    let of_small = admitted.iter().filter(|&&id| id >= run(101));
    assert_eq!((admitted.len(), of_small.count()), (6, 4));
}

#[test]
fn rule_for_one_tenant_ignores_other_tenants_and_hides_their_runs() {
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
    /// Places in line match the order of admission.
    #[test]
    fn place_in_line_matches_the_order_of_admission(
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
            log.slots = BTreeMap::from([(Pool::any(), 2)]);
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
        log.slots = BTreeMap::from([(Pool::any(), 0)]);
        let mut ahead = Ahead::new(&log.flow, &log.slots, NOW);
        let mut place = 0;
        while let Some(next) = ahead.take(|_, _| true) {
            place += 1;
            prop_assert_eq!(log.why(next).place, place, "{}", next);
        }
        prop_assert_eq!(place, log.flow.waiting());
    }

    /// For any order of requests, ends and changes: no run is admitted into a full bucket or twice, all runs are
    /// admitted in the end, and all buckets are empty.
    #[test]
    fn no_place_in_a_bucket_is_granted_twice_or_lost(steps in proptest::collection::vec(step(), 1..80)) {
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
            prop_assert!(rounds <= asked + 1, "a run waits for ever");
        }
    }
}

#[test]
fn rules_are_bounded_and_only_existing_rules_are_removed() {
    let set = |number: usize| Event::Set {
        rule: rule(&format!("rule-{number}")),
        requested_by: "operator".into(),
    };
    let removed = |number: usize| Event::Removed {
        name: rule(&format!("rule-{number}")).name,
        requested_by: "operator".into(),
    };
    let mut log = Log::default();
    for number in 0..RULES_MAX {
        assert_eq!(check(log.flow.rules(), &set(number)), Ok(()));
        log.set(rule(&format!("rule-{number}")));
    }
    let rules = log.flow.rules();
    assert_eq!(check(rules, &set(RULES_MAX)), Err(Rejection::TooMany));
    assert_eq!(check(rules, &set(0)), Ok(()), "a rule is replaced");
    assert_eq!(check(rules, &removed(0)), Ok(()));
    let unknown = rule(&format!("rule-{RULES_MAX}")).name;
    let refused = check(rules, &removed(RULES_MAX));
    assert_eq!(refused, Err(Rejection::Unknown(unknown)));
}
