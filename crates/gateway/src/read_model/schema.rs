//! The file of the read model: its tables, and the check that it belongs to the log.

use std::path::Path;

use aod_domain::digest::Digest;
use aod_domain::subject;
use aod_ports::event_log::{EventLog, ReadError};
use aod_services::disk;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};

use super::ReadModelError;

/// Increment the number with each change of the tables: the gateway then builds a new file and leaves the old one.
pub(super) const FILE_NAME: &str = "read-model-6.sqlite3";

/// Marks a file whose tables are complete.
const IS_COMPLETE: i64 = 1;

/// `cost` is that of the run and all runs below it, in picodollars. `launch_sequence`, the sequence of the launch in the log, defines the order.
const TABLES: &str = "
CREATE TABLE IF NOT EXISTS position (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), sequence INTEGER NOT NULL, hash TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS runs (
    launch_sequence INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    root TEXT NOT NULL,
    tenant TEXT NOT NULL,
    parent TEXT,
    kind TEXT NOT NULL,
    capsule TEXT NOT NULL,
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    node TEXT,
    requested_at TEXT NOT NULL,
    requested_at_ms INTEGER NOT NULL,
    leased_at TEXT,
    ended_at TEXT,
    requested_by TEXT NOT NULL,
    labels TEXT NOT NULL,
    error TEXT,
    deadline_ms INTEGER NOT NULL,
    is_ended INTEGER NOT NULL,
    is_cancelled INTEGER NOT NULL,
    queued_until_ms INTEGER,
    deliveries_counted INTEGER NOT NULL,
    queue TEXT NOT NULL,
    queued_at_ms INTEGER,
    dead_reason TEXT,
    dead_state TEXT,
    requeued_as TEXT,
    cost INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS runs_by_root ON runs (root);
CREATE INDEX IF NOT EXISTS runs_by_parent ON runs (parent) WHERE parent IS NOT NULL;
CREATE INDEX IF NOT EXISTS runs_by_state ON runs (state, launch_sequence);
CREATE INDEX IF NOT EXISTS runs_by_capsule ON runs (capsule, launch_sequence);
CREATE INDEX IF NOT EXISTS runs_by_capsule_and_state ON runs (capsule, state, launch_sequence);
CREATE INDEX IF NOT EXISTS runs_by_tenant ON runs (tenant, launch_sequence);
CREATE INDEX IF NOT EXISTS runs_by_tenant_and_state ON runs (tenant, state, launch_sequence);
CREATE INDEX IF NOT EXISTS runs_by_tenant_and_capsule ON runs (tenant, capsule, launch_sequence);
CREATE INDEX IF NOT EXISTS runs_by_tenant_capsule_and_state ON runs (tenant, capsule, state, launch_sequence);
CREATE INDEX IF NOT EXISTS runs_roots_by_tenant ON runs (tenant, launch_sequence) WHERE parent IS NULL;
CREATE INDEX IF NOT EXISTS runs_roots ON runs (launch_sequence) WHERE parent IS NULL;
CREATE INDEX IF NOT EXISTS runs_roots_by_capsule ON runs (capsule, launch_sequence) WHERE parent IS NULL;
CREATE INDEX IF NOT EXISTS runs_by_end ON runs (substr(ended_at, 1, 19), launch_sequence);
CREATE INDEX IF NOT EXISTS runs_by_time ON runs (requested_at_ms, launch_sequence);
CREATE INDEX IF NOT EXISTS runs_queued ON runs (queue, queued_at_ms) WHERE queued_at_ms IS NOT NULL;
CREATE INDEX IF NOT EXISTS runs_requested ON runs (launch_sequence) WHERE state = 'queued' AND queued_at_ms IS NULL;
CREATE INDEX IF NOT EXISTS runs_live ON runs (deadline_ms) WHERE is_ended = 0;
CREATE INDEX IF NOT EXISTS runs_dead ON runs (launch_sequence) WHERE dead_reason IS NOT NULL;
CREATE TABLE IF NOT EXISTS run_labels (name TEXT NOT NULL, value TEXT NOT NULL, launch_sequence INTEGER NOT NULL, PRIMARY KEY (name, value, launch_sequence)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS run_labels_by_run ON run_labels (launch_sequence);
CREATE TABLE IF NOT EXISTS settled_calls (call TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS files (tenant TEXT NOT NULL, digest BLOB NOT NULL, PRIMARY KEY (tenant, digest)) WITHOUT ROWID;
CREATE VIRTUAL TABLE IF NOT EXISTS run_texts USING fts5 (arguments, error);
";

/// Maximum time that a reader waits for the writer, in milliseconds; in WAL mode, this wait is rare.
const BUSY_MILLISECONDS: u32 = 5_000;

/// Opens the file for writing and returns its position; rebuilds a damaged file, or one of another log.
pub(super) async fn open(
    directory: &Path,
    path: &Path,
    log: &dyn EventLog,
) -> Result<(Connection, u64), ReadModelError> {
    let unusable = |source| ReadModelError::Directory {
        path: directory.to_owned(),
        source,
    };
    std::fs::create_dir_all(directory).map_err(unusable)?;
    disk::make_private_file(path).map_err(unusable)?;
    if let Ok(connection) = open_writer(path) {
        let position = position(&connection).ok();
        if let Some((sequence, hash)) = position
            && is_of_log(sequence, &hash, log).await?
        {
            return Ok((connection, sequence));
        }
    }
    tracing::info!(path = %path.display(), "rebuilding the read model");
    for suffix in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        // A missing file needs no removal; if another error occurs here, opening the file fails.
        drop(std::fs::remove_file(name));
    }
    disk::make_private_file(path).map_err(unusable)?;
    let failed = |source| ReadModelError::Sqlite {
        path: path.to_owned(),
        source,
    };
    Ok((open_writer(path).map_err(failed)?, 0))
}

/// Opens the file for writing and creates missing tables.
pub(super) fn open_writer(path: &Path) -> rusqlite::Result<Connection> {
    let mut connection = Connection::open(path)?;
    keep_plans(&connection)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "busy_timeout", BUSY_MILLISECONDS)?;
    let state: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if state != IS_COMPLETE {
        let transaction = connection.transaction()?;
        transaction.execute_batch(TABLES)?;
        transaction.pragma_update(None, "user_version", IS_COMPLETE)?;
        transaction.commit()?;
    }
    Ok(connection)
}

/// Opens the file for reading only.
pub(super) fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    keep_plans(&connection)?;
    connection.pragma_update(None, "busy_timeout", BUSY_MILLISECONDS)?;
    Ok(connection)
}

/// Plans each statement once. By default, SQLite plans again for other values because of statistics, which this file
/// does not have.
fn keep_plans(connection: &Connection) -> rusqlite::Result<()> {
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)
        .map(drop)
}

/// Sequence and hash of the last applied event.
fn position(connection: &Connection) -> rusqlite::Result<(u64, String)> {
    let row = connection.query_row("SELECT sequence, hash FROM position", [], |row| {
        Ok((row.get(0)?, row.get(1)?))
    });
    Ok(row.optional()?.unwrap_or_default())
}

/// Whether the log still has the event `sequence` with `hash`.
async fn is_of_log(sequence: u64, hash: &str, log: &dyn EventLog) -> Result<bool, ReadError> {
    let Some(before) = sequence.checked_sub(1) else {
        return Ok(true);
    };
    let found = log.read(subject::ALL, before, 1).await?;
    Ok(found.first().is_some_and(|stored| {
        stored.sequence == sequence && Digest::of(&stored.bytes).to_string() == hash
    }))
}
