//! One tree with all kinds of events, and changes of its bundle.

use std::collections::BTreeMap;

use serde::Serialize;
use uuid::Uuid;

use super::*;
use crate::digest::Digest;
use crate::event::{CloudEvent, Header};
use crate::id::{EventId, RunId};
use crate::run::fixtures::{NOW, child, ended, file, launched, launched_child, node_holder, root};
use crate::run::{
    ChildResult, Ended, Event, Launched, Lease, Note, NoteKind, NotesSummary, Parent, Sealed,
};
use crate::spending::{self, Answered, ModelCall, Settled, Worst};
use crate::subject::Subject;
use crate::tenant::Tenant;

/// The key that signs the tree; [`other_key`] is a stranger's.
fn key() -> SealKey {
    SealKey::from_seed(&[7; 32])
}

fn other_key() -> SealKey {
    SealKey::from_seed(&[8; 32])
}

fn header(number: u64) -> Header {
    Header {
        id: EventId::new(Uuid::from_u128(number.into())),
        source: "/test".into(),
        time: NOW,
    }
}

/// Events in their stored form.
#[derive(Clone, Default)]
struct Log {
    tenant: Tenant,
    lines: Vec<Line>,
}

impl Log {
    fn add<E: Serialize>(
        &mut self,
        run: RunId,
        subject: &Subject,
        previous: Option<Digest>,
        event: E,
    ) -> Digest {
        // Other trees have events in between.
        let sequence = self.lines.len() as u64 * 3 + 10;
        let cloud_event = CloudEvent::new(header(sequence), run.to_string(), previous, event);
        let bytes = cloud_event.encode().expect("a small event");
        let hash = Digest::of(&bytes);
        self.lines.push(Line {
            sequence,
            subject: subject.to_string(),
            bytes,
        });
        hash
    }

    fn state(&mut self, run: RunId, previous: Option<Digest>, event: Event) -> Digest {
        let subject = event.subject(&self.tenant, run);
        self.add(run, &subject, previous, event)
    }

    fn note(&mut self, number: u32, previous: Option<Digest>) -> Digest {
        let kind = NoteKind {
            attempt: 1,
            number,
            callee: None,
            text: None,
            previous,
        };
        let note = Note::CapsuleStarted(kind);
        let subject = note.subject(&self.tenant, root());
        self.add(root(), &subject, previous, note)
    }
}

fn lease() -> Event {
    Event::Leased(Lease {
        attempt: 1,
        holder: node_holder(1, 1),
    })
}

fn model_call() -> ModelCall {
    ModelCall {
        id: EventId::new(Uuid::from_u128(9)),
        run: child(),
        attempt: 1,
        provider: "openai".into(),
        model: "tiny".into(),
    }
}

fn events() -> Log {
    events_of(&Tenant::default(), &Tenant::default())
}

/// A tree of `tenant`, with a callee that names the tenant `other`.
fn events_of(tenant: &Tenant, other: &Tenant) -> Log {
    let mut log = Log {
        tenant: tenant.clone(),
        lines: Vec::new(),
    };
    let launch = Launched {
        tenant: tenant.clone(),
        ..launched()
    };
    let begun = log.state(root(), None, Event::Launched(Box::new(launch)));
    let leased = log.state(root(), Some(begun), lease());
    let first = log.note(1, None);
    let called = Launched {
        tenant: other.clone(),
        parent: Some(Parent {
            event: leased,
            ..launched_child().parent.expect("it is a child")
        }),
        ..launched_child()
    };
    let below = log.state(child(), None, Event::Launched(Box::new(called)));
    let call = model_call();
    let worst = Worst {
        tokens: 10,
        cost: None,
    };
    let mut previous = None;
    for _ in 0..2 {
        let (call, worst) = (call.clone(), worst);
        let event = spending::Event::Reserved { call, worst };
        let subject = event.subject(&log.tenant);
        previous = Some(log.add(child(), &subject, previous, event));
    }
    let below = log.state(child(), Some(below), lease());
    let below = log.state(child(), Some(below), Event::Ended(Box::new(ended(1))));
    let last = log.note(2, Some(first));
    let result = Ended {
        children: vec![ChildResult {
            run: child(),
            hash: below,
        }],
        notes: Some(NotesSummary {
            number: 2,
            hash: last,
        }),
        ..ended(1)
    };
    log.state(root(), Some(leased), Event::Ended(Box::new(result)));
    log
}

/// The bundle of a sealed tree; `missing` artifacts are separate.
#[derive(Clone)]
struct Bundle {
    before: Vec<Line>,
    seal: Option<Vec<u8>>,
    late: Vec<Line>,
    artifacts: BTreeMap<Digest, (u64, Digest)>,
    missing: Vec<(Digest, Option<jiff::Timestamp>)>,
}

fn tree_of(lines: &[Line]) -> crate::run::SealedTree {
    let mut hasher = TreeHasher::default();
    for line in lines {
        hasher.add(line.sequence, &line.subject, Digest::of(&line.bytes));
    }
    hasher.finish()
}

/// The seal of `lines`, altered by `change`.
fn seal(lines: &[Line], key: &SealKey, change: impl FnOnce(&mut Sealed)) -> Vec<u8> {
    let result = Digest::of(&lines.last().expect("there is a result").bytes);
    let header = header(1_000);
    let mut sealed = key.seal(root(), &header, result, tree_of(lines));
    change(&mut sealed);
    CloudEvent::new(
        header,
        root().to_string(),
        Some(result),
        Event::Sealed(sealed),
    )
    .encode()
    .expect("a small event")
}

fn bundle() -> Bundle {
    bundle_of(events().lines)
}

fn bundle_of(lines: Vec<Line>) -> Bundle {
    let held = |name: &str| (Digest::of(name), (3, Digest::of(name)));
    let schema = (Digest::of("schema"), (40, Digest::of("schema")));
    Bundle {
        seal: Some(seal(&lines, &key(), |_| ())),
        before: lines,
        late: Vec::new(),
        artifacts: BTreeMap::from([held("penguins.csv"), held("report.pdf"), schema]),
        missing: Vec::new(),
    }
}

impl Bundle {
    fn check_for(&self, expected: Option<PublicKey>) -> Report {
        let mut checker = Checker::new(root(), expected);
        let before = self.before.iter().cloned().map(Entry::Event);
        let late = self.late.iter().cloned().map(Entry::Late);
        let artifacts = self.artifacts.iter();
        let artifacts = artifacts.map(|(&digest, &(size_bytes, found))| Entry::Artifact {
            digest,
            size_bytes,
            found,
        });
        let missing = self.missing.iter();
        let missing = missing.map(|&(digest, deleted_at)| Entry::Missing { digest, deleted_at });
        before
            .chain(self.seal.clone().map(Entry::Seal))
            .chain(late)
            .chain(artifacts)
            .chain(missing)
            .for_each(|entry| checker.take(entry));
        checker.finish()
    }

    fn check(&self) -> Report {
        self.check_for(Some(key().public_key()))
    }

    /// Checks that there are findings of all these kinds.
    #[track_caller]
    fn assert_found(&self, kinds: &[FindingKind]) {
        let report = self.check();
        assert_eq!(report.verdict, Verdict::Findings);
        for kind in kinds {
            let mut found = report.findings.iter().map(|finding| finding.kind);
            assert!(found.any(|found| found == *kind), "{kind:?}: {report:#?}");
        }
    }
}

#[test]
fn unchanged_sealed_tree_has_no_findings() {
    let report = bundle().check();
    assert_eq!(report.findings, []);
    assert_eq!(report.verdict, Verdict::Sealed);
    let seal = report.seal.expect("it is sealed");
    assert_eq!(seal.public_key, key().public_key());
    assert!(seal.is_key_compared);
    assert_eq!((report.runs, report.events, report.artifacts), (2, 11, 3));
}

#[test]
fn runs_of_two_tenants_in_one_tree_are_found() {
    let acme: Tenant = "acme".parse().expect("a name");
    let report = bundle_of(events_of(&acme, &acme).lines).check();
    assert_eq!(report.findings, []);
    let mixed = bundle_of(events_of(&acme, &Tenant::default()).lines);
    mixed.assert_found(&[FindingKind::Event]);
    // The subject of an event and its launch name the same tenant.
    let mut moved = bundle_of(events_of(&acme, &acme).lines);
    for line in &mut moved.before {
        line.subject = line.subject.replace(".acme.", ".default.");
    }
    moved.assert_found(&[FindingKind::Event]);
}

#[test]
fn bundle_without_seal_is_open_unless_a_seal_is_expected() {
    let mut open = bundle();
    open.seal = None;
    assert_eq!(open.check_for(None).verdict, Verdict::Open);
    open.assert_found(&[FindingKind::Signer]);
}

#[test]
fn seal_by_an_unexpected_key_is_found() {
    let mut forged = bundle();
    forged.seal = Some(seal(&forged.before, &other_key(), |_| ()));
    forged.assert_found(&[FindingKind::Signer]);
    let report = forged.check_for(None);
    assert_eq!(report.verdict, Verdict::Sealed);
    assert!(!report.seal.expect("it is sealed").is_key_compared);
}

#[test]
fn changed_byte_of_a_seal_is_found() {
    let honest = bundle();
    let bytes = honest.seal.clone().expect("a seal");
    // Testing all bytes takes a minute without optimisation.
    for at in (0..bytes.len()).step_by(5) {
        let mut changed = bytes.clone();
        changed[at] ^= 0x01;
        let seal = Some(changed.clone());
        let report = Bundle {
            seal,
            ..honest.clone()
        }
        .check();
        let text = String::from_utf8_lossy(&changed);
        assert_eq!(report.verdict, Verdict::Findings, "byte {at}: {text}");
    }
}

#[test]
fn changed_byte_of_a_sealed_event_is_found() {
    let honest = bundle();
    for (number, line) in honest.before.iter().enumerate() {
        for at in (number..line.bytes.len()).step_by(97) {
            let mut changed = honest.clone();
            changed.before[number].bytes[at] ^= 0x01;
            assert_eq!(
                changed.check().verdict,
                Verdict::Findings,
                "{line:?} at {at}"
            );
        }
    }
}

/// Alterations that leave an event readable, and those that do not.
const ALTERATIONS: [(&str, &str); 4] = [
    (r#""source":"/test""#, r#""source":"/tesT""#),
    (r#""time":"2027"#, r#""time":"2026"#),
    (r#""type":"dev.aod"#, r#""type":"dev.aoD"#),
    (r#""data":{"#, r#""data":["#),
];

fn altered(bundle: &Bundle, number: usize, (old, new): (&str, &str)) -> Bundle {
    let mut altered = bundle.clone();
    let bytes = &mut altered.before[number].bytes;
    let text = String::from_utf8(bytes.clone()).expect("an event");
    assert!(text.contains(old), "{text} without {old}");
    *bytes = text.replacen(old, new, 1).into_bytes();
    altered
}

#[test]
fn altered_event_is_named_and_no_other_one() {
    for sealed in [true, false] {
        let mut honest = bundle();
        honest.seal = honest.seal.filter(|_| sealed);
        for number in 0..honest.before.len() {
            // No event names the last spending event. Only the seal names the result of the root.
            let is_last = [5, honest.before.len() - 1].contains(&number);
            for alteration in ALTERATIONS {
                let altered = altered(&honest, number, alteration);
                let report = altered.check_for(None);
                if is_last && !sealed && report.verdict == Verdict::Open {
                    continue;
                }
                let about_events = report.findings.iter();
                let about_events: Vec<_> = about_events
                    .filter(|finding| finding.place.starts_with("event "))
                    .collect();
                let place = format!("event {} at", altered.before[number].sequence);
                let named = about_events.iter();
                let foreign: Vec<_> = named
                    .filter(|finding| !finding.place.starts_with(&place))
                    .collect();
                assert!(foreign.is_empty(), "{place} {alteration:?}: {foreign:#?}");
                let is_named = if about_events.is_empty() {
                    let mut all = report.findings.iter();
                    number == 5 && all.any(|finding| finding.found.contains(&place))
                } else {
                    true
                };
                assert!(is_named, "{place} {alteration:?}: {report:#?}");
            }
        }
    }
}

#[test]
fn altered_hash_of_another_event_names_the_event_that_contains_it() {
    let honest = bundle();
    for number in 0..honest.before.len() {
        let mut altered = honest.clone();
        let bytes = &mut altered.before[number].bytes;
        let at = bytes
            .windows(14)
            .position(|bytes| bytes == br#""previoushash""#);
        let (Some(at), false) = (at, number == 5) else {
            continue;
        };
        let digit = &mut bytes[at + 16];
        *digit = if *digit == b'0' { b'1' } else { b'0' };
        let report = altered.check();
        let place = format!("event {} at", altered.before[number].sequence);
        let mut about_events = report.findings.iter();
        assert!(
            about_events.any(|finding| finding.place.starts_with(&place)),
            "{place}: {report:#?}"
        );
        let foreign = report.findings.iter().find(|finding| {
            finding.place.starts_with("event ") && !finding.place.starts_with(&place)
        });
        assert_eq!(foreign, None, "{place}");
    }
}

#[test]
fn several_altered_events_are_each_named() {
    let honest = bundle();
    // A lease, a note, and the result of the callee.
    let numbers = [1, 2, 7];
    let changed = numbers.iter().fold(honest, |bundle, number| {
        altered(&bundle, *number, ALTERATIONS[0])
    });
    let report = changed.check();
    for number in numbers {
        let place = format!("event {} at", changed.before[number].sequence);
        let mut places = report.findings.iter();
        let is_named = places.any(|finding| finding.place.starts_with(&place));
        assert!(is_named, "{place}: {report:#?}");
    }
}

#[test]
fn line_that_is_no_event_makes_no_other_event_altered() {
    let honest = bundle();
    for number in 0..honest.before.len() {
        let mut checker = Checker::new(root(), None);
        for (index, line) in honest.before.iter().enumerate() {
            checker.take(if index == number {
                Entry::NoEvent
            } else {
                Entry::Event(line.clone())
            });
        }
        checker.take(Entry::Seal(honest.seal.clone().expect("a seal")));
        let findings = checker.finish().findings;
        let about_events = findings.iter();
        let about_event = about_events
            .filter(|finding| finding.place.starts_with("event "))
            .find(|finding| finding.kind != FindingKind::MissingArtifact);
        assert_eq!(about_event, None, "{number}");
    }
}

#[test]
fn seal_with_wrong_content_is_found() {
    let honest = bundle();
    let with = |change: fn(&mut Sealed)| Bundle {
        seal: Some(seal(&honest.before, &key(), change)),
        ..honest.clone()
    };
    for change in [
        (|sealed| sealed.tree = None) as fn(&mut Sealed),
        |sealed| sealed.signature = "00".repeat(64),
        |sealed| sealed.signature.make_ascii_uppercase(),
        |sealed| sealed.public_key.clear(),
        |sealed| sealed.public_key = other_key().public_key().to_string(),
        |sealed| sealed.result = Digest::of("another"),
    ] {
        with(change).assert_found(&[FindingKind::Seal]);
    }
}

#[test]
fn dropped_doubled_or_swapped_events_are_found() {
    let honest = bundle();
    for number in 0..honest.before.len() {
        let mut dropped = honest.clone();
        let line = dropped.before.remove(number);
        dropped.assert_found(&[FindingKind::Seal]);

        let mut doubled = honest.clone();
        doubled.before.insert(number, line.clone());
        doubled.assert_found(&[FindingKind::Seal, FindingKind::Order]);

        let mut late = honest.clone();
        late.late.push(line);
        late.assert_found(&[FindingKind::LateEvent, FindingKind::Order]);

        if number > 0 {
            let mut swapped = honest.clone();
            swapped.before.swap(number - 1, number);
            swapped.assert_found(&[FindingKind::Seal, FindingKind::Order]);
        }
    }
}

#[test]
fn broken_chain_is_found_in_an_open_tree() {
    let mut open = bundle();
    open.seal = None;
    for number in 0..open.before.len() {
        let mut dropped = open.clone();
        dropped.before.remove(number);
        let report = dropped.check_for(None);
        // An event that no other event names can be cut off an open tree unnoticed: the last spending event, and the
        // root's result.
        let is_last = [5, open.before.len() - 1].contains(&number);
        let is_found = report.verdict == Verdict::Findings;
        assert_eq!(is_found, !is_last, "{number}: {report:#?}");
    }
}

#[test]
fn subjects_and_sequences_are_sealed() {
    let honest = bundle();
    for number in 0..honest.before.len() {
        let mut moved = honest.clone();
        moved.before[number].sequence += 1;
        moved.assert_found(&[FindingKind::Seal]);
        let mut elsewhere = honest.clone();
        elsewhere.before[number].subject.push('x');
        elsewhere.assert_found(&[FindingKind::Seal]);
    }
}

#[test]
fn event_after_the_seal_is_found() {
    let mut grown = bundle();
    let mut log = events();
    log.note(1, None);
    grown.late = log.lines.split_off(grown.before.len());
    let report = grown.check();
    assert_eq!(report.findings.len(), 1, "{report:#?}");
    assert_eq!(report.findings[0].kind, FindingKind::LateEvent);
    assert!(report.seal.is_some());
}

#[test]
fn missing_changed_or_unnamed_artifacts_are_found() {
    let honest = bundle();
    let report = Digest::of("report.pdf");

    let mut altered = honest.clone();
    altered
        .artifacts
        .insert(report, (3, Digest::of("other bytes")));
    altered.assert_found(&[FindingKind::Artifact]);
    let place = format!("artifacts/{report} (output file report.pdf of {})", child());
    assert_eq!(altered.check().findings[0].place, place);

    let mut longer = honest.clone();
    longer.artifacts.insert(report, (4, report));
    longer.assert_found(&[FindingKind::Artifact]);

    let mut gone = honest.clone();
    gone.artifacts.remove(&report);
    gone.assert_found(&[FindingKind::MissingArtifact]);
    gone.missing.push((report, None));
    gone.assert_found(&[FindingKind::MissingArtifact]);
    gone.missing = vec![(report, Some(NOW))];
    gone.assert_found(&[FindingKind::DeletedArtifact]);

    let mut added = honest;
    let foreign = Digest::of("foreign");
    added.artifacts.insert(foreign, (1, foreign));
    added.assert_found(&[FindingKind::UnknownArtifact]);
}

#[test]
fn artifacts_of_an_event_are_its_payloads_files_logs_and_schema() {
    let digests = |event: &Event| -> Vec<Digest> {
        let named = bundled_by(event).into_iter();
        named.map(|named| named.digest).collect()
    };
    let launch = Event::Launched(Box::new(launched()));
    let schema = Digest::of("schema");
    assert_eq!(digests(&launch), [file("penguins.csv").digest, schema]);
    let end = Event::Ended(Box::new(ended(1)));
    assert_eq!(digests(&end), [file("report.pdf").digest]);
    assert_eq!(digests(&lease()), []);
}

#[test]
fn signed_bytes_match_the_guide() {
    let tree = crate::run::SealedTree {
        events: 1,
        last: 2,
        digest: Digest::of("tree"),
    };
    let bytes = signed_bytes(root(), &header(3), Digest::of("result"), tree);
    let text = String::from_utf8_lossy(&bytes);
    assert!(
        text.starts_with("aod.run.sealed.v1\n\0\0\0\0\0\0\0\u{1e}run_"),
        "{text:?}"
    );
    assert_eq!(bytes.len(), 18 + 8 * 8 + 30 + 32 + 5 + 20 + 32 + 8 + 8 + 32);
}

fn is_open(lines: &[Line]) -> bool {
    let mut open = Open::default();
    for line in lines {
        open.take(line.sequence, &line.subject, &line.bytes)
            .expect("an event");
    }
    !open.is_empty()
}

#[test]
fn a_tree_is_open_until_its_runs_have_ended_and_its_calls_of_models_are_settled() {
    let mut log = events();
    assert!(is_open(&log.lines), "a call is reserved");
    let settled = spending::Event::Settled(Box::new(Settled {
        call: model_call(),
        answered: Answered::Whole,
        status: Some(200),
        tokens: None,
        cost: None,
        tools: Vec::new(),
        tool_calls: 0,
        is_streamed: false,
        first_byte_ms: None,
        duration_ms: 5,
        contents: None,
    }));
    let subject = settled.subject(&log.tenant);
    log.add(child(), &subject, None, settled);
    assert!(!is_open(&log.lines));
    let without_result = |line: &&Line| !Subject::is_result(&line.subject);
    let unended: Vec<_> = log.lines.iter().filter(without_result).cloned().collect();
    assert!(is_open(&unended), "nothing has ended");
}
