//! Retention policies, holds, and results of garbage collection.

use std::fmt::Write as _;

use aod_api::retention::{
    ArtifactCount, CapsuleStorage, Collection, HoldView, PolicyView, SetPolicy,
};

use super::table::{finish, nothing, plain};
use super::units;

/// The policies as a table.
pub(crate) fn policies(policies: &[PolicyView]) -> String {
    if policies.is_empty() {
        return nothing("policies");
    }
    let mut table = plain(&["POLICY", "FOR", "LOGS", "FILES", "CAPSULES"]);
    for PolicyView { name, policy } in policies {
        let keep = |keep: &Option<String>| keep.clone().unwrap_or_default();
        table.add_row([
            name.clone(),
            scope(policy),
            keep(&policy.logs),
            keep(&policy.files),
            keep(&policy.capsules),
        ]);
    }
    finish(&mut table)
}

/// A policy as a sentence.
pub(crate) fn sentence(view: &PolicyView) -> String {
    let classes = [
        ("logs", &view.policy.logs),
        ("files", &view.policy.files),
        ("capsules", &view.policy.capsules),
    ];
    let stated = classes
        .iter()
        .filter_map(|(class, keep)| Some(format!("{class} {}", keep.as_ref()?)));
    let stated: Vec<String> = stated.collect();
    let (name, scope) = (&view.name, scope(&view.policy));
    format!("policy {name} for {scope} keeps {}", stated.join(", "))
}

fn scope(policy: &SetPolicy) -> String {
    let mut parts = Vec::new();
    if !policy.for_tenants.is_empty() {
        parts.push(format!("tenant {}", policy.for_tenants.join(" or ")));
    }
    if !policy.for_capsules.is_empty() {
        parts.push(policy.for_capsules.join(", "));
    }
    let labels = policy.for_labels.iter();
    parts.extend(labels.map(|(name, value)| format!("{name}={value}")));
    if !policy.for_outcomes.is_empty() {
        parts.push(policy.for_outcomes.join(" or "));
    }
    if parts.is_empty() {
        return "all trees".to_owned();
    }
    parts.join(", ")
}

/// The holds as a table.
pub(crate) fn holds(holds: &[HoldView]) -> String {
    if holds.is_empty() {
        return nothing("holds");
    }
    let mut table = plain(&["TREE", "SINCE", "BY", "REASON"]);
    for hold in holds {
        table.add_row([
            hold.run.to_string(),
            hold.held_at.strftime("%Y-%m-%d %H:%M:%SZ").to_string(),
            hold.held_by.clone(),
            hold.reason.clone(),
        ]);
    }
    finish(&mut table)
}

/// Deleted artifacts by class, then kept artifacts by reason, one per line; then a table of registered capsules.
pub(crate) fn collection(collection: &Collection) -> String {
    let mut text = String::new();
    let (verb, kept) = if collection.dry_run {
        ("would delete", "would keep")
    } else {
        ("deleted", "kept")
    };
    lines(&mut text, verb, &collection.deleted, deleted_class);
    lines(&mut text, kept, &collection.kept, kept_reason);
    if let Some(failure) = &collection.failure {
        let failed = collection.failed;
        let _ = writeln!(text, "{failed} could not be deleted: {failure}");
    }
    if !collection.capsules.is_empty() {
        let _ = write!(text, "\n{}", capsules(&collection.capsules));
    }
    text
}

fn capsules(capsules: &[CapsuleStorage]) -> String {
    let mut table = plain(&["CAPSULE", "TENANT", "STORED", "ONLY THIS CAPSULE"]);
    for it in capsules {
        table.add_row([
            it.capsule.clone(),
            it.tenant.clone(),
            units::bytes(it.size_bytes),
            units::bytes(it.own_bytes),
        ]);
    }
    finish(&mut table)
}

fn lines(text: &mut String, head: &str, counts: &[ArtifactCount], words: fn(&str) -> &str) {
    if counts.is_empty() {
        let _ = writeln!(text, "{head:<12} nothing");
    }
    for count in counts {
        let size = units::bytes(count.size_bytes);
        let (artifacts, words) = (count.artifacts, words(&count.kind));
        let _ = writeln!(text, "{head:<12} {artifacts:>8}  {size:>9}  {words}");
    }
}

fn deleted_class(kind: &str) -> &str {
    match kind {
        "unnamed" => "not referred to by any event",
        other => other,
    }
}

fn kept_reason(kind: &str) -> &str {
    match kind {
        "held" => "of trees with a hold",
        "archive" => "of the archive of the log",
        "registered" => "of registered capsules",
        "live" => "of trees with unfinished runs or open dead letters",
        "unknown" => "named by events that this version does not understand",
        "policy" => "within the time of a policy",
        "no_policy" => "of ended trees, without a policy",
        "young" => "stored or named within the last day",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn policy_is_printed_as_a_sentence() {
        let policy = SetPolicy {
            for_tenants: vec!["acme".into()],
            for_capsules: vec!["survey".into()],
            for_labels: BTreeMap::from([("team".into(), "birds".into())]),
            for_outcomes: vec!["failed".into(), "timed_out".into()],
            logs: Some("30d".into()),
            files: None,
            capsules: Some("forever".into()),
        };
        let view = PolicyView {
            name: "birds".into(),
            policy,
        };
        assert_eq!(
            sentence(&view),
            "policy birds for tenant acme, survey, team=birds, failed or timed_out keeps logs 30d, capsules forever"
        );
    }

    #[test]
    fn deleted_artifacts_are_listed_before_kept_ones() {
        let count = |kind: &str, artifacts, size_bytes| ArtifactCount {
            kind: kind.into(),
            artifacts,
            size_bytes,
        };
        let mut result = Collection {
            dry_run: false,
            deleted: vec![count("unnamed", 3, 3 << 20), count("logs", 120, 1 << 30)],
            kept: vec![count("held", 7, 512), count("young", 1, 0)],
            capsules: vec![CapsuleStorage {
                tenant: "default".into(),
                capsule: "survey".into(),
                size_bytes: 400 << 20,
                own_bytes: 12 << 10,
            }],
            failed: 2,
            failure: Some("the store is offline".into()),
            as_of: 7,
        };
        insta::assert_snapshot!(collection(&result), @r"
        deleted             3    3.0 MiB  not referred to by any event
        deleted           120    1.0 GiB  logs
        kept                7      512 B  of trees with a hold
        kept                1        0 B  stored or named within the last day
        2 could not be deleted: the store is offline

        CAPSULE  TENANT   STORED     ONLY THIS CAPSULE
        survey   default  400.0 MiB  12.0 KiB
        ");
        result = Collection {
            dry_run: true,
            deleted: Vec::new(),
            capsules: Vec::new(),
            failure: None,
            ..result
        };
        insta::assert_snapshot!(collection(&result), @r"
        would delete nothing
        would keep          7      512 B  of trees with a hold
        would keep          1        0 B  stored or named within the last day
        ");
    }
}
