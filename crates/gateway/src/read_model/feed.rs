//! From the log into the tables: batches, each with its position in one transaction.

use std::path::Path;
use std::time::Duration;

use aod_api::dead_letters::DeadLetterState;
use aod_api::runs::{ErrorView, RunState};
use aod_domain::dead_letter;
use aod_domain::digest::Digest;
use aod_domain::event::Recorded;
use aod_domain::id::RunId;
use aod_domain::run::{
    DELIVERIES_COUNTED_MAX, DeadLetterReason, Ended, Event, Launched, Note, Payload, queued_until,
};
use aod_domain::subject::{self, Subject};
use aod_ports::event_log::{EventLog, From, StoredEvent, Told};
use aod_ports::program::blocking;
use futures::StreamExt as _;
use jiff::Timestamp;
use rusqlite::{Connection, params};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{ReadModelError, files, schema};
use crate::views::{kind_of, node_of, state_of_note};

/// Events of one transaction: enough to make its cost small beside theirs.
const BATCH_MAX: usize = 512;

/// Goes on with `writer`, or with one of its own.
pub(super) async fn follow(
    path: &Path,
    writer: Option<Connection>,
    delay: Duration,
    log: &dyn EventLog,
    applied: &watch::Sender<u64>,
    shutdown: CancellationToken,
) -> Result<(), ReadModelError> {
    let failed = |source| ReadModelError::Sqlite {
        path: path.to_owned(),
        source,
    };
    let mut writer = writer
        .map_or_else(|| schema::open_writer(path), Ok)
        .map_err(failed)?;
    let after = *applied.borrow();
    let told = log.follow(subject::ALL, From::After(after)).await?;
    let mut told = std::pin::pin!(tokio_stream::StreamExt::chunks_timeout(
        told, BATCH_MAX, delay
    ));
    loop {
        let batch = tokio::select! {
            biased;
            batch = told.next() => batch,
            () = shutdown.cancelled() => return Ok(()),
        };
        let Some(batch) = batch else { return Ok(()) };
        let events: Vec<StoredEvent> = batch.into_iter().filter_map(into_event).collect();
        let Some(last) = events.last().map(|stored| stored.sequence) else {
            continue;
        };
        let (returned, result) = blocking(move || {
            let result = apply(&mut writer, &events);
            (writer, result)
        })
        .await;
        writer = returned;
        result.map_err(failed)?;
        applied.send_replace(last);
    }
}

fn into_event(told: Told) -> Option<StoredEvent> {
    match told {
        Told::Event(stored) => Some(stored),
        Told::Reconnected => None,
    }
}

/// Takes `events` in, all or none.
pub(super) fn apply(connection: &mut Connection, events: &[StoredEvent]) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    for stored in events {
        apply_one(&transaction, stored)?;
    }
    if let Some(last) = events.last() {
        let sql = "INSERT INTO position (only_row, sequence, hash) VALUES (1, ?1, ?2)
             ON CONFLICT (only_row) DO UPDATE SET sequence = excluded.sequence, hash = excluded.hash";
        let hash = Digest::of(&last.bytes).to_string();
        transaction
            .prepare_cached(sql)?
            .execute(params![last.sequence, hash])?;
    }
    transaction.commit()
}

fn apply_one(connection: &Connection, stored: &StoredEvent) -> rusqlite::Result<()> {
    files::take(connection, stored)?;
    if Subject::is_dead_letter(&stored.subject) {
        return match stored.decode() {
            Ok(recorded) => apply_dead_letter(connection, &recorded.event),
            Err(error) => {
                tracing::error!(sequence = stored.sequence, %error, "left out of the lists");
                Ok(())
            }
        };
    }
    let Some(run) = Subject::run_of(&stored.subject) else {
        return Ok(());
    };
    if Subject::is_state(&stored.subject) {
        match stored.decode::<Event>() {
            Ok(recorded) => apply_event(connection, run, &recorded)?,
            Err(error) => {
                tracing::error!(sequence = stored.sequence, %error, "left out of the lists");
            }
        }
    } else if let Ok(recorded) = stored.decode::<Note>() {
        apply_note(connection, run, &recorded.event)?;
    }
    Ok(())
}

fn apply_event(
    connection: &Connection,
    run: RunId,
    recorded: &Recorded<Event>,
) -> rusqlite::Result<()> {
    let id = run.to_string();
    match &recorded.event {
        Event::Launched(launched) | Event::Reused(launched) => {
            insert(connection, run, recorded, launched, RunState::Queued)
        }
        Event::Requested(launched) => {
            insert(connection, run, recorded, launched, RunState::Requested)
        }
        Event::Delivered(_) => {
            let sql = "UPDATE runs SET deliveries_counted = deliveries_counted + 1 WHERE id = ?1";
            connection
                .prepare_cached(sql)?
                .execute(params![id])
                .map(drop)
        }
        Event::Leased(lease) => {
            let node = node_of(&lease.holder).map(|node| node.to_string());
            let sql = "UPDATE runs SET state = 'leased', queued_at_ms = NULL, attempts = ?2, node = ?3,
                deliveries_counted = iif(deliveries_counted > ?4, deliveries_counted, 0) WHERE id = ?1";
            connection
                .prepare_cached(sql)?
                .execute(params![id, lease.attempt, node, DELIVERIES_COUNTED_MAX])
                .map(drop)
        }
        Event::Admitted(_) | Event::AttemptLost(_) | Event::Refused(_) => {
            queue(connection, &id, recorded.time)
        }
        Event::Returned(_) => {
            let sql = "UPDATE runs SET state = 'requested', queued_at_ms = NULL WHERE id = ?1";
            connection
                .prepare_cached(sql)?
                .execute(params![id])
                .map(drop)
        }
        Event::AttemptFailed(failed) => queue(connection, &id, failed.rests_until(recorded.time)),
        Event::CancelRequested(_) => {
            let sql = "UPDATE runs SET is_cancelled = 1 WHERE id = ?1";
            connection
                .prepare_cached(sql)?
                .execute(params![id])
                .map(drop)
        }
        Event::Ended(ended) => end(connection, &id, recorded, ended),
        Event::Sealed(_) => Ok(()),
    }
}

/// The run waits for a node, since `at` or from then on.
fn queue(connection: &Connection, id: &str, at: Timestamp) -> rusqlite::Result<()> {
    let sql = "UPDATE runs SET state = 'queued', queued_at_ms = ?2 WHERE id = ?1";
    connection
        .prepare_cached(sql)?
        .execute(params![id, at.as_millisecond()])
        .map(drop)
}

fn insert(
    connection: &Connection,
    run: RunId,
    recorded: &Recorded<Event>,
    launched: &Launched,
    state: RunState,
) -> rusqlite::Result<()> {
    let kind = match kind_of(&launched.work) {
        aod_api::runs::RunKind::Capsule => "capsule",
        aod_api::runs::RunKind::Build => "build",
    };
    let labels = serde_json::to_string(&launched.labels).expect("texts are plain data");
    connection
        .prepare_cached(
            "INSERT OR IGNORE INTO runs (launch_sequence, id, root, parent, kind, capsule, state, attempts,
             requested_at, requested_by, labels, deadline_ms, is_ended, is_cancelled, queued_until_ms, deliveries_counted,
             tenant, queue, queued_at_ms)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?12, 0, ?7, ?8, ?9, ?10, 0, 0, ?11, 0, ?13, ?14, ?15)",
        )?
        .execute(params![
            recorded.sequence,
            run.to_string(),
            run.root().to_string(),
            launched.parent.as_ref().map(|parent| parent.run.to_string()),
            kind,
            launched.work.name().as_str(),
            recorded.time.to_string(),
            launched.requested_by,
            labels,
            launched.deadline.as_millisecond(),
            queued_until(recorded.time, launched).map(Timestamp::as_millisecond),
            state.as_str(),
            launched.tenant.as_str(),
            launched.placement.queue().as_str(),
            (state == RunState::Queued).then(|| recorded.time.as_millisecond()),
        ])?;
    for (name, value) in &launched.labels {
        let sql =
            "INSERT OR IGNORE INTO run_labels (name, value, launch_sequence) VALUES (?1, ?2, ?3)";
        connection
            .prepare_cached(sql)?
            .execute(params![name, value, recorded.sequence])?;
    }
    let arguments = match &launched.payload {
        Payload::Inline(value) => value.to_string(),
        Payload::Artifact { .. } => String::new(),
    };
    let sql = "INSERT OR REPLACE INTO run_texts (rowid, arguments, error) VALUES (?1, ?2, '')";
    connection
        .prepare_cached(sql)?
        .execute(params![recorded.sequence, arguments])
        .map(drop)
}

fn end(
    connection: &Connection,
    id: &str,
    recorded: &Recorded<Event>,
    ended: &Ended,
) -> rusqlite::Result<()> {
    let state = RunState::from(ended.outcome).as_str();
    let error = ended.error.clone().map(ErrorView::from);
    let error_json = error
        .as_ref()
        .map(|error| serde_json::to_string(error).expect("an error is plain data"));
    connection
        .prepare_cached(
            "UPDATE runs SET state = ?2, queued_at_ms = NULL, ended_at = ?3, error = ?4, attempts = ?5, is_ended = 1,
             dead_reason = ?6, dead_state = iif(?6 IS NULL, NULL, 'open') WHERE id = ?1",
        )?
        .execute(params![
            id,
            state,
            recorded.time.to_string(),
            error_json,
            ended.attempt,
            ended.dead_letter().map(DeadLetterReason::as_str)
        ])?;
    if let Some(error) = error {
        let sql = "UPDATE run_texts SET error = ?2 WHERE rowid = (SELECT launch_sequence FROM runs WHERE id = ?1)";
        let text = format!("{} {}", error.code, error.message);
        connection.prepare_cached(sql)?.execute(params![id, text])?;
    }
    Ok(())
}

fn apply_dead_letter(connection: &Connection, event: &dead_letter::Event) -> rusqlite::Result<()> {
    let (state, requeued_as) = match event {
        dead_letter::Event::Requeued { requeued_as, .. } => {
            (DeadLetterState::Requeued, Some(requeued_as.to_string()))
        }
        dead_letter::Event::Purged { .. } => (DeadLetterState::Purged, None),
    };
    let sql = "UPDATE runs SET dead_state = ?2, requeued_as = ?3 WHERE id = ?1";
    connection
        .prepare_cached(sql)?
        .execute(params![
            event.run().to_string(),
            state.as_str(),
            requeued_as
        ])
        .map(drop)
}

/// A note of a former attempt, or one that comes late, changes nothing.
fn apply_note(connection: &Connection, run: RunId, note: &Note) -> rusqlite::Result<()> {
    let sql = "UPDATE runs SET state = ?2 WHERE id = ?1 AND is_ended = 0 AND attempts = ?3 AND state <> 'queued'";
    let Some(state) = state_of_note(note) else {
        return Ok(());
    };
    connection
        .prepare_cached(sql)?
        .execute(params![
            run.to_string(),
            state.as_str(),
            note.kind().attempt
        ])
        .map(drop)
}
