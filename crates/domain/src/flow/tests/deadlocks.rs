//! Runs that wait for one another.

use super::*;

/// Trees of which each run needs the rooms of its site and its kind.
#[derive(Clone)]
struct Trees {
    log: Log,
    /// Those that have not ended, with what callees of theirs share.
    live: BTreeMap<RunId, Vec<Held>>,
    /// Who calls whom, as far as both live.
    callers: BTreeMap<RunId, RunId>,
    calls: u32,
}

impl Trees {
    /// `max` go at once of each site, and of each kind.
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
        let launched = Launched {
            payload: Payload::Inline(arguments),
            ..if caller.is_none() {
                launched()
            } else {
                launched_child()
            }
        };
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

    /// Those that go, or need nothing, and wait for nobody that they called.
    fn may_end(&self) -> Vec<RunId> {
        let callers: BTreeSet<&RunId> = self.callers.values().collect();
        let live = self.live.keys();
        let free = live.filter(|id| !callers.contains(id) && !self.waits(**id));
        free.copied().collect()
    }

    fn waits(&self, id: RunId) -> bool {
        self.log.flow.waiting.contains_key(&id)
    }

    /// Ends all that can end, until nothing moves any more.
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

    fn deadlocked(&self) -> Option<RunId> {
        self.log.flow.deadlocked()
    }
}

/// Two trees that each have a room and call into the other's; the later callee.
fn crossed(trees: &mut Trees) -> RunId {
    let (one, other) = (trees.root(1, 1, 1), trees.root(2, 2, 2));
    assert_eq!(trees.log.admit(), [one, other]);
    trees.call(one, 2, 1);
    assert_eq!(trees.deadlocked(), None, "the other may end still");
    trees.call(other, 1, 2)
}

#[test]
fn of_two_that_wait_for_one_another_the_younger_is_named() {
    let mut trees = Trees::new(1);
    let younger = crossed(&mut trees);
    assert_eq!(trees.deadlocked(), Some(younger));
    trees.end(younger);
    assert_eq!(trees.deadlocked(), None);
    trees.settle();
    assert_eq!(trees.live, BTreeMap::new());
}

#[test]
fn who_only_waits_for_a_deadlock_is_not_named() {
    let mut trees = Trees::new(1);
    let younger = crossed(&mut trees);
    trees.root(3, 1, 3);
    let bystander = trees.root(4, 4, 4);
    assert_eq!(trees.log.admit(), [bystander]);
    trees.call(bystander, 2, 4);
    assert_eq!(trees.deadlocked(), Some(younger));
}

#[test]
fn where_one_holder_can_end_there_is_no_deadlock() {
    let mut trees = Trees::new(2);
    let roots = [(1, 1), (2, 2), (3, 1), (4, 2)];
    let roots = roots.map(|(number, site)| trees.root(number, site, u8::try_from(number).unwrap()));
    assert_eq!(trees.log.admit(), roots);
    let others = [2, 1, 2];
    for (caller, other) in roots.into_iter().zip(others) {
        trees.call(caller, other, 9);
        assert_eq!(trees.deadlocked(), None, "the last root may end still");
    }
    let last = trees.call(roots[3], 1, 9);
    assert_eq!(trees.deadlocked(), Some(last));
}

#[test]
fn a_room_that_lets_nobody_in_is_no_deadlock() {
    let mut trees = Trees::new(1);
    let root = trees.root(1, 1, 1);
    trees.log.admit();
    trees.log.set(Rule {
        concurrency_max: Some(0),
        key: by("argument:/site"),
        ..rule("sites")
    });
    trees.call(root, 2, 1);
    assert_eq!(trees.deadlocked(), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whoever is named could not have gone in any order of ends; and as long as somebody waits for who
    /// waits, somebody is named, so that all come to an end.
    #[test]
    fn what_is_named_is_a_deadlock_and_nothing_else_lasts(
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
            if let Some(named) = trees.deadlocked() {
                let mut later = trees.clone();
                later.settle();
                prop_assert!(later.waits(named), "{named} could go");
            }
        }
        trees.settle();
        while !trees.live.is_empty() {
            let named = trees.deadlocked();
            prop_assert!(named.is_some_and(|named| trees.waits(named)), "they wait for ever: {:?}", trees.live);
            trees.end(named.expect("somebody"));
            trees.settle();
        }
    }
}
