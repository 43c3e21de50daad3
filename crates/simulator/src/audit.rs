//! Every tree is sealed, and its verification finds nothing.

use aod_domain::audit::{Checker, Entry, FindingKind, Line, bundled_by};
use aod_domain::event::Recorded;
use aod_domain::id::RunId;
use aod_domain::run::Event;
use aod_domain::subject::Subject;
use jiff::Timestamp;

use crate::cluster::Cluster;

/// Verifies the tree of `root` as a bundle.
pub(crate) fn check(cluster: &Cluster, root: RunId) {
    let mut checker = Checker::new(root, None);
    let mut is_sealed = false;
    let events = cluster.broker.events().into_iter();
    for stored in events.filter(|stored| is_below(root, &stored.subject)) {
        let recorded = Recorded::<Event>::decode(stored.sequence, &stored.bytes);
        let event = recorded.ok().map(|recorded| recorded.event);
        for named in event.iter().flat_map(bundled_by) {
            let digest = named.digest;
            let bytes = cluster.objects.get(digest);
            let deleted_at = cluster.broker.has_deleted(digest).then_some(Timestamp::MIN);
            checker.take(match bytes {
                Some(bytes) => Entry::Artifact {
                    digest,
                    size_bytes: bytes.len() as u64,
                    found: digest,
                },
                None => Entry::Missing { digest, deleted_at },
            });
        }
        if matches!(event, Some(Event::Sealed(_))) && !is_sealed {
            is_sealed = true;
            checker.take(Entry::Seal(stored.bytes.to_vec()));
            continue;
        }
        let line = Line {
            sequence: stored.sequence,
            subject: stored.subject,
            bytes: stored.bytes.to_vec(),
        };
        checker.take(if is_sealed {
            Entry::Late(line)
        } else {
            Entry::Event(line)
        });
    }
    let world = &cluster.world;
    if !is_sealed {
        world.violation(format!("the tree of {root} has no seal"));
    }
    for finding in checker.finish().findings {
        match finding.kind {
            FindingKind::LateEvent => world.count("late event"),
            FindingKind::DeletedArtifact => world.count("deleted artifact"),
            _ => world.violation(format!("the tree of {root}: {finding}")),
        }
    }
}

fn is_below(root: RunId, subject: &str) -> bool {
    Subject::run_of(subject).is_some_and(|run| run.root() == root)
        && subject.split('.').nth(2) == Some("run")
}
