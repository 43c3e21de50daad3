//! The content of the tables for a run as a JSON object: actual and expected.
//!
//! The expected content follows from replayed runs alone and shares no code with [`super::feed`], so that it reveals
//! errors there.

use std::collections::BTreeMap;

use aod_api::dead_letters::DeadLetterState;
use aod_api::runs::ErrorView;
use aod_domain::dead_letter::State;
use aod_domain::id::RunId;
use aod_domain::run::{DeadLetterReason, Payload};
use jiff::Timestamp;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use serde_json::{Map, Value, json};

use crate::reading::views::Seen;

/// The records of a tree at one moment.
#[derive(Debug)]
pub(crate) struct Kept {
    /// Sequence of the last applied event.
    pub(crate) as_of: u64,
    /// Records by run id.
    pub(crate) runs: BTreeMap<String, Value>,
}

/// The expected record of a run, and of its state as a dead letter.
pub(crate) fn of(seen: &Seen, dead_letter: Option<State>) -> Value {
    let (run, summary) = (&seen.run, seen.summary());
    let launched = &run.launched.event;
    let ended = run.ended();
    let reason = ended.and_then(|ended| ended.event.dead_letter());
    let (dead_state, requeued_as) = match dead_letter {
        None => (None, None),
        Some(State::Open) => (Some(DeadLetterState::Open), None),
        Some(State::Requeued(run)) => (Some(DeadLetterState::Requeued), Some(run)),
        Some(State::Purged) => (Some(DeadLetterState::Purged), None),
    };
    let error = ended.and_then(|ended| ended.event.error.clone());
    let error = error.map(ErrorView::from);
    json!({
        "launch_sequence": run.launched.sequence,
        "root": summary.root,
        "tenant": summary.tenant,
        "parent": summary.parent,
        "kind": summary.kind,
        "capsule": summary.capsule,
        "state": summary.state,
        "attempts": summary.attempts,
        "node": summary.node,
        "requested_at": summary.requested_at,
        "requested_at_ms": summary.requested_at.as_millisecond(),
        "leased_at": summary.leased_at,
        "ended_at": summary.ended_at,
        "requested_by": summary.requested_by,
        "labels": launched.labels,
        "labels_indexed": launched.labels,
        "error": error,
        "deadline_ms": launched.deadline.as_millisecond(),
        "is_ended": u8::from(ended.is_some()),
        "is_cancelled": u8::from(run.cancel.is_some()),
        "queued_until_ms": run.queued_until().map(Timestamp::as_millisecond),
        "deliveries_counted": run.deliveries.counted,
        "queue": launched.placement.queue(),
        "queued_at_ms": run.queued_at.map(Timestamp::as_millisecond),
        "dead_reason": reason.map(DeadLetterReason::as_str),
        "dead_state": dead_state.map(DeadLetterState::as_str),
        "requeued_as": requeued_as,
        "arguments_indexed": match &launched.payload {
            Payload::Inline(value) => value.to_string(),
            Payload::Artifact { .. } => String::new(),
        },
        "error_indexed": error.map_or_else(String::new, |error| {
            format!("{} {}", error.code, error.message)
        }),
    })
}

/// The records of the tree of `root`: runs with this root, and runs with an id of this tree.
pub(super) fn read(connection: &Connection, root: RunId) -> rusqlite::Result<Kept> {
    // All reads see the same state of the file.
    let transaction = connection.unchecked_transaction()?;
    let as_of: Option<u64> = transaction
        .query_row("SELECT sequence FROM position", [], |row| row.get(0))
        .optional()?;
    // The id of a callee is that of its root, `-`, and its own part; `.` is the character after `-`.
    let sql = "SELECT * FROM runs WHERE root = ?1 OR (id >= ?1 AND id < ?1 || '.')";
    let mut statement = transaction.prepare_cached(sql)?;
    let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let rows = statement.query_map(params![root.to_string()], |row| {
        let mut record = record(&columns, row)?;
        indexed(&transaction, &mut record)?;
        let id = record.remove("id").unwrap_or_default();
        // The spending events of the tree have a chain of their own.
        record.remove("cost");
        Ok((
            id.as_str().unwrap_or_default().to_owned(),
            Value::Object(record),
        ))
    })?;
    Ok(Kept {
        as_of: as_of.unwrap_or_default(),
        runs: rows.collect::<rusqlite::Result<_>>()?,
    })
}

/// A row without changes; invalid JSON stays a string.
fn record(columns: &[String], row: &Row<'_>) -> rusqlite::Result<Map<String, Value>> {
    let mut record = Map::new();
    for (index, name) in columns.iter().enumerate() {
        let value = match row.get_ref(index)? {
            ValueRef::Null => Value::Null,
            ValueRef::Integer(number) => json!(number),
            ValueRef::Real(number) => json!(number),
            ValueRef::Text(text) => {
                let text = String::from_utf8_lossy(text);
                let parsed = match name.as_str() {
                    "labels" | "error" => serde_json::from_str(&text).ok(),
                    _ => None,
                };
                parsed.unwrap_or_else(|| json!(text))
            }
            ValueRef::Blob(bytes) => json!(format!("{} bytes", bytes.len())),
        };
        record.insert(name.clone(), value);
    }
    Ok(record)
}

/// Adds the content of the other tables.
fn indexed(connection: &Connection, record: &mut Map<String, Value>) -> rusqlite::Result<()> {
    let launch = record.get("launch_sequence").and_then(Value::as_i64);
    let launch = launch.unwrap_or_default();
    let sql = "SELECT name, value FROM run_labels WHERE launch_sequence = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let labels = statement.query_map(params![launch], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?.into()))
    })?;
    let labels: Map<String, Value> = labels.collect::<rusqlite::Result<_>>()?;
    record.insert("labels_indexed".to_owned(), Value::Object(labels));
    let sql = "SELECT arguments, error FROM run_texts WHERE rowid = ?1";
    let texts: Option<(String, String)> = connection
        .prepare_cached(sql)?
        .query_row(params![launch], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    if let Some((arguments, error)) = texts {
        record.insert("arguments_indexed".to_owned(), arguments.into());
        record.insert("error_indexed".to_owned(), error.into());
    }
    Ok(())
}
