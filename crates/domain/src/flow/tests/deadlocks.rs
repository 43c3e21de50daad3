//! Runs that wait for one another.

use super::*;

/// Trees in which each run needs the buckets of its site and its kind.
#[derive(Clone)]
struct Trees {
    log: Log,
    /// The runs that have not ended, with the buckets that their callees share.
    live: BTreeMap<RunId, Vec<Held>>,
    /// Callers and their callees, while both live.
    callers: BTreeMap<RunId, RunId>,
    calls: u32,
}

impl Trees {
    /// Each site, and each kind, has `max` places.
    fn new(max: u32) -> Self {
        let rule = |name: &str, part: &str| Rule {
            concurrency_max: Some(max),
            key: by(part),
            ..rule(name)
        };
        Self {
            log: Log::with([
                rule("sites", "argument:/site"),
                rule("kinds", "argument:/kind"),
            ]),
            live: BTreeMap::new(),
            callers: BTreeMap::new(),
            calls: 0,
        }
    }

    fn ask(&mut self, id: RunId, site: u8, kind: u8, caller: Option<RunId>) {
        let shared = caller.map_or_else(Vec::new, |caller| self.live[&caller].clone());
        let arguments = json!({"site": site.to_string(), "kind": kind.to_string()});
        let mut launched = caller.map_or_else(launched, |caller| {
            let mut launched = launched_child();
            launched.parent.as_mut().expect("a caller").run = caller;
            launched
        });
        launched.payload = Payload::Inline(arguments);
        let admission = self.log.request(id, launched, 0, shared);
        let below = admission.map_or_else(Vec::new, |admission| admission.shared_below(id));
        self.live.insert(id, below);
        self.callers.extend(caller.map(|caller| (id, caller)));
    }

    fn root(&mut self, number: u128, site: u8, kind: u8) -> RunId {
        self.ask(run(number), site, kind, None);
        run(number)
    }

    fn call(&mut self, caller: RunId, site: u8, kind: u8) -> RunId {
        self.calls += 1;
        let id = caller.child(&Digest::of(self.calls.to_string()));
        self.ask(id, site, kind, Some(caller));
        id
    }

    fn end(&mut self, id: RunId) {
        self.log.end(id);
        self.live.remove(&id);
        self.callers.remove(&id);
    }

    /// The runs that are admitted, or need no bucket, and wait for no callee.
    fn may_end(&self) -> Vec<RunId> {
        let callers: BTreeSet<&RunId> = self.callers.values().collect();
        let live = self.live.keys();
        let free = live.filter(|id| !callers.contains(id) && !self.waits(**id));
        free.copied().collect()
    }

    fn waits(&self, id: RunId) -> bool {
        self.log.flow.waiting.contains_key(&id)
    }

    /// Ends all runs that can end, until nothing changes.
    fn settle(&mut self) {
        loop {
            while !self.log.admit().is_empty() {}
            let ended = self.may_end();
            for &id in &ended {
                self.end(id);
            }
            if ended.is_empty() {
                return;
            }
        }
    }

    /// The callees to end of each deadlock, if all deadlocks last.
    fn deadlocked(&self) -> Vec<Vec<RunId>> {
        let deadlocks = self.log.flow.deadlocks();
        let ended = deadlocks
            .iter()
            .map(|deadlock| deadlock.youngest(&deadlock.runs().collect()));
        ended.collect()
    }
}

const NOBODY: [[RunId; 1]; 0] = [];

/// Two trees that each hold a bucket and call into the other's; returns the later callee.
fn crossed(trees: &mut Trees) -> RunId {
    let (one, other) = (trees.root(1, 1, 1), trees.root(2, 2, 2));
    assert_eq!(trees.log.admit(), [one, other]);
    trees.call(one, 2, 1);
    assert_eq!(trees.deadlocked(), NOBODY, "the other may end still");
    trees.call(other, 1, 2)
}

#[test]
fn younger_of_two_deadlocked_callees_is_named() {
    let mut trees = Trees::new(1);
    let younger = crossed(&mut trees);
    assert_eq!(trees.deadlocked(), [[younger]]);
    trees.end(younger);
    assert_eq!(trees.deadlocked(), NOBODY);
    trees.settle();
    assert_eq!(trees.live, BTreeMap::new());
}

#[test]
fn callee_that_only_waits_for_a_deadlock_is_not_named() {
    let mut trees = Trees::new(1);
    let younger = crossed(&mut trees);
    trees.root(3, 1, 3);
    let bystander = trees.root(4, 4, 4);
    assert_eq!(trees.log.admit(), [bystander]);
    trees.call(bystander, 2, 4);
    assert_eq!(trees.deadlocked(), [[younger]]);
}

#[test]
fn bucket_with_a_run_that_can_end_is_no_deadlock() {
    let mut trees = Trees::new(2);
    let roots = [(1, 1), (2, 2), (3, 1), (4, 2)];
    let roots = roots.map(|(number, site)| trees.root(number, site, u8::try_from(number).unwrap()));
    assert_eq!(trees.log.admit(), roots);
    let others = [2, 1, 2];
    for (caller, other) in roots.into_iter().zip(others) {
        trees.call(caller, other, 9);
        assert_eq!(trees.deadlocked(), NOBODY, "the last root may end still");
    }
    let last = trees.call(roots[3], 1, 9);
    assert_eq!(trees.deadlocked(), [[last]]);
}

#[test]
fn deadlocked_callees_of_one_caller_end_together_with_other_deadlocks() {
    let mut trees = Trees::new(1);
    let sites = [(1, 1), (2, 2), (3, 3), (4, 4)];
    let roots = sites.map(|(number, site)| trees.root(number, site, site));
    assert_eq!(trees.log.admit(), roots);
    let [one, other, third, fourth] = roots;
    trees.call(one, 2, 5);
    let fan_out: Vec<RunId> = (0..3).map(|kind| trees.call(other, 1, kind)).collect();
    trees.call(third, 4, 5);
    let last = trees.call(fourth, 3, 5);
    assert_eq!(trees.deadlocked(), [fan_out, vec![last]]);
}

#[test]
fn later_callee_does_not_go_before_earlier_deadlocked_callees() {
    let mut trees = Trees::new(1);
    let younger = crossed(&mut trees);
    let found: BTreeSet<RunId> = trees.log.flow.deadlocks()[0].runs().collect();
    trees.call(run(1), 2, 3);
    let deadlocks = trees.log.flow.deadlocks();
    assert_eq!(deadlocks[0].runs().count(), 3);
    assert_eq!(deadlocks[0].youngest(&found), [younger]);
    assert_eq!(deadlocks[0].youngest(&BTreeSet::new()), []);
}

#[test]
fn bucket_that_admits_no_run_is_no_deadlock() {
    let mut trees = Trees::new(1);
    let root = trees.root(1, 1, 1);
    trees.log.admit();
    trees.log.set(Rule {
        concurrency_max: Some(0),
        key: by("argument:/site"),
        ..rule("sites")
    });
    trees.call(root, 2, 1);
    assert_eq!(trees.deadlocked(), NOBODY);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// No named callee could have been admitted for any order of ends; and while callees wait for one another, at least
    /// one is named, so that all runs end.
    #[test]
    fn only_deadlocks_are_named_and_all_runs_end(
        max in 1_u32..3,
        steps in prop::collection::vec((0_u8..4, any::<prop::sample::Index>(), 0_u8..3, 0_u8..3), 1..40),
    ) {
        let mut trees = Trees::new(max);
        for (number, (what, which, site, kind)) in (1_u128..).zip(steps) {
            let going: Vec<RunId> = trees.live.keys().filter(|id| !trees.waits(**id)).copied().collect();
            match what {
                0 => drop(trees.root(number, site, kind)),
                1 | 2 if !going.is_empty() => drop(trees.call(*which.get(&going), site, kind)),
                _ => drop(trees.log.admit()),
            }
            let named = trees.deadlocked().concat();
            if !named.is_empty() {
                let mut later = trees.clone();
                later.settle();
                prop_assert!(named.iter().all(|&named| later.waits(named)), "one of {named:?} could go");
            }
        }
        trees.settle();
        while !trees.live.is_empty() {
            let named = trees.deadlocked().concat();
            prop_assert!(!named.is_empty(), "they wait for ever: {:?}", trees.live);
            for named in named {
                prop_assert!(trees.waits(named), "{named} goes");
                trees.end(named);
            }
            trees.settle();
        }
    }
}
