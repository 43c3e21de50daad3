//! Applies events to the tables in batches; each transaction also stores the position.

use std::path::Path;
use std::time::Duration;

use aod_api::dead_letters::DeadLetterState;
use aod_api::runs::{ErrorView, RunState};
use aod_domain::dead_letter;
use aod_domain::digest::Digest;
use aod_domain::event::Recorded;
use aod_domain::id::RunId;
use aod_domain::run::{
    DELIVERIES_COUNTED_MAX, DeadLetterReason, Ended, Event, Launched, Note, Payload, State,
    queued_until,
};
use aod_domain::spending;
use aod_domain::subject::{self, Subject};
use aod_ports::event_log::{EventLog, Followed, From, StoredEvent};
use aod_services::program::blocking;
use futures::StreamExt as _;
use jiff::Timestamp;
use rusqlite::{Connection, params};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{ReadModelError, files, schema};
use crate::reading::views::kind_of;

/// Maximum number of events in a transaction: enough to make its own cost small.
const BATCH_MAX: usize = 512;

/// Follows the log with `writer`, or with a connection of its own.
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
    let followed = log.follow(subject::ALL, From::After(after)).await?;
    let mut followed = std::pin::pin!(tokio_stream::StreamExt::chunks_timeout(
        followed, BATCH_MAX, delay
    ));
    loop {
        let batch = tokio::select! {
            biased;
            batch = followed.next() => batch,
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

fn into_event(followed: Followed) -> Option<StoredEvent> {
    match followed {
        Followed::Event(stored) => Some(stored),
        Followed::Reconnected => None,
    }
}

/// Applies `events`, all or none.
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
                tracing::error!(sequence = stored.sequence, %error, "the read model ignored an unreadable event");
                Ok(())
            }
        };
    }
    let Some(run) = Subject::run_of(&stored.subject) else {
        return Ok(());
    };
    if Subject::is_spending(&stored.subject) {
        return match stored.decode() {
            Ok(recorded) => apply_spending(connection, &recorded.event),
            Err(error) => {
                tracing::error!(sequence = stored.sequence, %error, "the read model ignored an unreadable event");
                Ok(())
            }
        };
    }
    if Subject::is_state(&stored.subject) {
        match stored.decode::<Event>() {
            Ok(recorded) => apply_event(connection, run, &recorded)?,
            Err(error) => {
                tracing::error!(sequence = stored.sequence, %error, "the read model ignored an unreadable event");
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
            insert(connection, run, recorded, launched, Some(recorded.time))
        }
        Event::Requested(launched) => insert(connection, run, recorded, launched, None),
        Event::Delivered(_) => {
            let sql = "UPDATE runs SET deliveries_counted = deliveries_counted + 1 WHERE id = ?1";
            connection
                .prepare_cached(sql)?
                .execute(params![id])
                .map(drop)
        }
        Event::Leased(lease) => {
            let node = lease.holder.node().map(|node| node.to_string());
            let sql = "UPDATE runs SET state = 'starting', queued_at_ms = NULL, attempts = ?2, node = ?3, leased_at = ?5,
                deliveries_counted = iif(deliveries_counted > ?4, deliveries_counted, 0) WHERE id = ?1";
            connection
                .prepare_cached(sql)?
                .execute(params![
                    id,
                    lease.attempt,
                    node,
                    DELIVERIES_COUNTED_MAX,
                    recorded.time.to_string()
                ])
                .map(drop)
        }
        Event::Admitted(_) | Event::AttemptLost(_) | Event::AttemptRefused(_) => {
            queue(connection, &id, recorded.time)
        }
        Event::AdmissionReturned(_) => {
            let sql = "UPDATE runs SET state = 'queued', queued_at_ms = NULL WHERE id = ?1";
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
        Event::StepEnded(_) | Event::Sealed(_) => Ok(()),
    }
}

/// Marks the run as waiting for a node since `at`, which may be in the future.
fn queue(connection: &Connection, id: &str, at: Timestamp) -> rusqlite::Result<()> {
    let sql = "UPDATE runs SET state = 'queued', queued_at_ms = ?2 WHERE id = ?1";
    connection
        .prepare_cached(sql)?
        .execute(params![id, at.as_millisecond()])
        .map(drop)
}

/// Adds the run; `queued_at` is missing if it waits for admission.
fn insert(
    connection: &Connection,
    run: RunId,
    recorded: &Recorded<Event>,
    launched: &Launched,
    queued_at: Option<Timestamp>,
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
             tenant, queue, queued_at_ms, requested_at_ms)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?12, 0, ?7, ?8, ?9, ?10, 0, 0, ?11, 0, ?13, ?14, ?15, ?16)",
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
            RunState::Queued.as_str(),
            launched.tenant.as_str(),
            launched.placement.queue().as_str(),
            queued_at.map(Timestamp::as_millisecond),
            recorded.time.as_millisecond(),
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
    let state = RunState::from(State::from(ended.outcome)).as_str();
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

/// Adds the cost of a call of a model to its run and all runs above it.
fn apply_spending(connection: &Connection, event: &spending::Event) -> rusqlite::Result<()> {
    let spending::Event::Settled(settled) = event else {
        return Ok(());
    };
    let Some(cost) = settled.cost else {
        return Ok(());
    };
    // A node may store the end of a call twice.
    let sql = "INSERT OR IGNORE INTO settled_calls (call) VALUES (?1)";
    let mut statement = connection.prepare_cached(sql)?;
    if statement.execute([settled.call.id.to_string()])? == 0 {
        return Ok(());
    }
    let sql = "UPDATE runs SET cost = cost + ?2 WHERE id IN (
        WITH RECURSIVE above (id) AS (
            VALUES (?1) UNION SELECT runs.parent FROM above JOIN runs ON runs.id = above.id WHERE runs.parent IS NOT NULL)
        SELECT id FROM above)";
    connection
        .prepare_cached(sql)?
        .execute(params![settled.call.run.to_string(), cost.picodollars()])
        .map(drop)
}

/// A late note, or a note of an earlier attempt, changes nothing.
fn apply_note(connection: &Connection, run: RunId, note: &Note) -> rusqlite::Result<()> {
    let sql = "UPDATE runs SET state = ?2 WHERE id = ?1 AND is_ended = 0 AND attempts = ?3 AND state <> 'queued'";
    let Some(state) = State::begun_by(note).map(RunState::from) else {
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
