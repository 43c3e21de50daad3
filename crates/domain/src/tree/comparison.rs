//! In what two trees differ: what they were given, what they made, whom they called; and beside that,
//! how long it took and what it cost, which differs nearly always and says nothing about the rest.
//!
//! Callees are paired by the keys of their calls, which are the same for the same call of whichever
//! tree. What is left over is paired by capsule, in the order of the launches: a call with other
//! arguments then shows as that, and not as one that is missing and one that is new.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Value, json};

use super::Branch;
use crate::difference::{self, Difference};
use crate::digest::Digest;
use crate::id::RunId;
use crate::run::{FileEntry, Launched, Payload, Run, Work};

/// Differences, and measures, that are told one by one; of more there is the number.
pub const DIFFERENCES_MAX: usize = 1_000;

/// In what two trees differ.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// Runs of both trees that differ in anything, their measures included.
    pub pairs: Vec<Pair>,
    pub only_left: Vec<OneSided>,
    pub only_right: Vec<OneSided>,
    /// Runs that were compared.
    pub compared: usize,
    /// Differences beyond [`DIFFERENCES_MAX`], which are not told one by one.
    pub left_out: usize,
}

/// A run of the left tree and the one that stands for it in the right one.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// The way from the root by names of capsules: `survey/chart[2]` is the second `chart` that `survey` called.
    pub path: String,
    pub left: RunId,
    pub right: RunId,
    /// Arguments, capsules, outcomes, outputs and files.
    pub differences: Vec<Difference>,
    /// Times and costs.
    pub measures: Vec<Difference>,
}

/// A run, and all below it, that the other tree has nothing for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneSided {
    pub path: String,
    pub run: RunId,
    /// Runs below it.
    pub below: usize,
}

impl Comparison {
    /// Whether both trees were given the same, called the same and made the same. Times and costs do not count.
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

/// Recursion as deep as calls may be nested.
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
    let (pairs, only_left, only_right) = paired(&left.callees, &right.callees);
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

/// Indices that belong together, and those that are left over on either side.
type Paired = (Vec<(usize, usize)>, Vec<usize>, Vec<usize>);

fn paired(left: &[Branch<'_>], right: &[Branch<'_>]) -> Paired {
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    let mut by_key: BTreeMap<Digest, usize> = BTreeMap::new();
    by_key.extend((0..right.len()).filter_map(|index| Some((call_key(&right[index])?, index))));
    let mut taken = BTreeSet::new();
    let mut left_over = Vec::new();
    for (index, branch) in left.iter().enumerate() {
        match call_key(branch).and_then(|key| by_key.get(&key)) {
            Some(&other) if taken.insert(other) => pairs.push((index, other)),
            _ => left_over.push(index),
        }
    }
    let mut by_name: BTreeMap<&str, VecDeque<usize>> = BTreeMap::new();
    for index in (0..right.len()).filter(|index| !taken.contains(index)) {
        by_name
            .entry(name(&right[index]))
            .or_default()
            .push_back(index);
    }
    let mut only_left = Vec::new();
    for index in left_over {
        let others = by_name.get_mut(name(&left[index]));
        match others.and_then(VecDeque::pop_front) {
            Some(other) => pairs.push((index, other)),
            None => only_left.push(index),
        }
    }
    pairs.sort_unstable();
    let mut only_right: Vec<usize> = by_name.into_values().flatten().collect();
    only_right.sort_unstable();
    (pairs, only_left, only_right)
}

fn call_key(branch: &Branch<'_>) -> Option<Digest> {
    let parent = branch.run.launched.event.parent.as_ref();
    parent.map(|parent| parent.call_key)
}

fn name<'a>(branch: &Branch<'a>) -> &'a str {
    branch.run.launched.event.work.name().as_str()
}

/// Each callee by its capsule, with its number where that was called more than once.
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

/// What a run was given and made: nothing that depends on where or when it ran.
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
        Work::Build { name, content } => json!({
            "build of": name.as_str(),
            "content": content.to_string(),
        }),
    }
}

/// One that is an artifact is told by its digest: equal if and only if that is.
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

/// How long a run took and what it used; what is not known is left out.
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

/// Cuts what is told to [`DIFFERENCES_MAX`], and counts the rest of what makes trees differ.
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

/// Keeps as much of `list` as there is room for, and answers how much was left out.
fn cut<T>(list: &mut Vec<T>, room: &mut usize) -> usize {
    let kept = list.len().min(*room);
    let left_out = list.len() - kept;
    list.truncate(kept);
    *room -= kept;
    left_out
}
