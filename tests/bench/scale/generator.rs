//! A history as gateways and nodes would have written it: the product's own rules decide, chain and encode every
//! event, only faster than containers run.
//!
//! Most trees are a caller and its callee; one in a thousand has sixty-three callees.

use std::collections::BTreeMap;

use anyhow::Context as _;
use aod_domain::audit::{SealKey, TreeHasher};
use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_domain::event::{CloudEvent, Header, Recorded};
use aod_domain::id::{EventId, RunId};
use aod_domain::run::{
    Command, Ended, Event, Launched, Outcome, Parent, Payload, Run, RunError, Timings, Work,
    decide, fixtures,
};
use aod_domain::tenant::Tenant;
use fastrand::Rng;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use uuid::Builder;

/// Capsules that clients request, and the number of those that only they call.
pub(crate) const CAPSULES: u64 = 20;

/// Teams, one of which is a label of each tree.
pub(crate) const TEAMS: u64 = 50;

/// Customers, another label: each has few runs.
pub(crate) const CUSTOMERS: u64 = 20_000;

/// Words of arguments; the first is in most arguments, the last in very few.
pub(crate) const WORDS: u64 = 20_000;

/// A word in every request.
pub(crate) const COMMON_WORD: &str = "penguins";

/// Words of a request.
const WORDS_OF_ONE: u64 = 8;

/// One run in this number fails.
const FAILS_EVERY: u64 = 50;

/// One tree in this number is large.
const LARGE_EVERY: u64 = 1_000;

/// Callees of a large tree.
const LARGE_CALLEES: u64 = 63;

/// Time between the starts of trees: half a million of them in about a month.
const APART: SignedDuration = SignedDuration::from_millis(5_200);

/// Time between the events of a run.
const STEP: SignedDuration = SignedDuration::from_millis(700);

/// An event as stored.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) subject: String,
    pub(crate) id: String,
    pub(crate) bytes: Vec<u8>,
}

/// Generates tree after tree; always the same ones.
#[derive(Debug)]
pub(crate) struct Generator {
    random: Rng,
    key: SealKey,
    /// Trees so far.
    number: u64,
    /// Runs so far.
    pub(crate) runs: u64,
    /// The roots of large trees.
    pub(crate) large: Vec<RunId>,
    /// Sequence of the last generated event.
    pub(crate) sequence: u64,
    now: Timestamp,
}

impl Generator {
    /// Continues after the event `sequence`, with trees from `began` on.
    pub(crate) fn new(sequence: u64, began: Timestamp) -> Self {
        Self {
            random: Rng::with_seed(7),
            key: SealKey::from_seed(&[7; 32]),
            number: 0,
            runs: 0,
            large: Vec::new(),
            sequence,
            now: began,
        }
    }

    /// The events of the next tree.
    pub(crate) fn tree(&mut self) -> anyhow::Result<Vec<Made>> {
        self.number += 1;
        self.now += APART;
        let mut tree = Tree::default();
        let root = RunId::root_of(self.uuid());
        let launched = self.launched();
        let lease = self.begin(&mut tree, root, launched.clone())?;
        let mut children = BTreeMap::new();
        for call in 0..self.callees() {
            let call_key = Digest::of(format!("call {call}"));
            let child = root.child(&call_key);
            let called = self.called(&launched, root, call_key, lease);
            self.begin(&mut tree, child, called)?;
            let ended = self.ended(call);
            children.insert(
                child,
                self.store(&mut tree, child, &Command::End(ended.into()))?,
            );
        }
        let mut ended = self.ended(self.number);
        ended.set_children(&children);
        let result = self.store(&mut tree, root, &Command::End(ended.into()))?;
        self.seal(&mut tree, root, result)?;
        self.runs += tree.chains.len() as u64;
        if self.is_large() {
            self.large.push(root);
        }
        Ok(tree.made)
    }

    const fn is_large(&self) -> bool {
        self.number.is_multiple_of(LARGE_EVERY)
    }

    const fn callees(&self) -> u64 {
        if self.is_large() { LARGE_CALLEES } else { 1 }
    }

    fn launched(&mut self) -> Launched {
        let mut launched = fixtures::launched();
        rename(
            &mut launched.work,
            &format!("report-{}", self.number % CAPSULES),
        );
        launched.payload =
            Payload::Inline(json!({"question": self.question(), "table": "penguins.csv"}));
        launched.deadline = self.now + SignedDuration::from_hours(24);
        launched.request = Digest::of(self.number.to_be_bytes());
        launched.labels = BTreeMap::from([
            ("team".to_owned(), format!("team-{}", self.number % TEAMS)),
            (
                "customer".to_owned(),
                format!("customer-{}", self.number % CUSTOMERS),
            ),
        ]);
        launched
    }

    fn called(&self, caller: &Launched, run: RunId, call_key: Digest, event: Digest) -> Launched {
        let mut called = Launched {
            parent: Some(Parent {
                run,
                attempt: 1,
                call_key,
                event,
            }),
            requested_by: run.to_string(),
            deadline: caller.deadline,
            payload: caller.payload.clone(),
            labels: caller.labels.clone(),
            request: caller.request,
            ..fixtures::launched_child()
        };
        rename(
            &mut called.work,
            &format!("chart-{}", self.number % CAPSULES),
        );
        called
    }

    /// A few words; the first of all words are in most requests.
    fn question(&mut self) -> String {
        let mut words = vec![COMMON_WORD.to_owned()];
        words.extend((0..WORDS_OF_ONE).map(|_| word(self.rank())));
        words.join(" ")
    }

    /// A rank with the uneven distribution of words in a language.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank below WORDS"
    )]
    fn rank(&mut self) -> u64 {
        (WORDS as f64).powf(self.random.f64()) as u64
    }

    /// Launches a run and lets a node take it; returns the hash of its lease.
    fn begin(&mut self, tree: &mut Tree, run: RunId, launched: Launched) -> anyhow::Result<Digest> {
        self.store(tree, run, &Command::Launch(launched.into()))?;
        let lease = Command::Lease {
            holder: fixtures::node_holder(u128::from(self.random.u8(1..=3)), 1),
            is_holder_gone: false,
        };
        self.store(tree, run, &lease)
    }

    fn ended(&self, number: u64) -> Ended {
        let timings = Timings {
            leased_at: Some(self.now),
            started_at: Some(self.now),
            exited_at: Some(self.now),
            waiting_ms: 5,
        };
        if (self.number + number).is_multiple_of(FAILS_EVERY) {
            let error = RunError::new(
                ErrorCode::CapsuleExit,
                format!(
                    "the capsule ended with code 1 in shard {}",
                    self.number % WORDS
                ),
            );
            return Ended {
                timings,
                ..Ended::without_start(1, Outcome::Failed, error)
            };
        }
        Ended {
            timings,
            ..fixtures::ended(1)
        }
    }

    fn seal(&mut self, tree: &mut Tree, root: RunId, result: Digest) -> anyhow::Result<()> {
        // The seal signs its own header, which is therefore stored with it.
        let header = self.header();
        let sealed = self.key.seal(root, &header, result, tree.hasher.finish());
        self.store_with(tree, root, &Command::Seal(sealed), header)
            .map(drop)
    }

    /// Decides and stores one event of a run; returns its hash.
    fn store(&mut self, tree: &mut Tree, run: RunId, command: &Command) -> anyhow::Result<Digest> {
        self.now += STEP;
        let header = self.header();
        self.store_with(tree, run, command, header)
    }

    fn store_with(
        &mut self,
        tree: &mut Tree,
        run: RunId,
        command: &Command,
        header: Header,
    ) -> anyhow::Result<Digest> {
        let history = tree.chains.entry(run).or_default();
        let state = Run::replay(run, history.clone())?;
        let event = decide(state.as_ref(), command, self.now)?.context("no event to store")?;
        let subject = event.subject(&Tenant::default(), run).to_string();
        let (id, time, previous) = (header.id, header.time, history.last().map(|last| last.hash));
        let stored = CloudEvent::new(header, run.to_string(), previous, event);
        let bytes = stored.encode()?;
        let hash = Digest::of(&bytes);
        self.sequence += 1;
        history.push(Recorded {
            sequence: self.sequence,
            hash,
            id,
            time,
            previous,
            event: stored.event,
        });
        tree.hasher.add(self.sequence, &subject, hash);
        tree.made.push(Made {
            subject,
            id: id.to_string(),
            bytes,
        });
        Ok(hash)
    }

    fn header(&mut self) -> Header {
        Header {
            id: EventId::new(self.uuid()),
            source: "/gateway/generator".to_owned(),
            time: self.now,
        }
    }

    fn uuid(&mut self) -> uuid::Uuid {
        let milliseconds = u64::try_from(self.now.as_millisecond()).unwrap_or_default();
        let mut random = [0; 10];
        self.random.fill(&mut random);
        Builder::from_unix_timestamp_millis(milliseconds, &random).into_uuid()
    }
}

/// A tree under construction.
#[derive(Default)]
struct Tree {
    chains: BTreeMap<RunId, Vec<Recorded<Event>>>,
    hasher: TreeHasher,
    made: Vec<Made>,
}

/// The word of a rank, from 1.
pub(crate) fn word(rank: u64) -> String {
    format!("word{rank}")
}

fn rename(work: &mut Work, text: &str) {
    if let Work::Capsule { name, .. } = work {
        *name = text.parse().expect("a name");
    }
}
