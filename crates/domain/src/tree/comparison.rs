//! How two trees differ: inputs, outputs and calls; and separately times and costs, which nearly always differ.
//!
//! Callees are paired by the keys of their calls, which are equal for equal calls in both trees, then by capsule and
//! inputs, because a caller may choose a new key for each call. Remaining callees are paired by capsule in the order of
//! the launches, so a call with other arguments shows as changed, not as one missing and one new call.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Value, json};

use super::Branch;
use crate::difference::{self, Difference};
use crate::digest::Digest;
use crate::id::RunId;
use crate::run::{FileEntry, Launched, Payload, Run, Work};

/// Maximum differences and measures that are listed; the rest is counted.
pub const DIFFERENCES_MAX: usize = 1_000;

/// The differences between two trees.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// Pairs of runs that differ in anything, including measures.
    pub pairs: Vec<Pair>,
    pub only_left: Vec<OneSided>,
    pub only_right: Vec<OneSided>,
    /// Number of compared runs.
    pub compared: usize,
    /// Number of differences beyond [`DIFFERENCES_MAX`].
    pub left_out: usize,
}

/// A run of the left tree and its counterpart in the right tree.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// The path from the root by names of capsules: `survey/chart[2]` is the second `chart` that `survey` called.
    pub path: String,
    pub left: RunId,
    pub right: RunId,
    /// Arguments, capsules, outcomes, outputs and files.
    pub differences: Vec<Difference>,
    /// Times and costs.
    pub measures: Vec<Difference>,
}

/// A run, with all runs below it, without a counterpart in the other tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneSided {
    pub path: String,
    pub run: RunId,
    /// Number of runs below it.
    pub below: usize,
}

impl Comparison {
    /// Whether inputs, calls and outputs of both trees are equal. Times and costs do not count.
    pub fn is_same(&self) -> bool {
        let pairs = self.pairs.iter().all(|pair| pair.differences.is_empty());
        pairs && self.only_left.is_empty() && self.only_right.is_empty() && self.left_out == 0
    }
}

/// Compares two trees.
pub fn compare(left: &Branch<'_>, right: &Branch<'_>) -> Comparison {
    let mut comparison = Comparison::default();
    let path = left.run.launched.event.work.name().to_string();
    descend(&mut comparison, &path, left, right);
    bound(&mut comparison);
    comparison
}

/// Recursion as deep as the maximum nesting of calls.
fn descend(comparison: &mut Comparison, path: &str, left: &Branch<'_>, right: &Branch<'_>) {
    comparison.compared += 1;
    let differences = difference::between(&content(left.run), &content(right.run));
    let measures = difference::between(&measured(left), &measured(right));
    if !differences.is_empty() || !measures.is_empty() {
        comparison.pairs.push(Pair {
            path: path.to_owned(),
            left: left.run.id,
            right: right.run.id,
            differences,
            measures,
        });
    }
    let Pairing {
        pairs,
        only_left,
        only_right,
    } = Pairing::of(&left.callees, &right.callees);
    let (left_names, right_names) = (names(&left.callees), names(&right.callees));
    for (index, other) in pairs {
        let below = format!("{path}/{}", left_names[index]);
        descend(
            comparison,
            &below,
            &left.callees[index],
            &right.callees[other],
        );
    }
    let one_sided = |name: &str, branch: &Branch<'_>| OneSided {
        path: format!("{path}/{name}"),
        run: branch.run.id,
        below: size(branch) - 1,
    };
    let found = only_left.iter();
    let found = found.map(|&index| one_sided(&left_names[index], &left.callees[index]));
    comparison.only_left.extend(found);
    let found = only_right.iter();
    let found = found.map(|&index| one_sided(&right_names[index], &right.callees[index]));
    comparison.only_right.extend(found);
}

/// Callees of two runs by their indices: pairs, and the unpaired ones of either side.
pub(super) struct Pairing {
    pub(super) pairs: Vec<(usize, usize)>,
    only_left: Vec<usize>,
    only_right: Vec<usize>,
}

impl Pairing {
    pub(super) fn of(left: &[Branch<'_>], right: &[Branch<'_>]) -> Self {
        let mut pairing = Self {
            pairs: Vec::new(),
            only_left: (0..left.len()).collect(),
            only_right: (0..right.len()).collect(),
        };
        pairing.pair_by(left, right, call_key);
        pairing.pair_by(left, right, |branch| Some(inputs(branch)));
        pairing.pair_by(left, right, |branch| Some(name(branch)));
        pairing.pairs.sort_unstable();
        pairing
    }

    /// Pairs unpaired callees with equal values of `key`, in the order of their launches.
    fn pair_by<'a, K: Ord>(
        &mut self,
        left: &[Branch<'a>],
        right: &[Branch<'a>],
        key: impl Fn(&Branch<'a>) -> Option<K>,
    ) {
        let mut others: BTreeMap<K, VecDeque<usize>> = BTreeMap::new();
        for &index in &self.only_right {
            if let Some(key) = key(&right[index]) {
                others.entry(key).or_default().push_back(index);
            }
        }
        let mut taken = BTreeSet::new();
        self.only_left.retain(|&index| {
            let others = key(&left[index]).and_then(|key| others.get_mut(&key));
            let Some(other) = others.and_then(VecDeque::pop_front) else {
                return true;
            };
            self.pairs.push((index, other));
            taken.insert(other);
            false
        });
        self.only_right.retain(|index| !taken.contains(index));
    }
}

fn call_key(branch: &Branch<'_>) -> Option<Digest> {
    let parent = branch.run.launched.event.parent.as_ref();
    parent.map(|parent| parent.call_key)
}

/// Capsule, arguments and files of a call, in one form for equal ones.
fn inputs(branch: &Branch<'_>) -> String {
    let launched = &branch.run.launched.event;
    json!([
        name(branch),
        payload(&launched.payload),
        files(&launched.files)
    ])
    .to_string()
}

fn name<'a>(branch: &Branch<'a>) -> &'a str {
    branch.run.launched.event.work.name().as_str()
}

/// Each callee by its capsule, numbered if the capsule was called more than once.
fn names(callees: &[Branch<'_>]) -> Vec<String> {
    let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for callee in callees {
        counts.entry(name(callee)).or_default().0 += 1;
    }
    let numbered = callees.iter().map(|callee| {
        let (count, number) = counts.entry(name(callee)).or_default();
        *number += 1;
        match count {
            1 => name(callee).to_owned(),
            _ => format!("{}[{number}]", name(callee)),
        }
    });
    numbered.collect()
}

fn size(branch: &Branch<'_>) -> usize {
    1 + branch.callees.iter().map(size).sum::<usize>()
}

/// Inputs and outputs of a run, without anything that depends on place or time.
fn content(run: &Run) -> Value {
    let launched = &run.launched.event;
    let mut content = json!({
        "capsule": capsule(launched),
        "arguments": payload(&launched.payload),
        "inputs": files(&launched.files),
    });
    let Some(ended) = run.ended() else {
        content["outcome"] = json!("none yet");
        return content;
    };
    let ended = &ended.event;
    content["outcome"] = json!(ended.outcome.as_str());
    content["files"] = files(&ended.files);
    if let Some(output) = &ended.output {
        content["output"] = payload(output);
    }
    if let Some(exit) = &ended.exit {
        content["exit"] = json!(exit);
    }
    if let Some(error) = &ended.error {
        content["error"] = json!({"code": error.code, "message": error.message});
    }
    content
}

fn capsule(launched: &Launched) -> Value {
    match &launched.work {
        Work::Capsule {
            name,
            content,
            image,
            schema,
            ..
        } => json!({
            "name": name.as_str(),
            "content": content.to_string(),
            "image": image.config_digest,
            "schema": schema.to_string(),
        }),
        Work::Build { name, content, .. } => json!({
            "build of": name.as_str(),
            "content": content.to_string(),
        }),
    }
}

/// A payload that is an artifact is represented by its digest.
fn payload(payload: &Payload) -> Value {
    match payload {
        Payload::Inline(value) => value.clone(),
        Payload::Artifact { digest, size_bytes } => {
            json!({"artifact": digest.to_string(), "size_bytes": size_bytes})
        }
    }
}

fn files(files: &[FileEntry]) -> Value {
    let digests = files
        .iter()
        .map(|file| (file.name.to_string(), file.digest.to_string().into()));
    Value::Object(digests.collect())
}

/// Duration and usage of a run; unknown values are left out.
fn measured(branch: &Branch<'_>) -> Value {
    let run = branch.run;
    let mut measured = json!({"attempts": run.attempts});
    if branch.spent.model_calls > 0 {
        measured["model_calls"] = json!(branch.spent.model_calls);
        measured["model_tokens"] = json!(branch.spent.tokens());
        measured["cost_usd"] = json!(branch.spent.cost.dollars());
    }
    let Some(ended) = run.ended() else {
        return measured;
    };
    let timings = &ended.event.timings;
    let mut span = |name: &str, from: Option<jiff::Timestamp>, until: Option<jiff::Timestamp>| {
        if let (Some(from), Some(until)) = (from, until) {
            let milliseconds = until.duration_since(from).as_millis().max(0);
            measured[name] = json!(i64::try_from(milliseconds).unwrap_or(i64::MAX));
        }
    };
    span("took_ms", Some(run.launched.time), Some(ended.time));
    span("queued_ms", Some(run.launched.time), timings.leased_at);
    span("ran_ms", timings.started_at, timings.exited_at);
    measured["waited_ms"] = json!(timings.waiting_ms);
    measured
}

/// Limits the lists to [`DIFFERENCES_MAX`], and counts the rest.
fn bound(comparison: &mut Comparison) {
    let mut room = DIFFERENCES_MAX;
    let mut room_for_measures = DIFFERENCES_MAX;
    let mut left_out = 0;
    for pair in &mut comparison.pairs {
        left_out += cut(&mut pair.differences, &mut room);
        cut(&mut pair.measures, &mut room_for_measures);
    }
    left_out += cut(&mut comparison.only_left, &mut room);
    left_out += cut(&mut comparison.only_right, &mut room);
    comparison.left_out = left_out;
    comparison
        .pairs
        .retain(|pair| !pair.differences.is_empty() || !pair.measures.is_empty());
}

/// Shortens `list` to the remaining `room`, and returns the number of removed items.
fn cut<T>(list: &mut Vec<T>, room: &mut usize) -> usize {
    let kept = list.len().min(*room);
    let left_out = list.len() - kept;
    list.truncate(kept);
    *room -= kept;
    left_out
}
