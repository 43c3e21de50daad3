//! Queries: pages, counts, and runs for the reconciler.

use aod_api::dead_letters::DeadLetterSummary;
use aod_api::runs::{RunKind, RunState, RunSummary};
use aod_domain::digest::Digest;
use aod_domain::id::RunId;
use aod_domain::run::{ATTEMPTS_LOST_MAX, DELIVERIES_COUNTED_MAX};
use aod_domain::spending::Cost;
use aod_domain::tenant::Tenant;
use jiff::Timestamp;
use rusqlite::types::Type;
use rusqlite::{Connection, Row, ToSql, params, params_from_iter};
use serde::de::DeserializeOwned;

use super::conditions::Conditions;
use crate::parameters::Parameters;
use aod_domain::access::Principal;

/// Filter of a list of runs; empty fields match every run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    pub(super) tenant: Option<Tenant>,
    states: Vec<RunState>,
    pub(super) capsule: Option<String>,
    /// The start of the id.
    pub(super) id: Option<String>,
    pub(super) labels: Vec<(String, String)>,
    pub(super) text: Option<String>,
    pub(super) is_roots_only: bool,
    pub(super) since: Option<Timestamp>,
    pub(super) until: Option<Timestamp>,
}

impl Filter {
    /// Takes the filters from `parameters`, which collects problems.
    pub(crate) fn read(parameters: &mut Parameters, principal: &Principal) -> Self {
        let mut filter = Self {
            tenant: parameters.tenant(principal),
            capsule: parameters.text("capsule"),
            id: parameters.text("id"),
            ..Self::default()
        };
        filter.text = parameters
            .text("text")
            .filter(|text| !text.trim().is_empty());
        filter.is_roots_only = parameters
            .value("roots", "true or false")
            .unwrap_or_default();
        let time = "a time such as 2026-03-01T12:00:00Z";
        filter.since = parameters.value("since", time);
        filter.until = parameters.value("until", time);
        for text in parameters.all("state") {
            for word in text.split(',').map(str::trim) {
                match RunState::ALL
                    .into_iter()
                    .find(|state| state.as_str() == word)
                {
                    Some(state) => filter.states.push(state),
                    None => parameters
                        .error("state", format!("{word:.80?} given; expected {}", states())),
                }
            }
        }
        for text in parameters.all("label") {
            match text.split_once('=') {
                Some((name, value)) => filter.labels.push((name.to_owned(), value.to_owned())),
                None => {
                    parameters.error("label", format!("{text:.80?} given; expected name=value"));
                }
            }
        }
        filter
    }

    /// All runs that `principal` may see.
    pub(super) fn seen_by(principal: &Principal) -> Self {
        Self {
            tenant: principal.scope.tenant().cloned(),
            ..Self::default()
        }
    }
}

fn states() -> String {
    RunState::ALL.map(RunState::as_str).join(", ")
}

/// A live run that a gateway may have to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Suspect {
    pub(crate) run: RunId,
    pub(crate) parent: Option<RunId>,
    /// Whether its caller has ended.
    pub(crate) is_orphan: bool,
}

pub(super) const COLUMNS: &str = "runs.launch_sequence, runs.id, runs.root, runs.parent, runs.kind, runs.capsule, runs.state, \
    runs.attempts, runs.node, runs.requested_at, runs.ended_at, runs.requested_by, runs.labels, runs.error, runs.tenant, \
    runs.leased_at, runs.cost";

/// Up to `limit` runs launched before `before`, latest first, and the cursor of the next page.
pub(super) fn page(
    connection: &Connection,
    filter: &Filter,
    before: i64,
    limit: usize,
) -> rusqlite::Result<(Vec<RunSummary>, Option<String>)> {
    // One query for each state: each then walks its index in order, however rare its runs are.
    let states: Vec<Option<RunState>> = if filter.states.is_empty() {
        vec![None]
    } else {
        filter.states.iter().copied().map(Some).collect()
    };
    let mut found: Vec<(i64, RunSummary)> = Vec::new();
    for state in states {
        found.extend(page_of_state(connection, filter, state, before, limit + 1)?);
    }
    found.sort_by_key(|(sequence, _)| std::cmp::Reverse(*sequence));
    found.dedup_by_key(|(sequence, _)| *sequence);
    let has_more = found.len() > limit;
    found.truncate(limit);
    let next = found
        .last()
        .filter(|_| has_more)
        .map(|(sequence, _)| format!("{sequence:x}"));
    Ok((found.into_iter().map(|(_, run)| run).collect(), next))
}

/// As [`page`], for dead letters: open ones, or all.
pub(super) fn dead_letters(
    connection: &Connection,
    tenant: Option<&Tenant>,
    is_all: bool,
    before: i64,
    limit: usize,
) -> rusqlite::Result<(Vec<DeadLetterSummary>, Option<String>)> {
    let condition = if is_all {
        ""
    } else {
        "AND runs.dead_state = 'open'"
    };
    let sql = format!(
        "SELECT {COLUMNS}, runs.dead_reason, runs.dead_state, runs.requeued_as FROM runs INDEXED BY runs_dead
         WHERE runs.dead_reason IS NOT NULL AND runs.launch_sequence < ?1 {condition}
             AND (?3 IS NULL OR runs.tenant = ?3)
         ORDER BY runs.launch_sequence DESC LIMIT ?2"
    );
    let most = i64::try_from(limit + 1).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map(params![before, most, tenant.map(Tenant::as_str)], |row| {
        let summary = DeadLetterSummary {
            run: summary(row)?,
            reason: word(row, 17)?,
            dead_letter: word(row, 18)?,
            requeued_as: optional_text(row, 19)?,
        };
        Ok((row.get(0)?, summary))
    })?;
    let mut found: Vec<(i64, DeadLetterSummary)> = rows.collect::<rusqlite::Result<_>>()?;
    let has_more = found.len() > limit;
    found.truncate(limit);
    let last = found.last().filter(|_| has_more);
    let next = last.map(|(sequence, _)| format!("{sequence:x}"));
    Ok((found.into_iter().map(|(_, found)| found).collect(), next))
}

/// Parses the `next` of a page.
pub(super) fn parse_cursor(text: &str) -> Option<i64> {
    i64::from_str_radix(text, 16)
        .ok()
        .filter(|sequence| *sequence > 0)
}

fn page_of_state(
    connection: &Connection,
    filter: &Filter,
    state: Option<RunState>,
    before: i64,
    limit: usize,
) -> rusqlite::Result<Vec<(i64, RunSummary)>> {
    let conditions = Conditions::of(filter, state);
    let (sql, values) = conditions.page(connection, before, limit)?;
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map(params_from_iter(values), |row| {
        Ok((row.get(0)?, summary(row)?))
    })?;
    rows.collect()
}

fn summary(row: &Row<'_>) -> rusqlite::Result<RunSummary> {
    let kind: String = row.get(4)?;
    let state: String = row.get(6)?;
    Ok(RunSummary {
        id: text(row, 1)?,
        root: text(row, 2)?,
        tenant: text(row, 14)?,
        parent: optional_text(row, 3)?,
        kind: if kind == "build" {
            RunKind::Build
        } else {
            RunKind::Capsule
        },
        capsule: row.get(5)?,
        state: RunState::ALL
            .into_iter()
            .find(|known| known.as_str() == state)
            .ok_or_else(|| damaged(6))?,
        attempts: row.get(7)?,
        node: optional_text(row, 8)?,
        requested_at: text(row, 9)?,
        leased_at: optional_text(row, 15)?,
        ended_at: optional_text(row, 10)?,
        requested_by: row.get(11)?,
        cost_usd: Some(Cost::from_picodollars(row.get(16)?))
            .filter(|cost| *cost > Cost::default())
            .map(Cost::dollars),
        labels: json(row, 12)?.unwrap_or_default(),
        error: json(row, 13)?,
    })
}

fn text<T: std::str::FromStr>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    optional_text(row, column)?.ok_or_else(|| damaged(column))
}

fn optional_text<T: std::str::FromStr>(
    row: &Row<'_>,
    column: usize,
) -> rusqlite::Result<Option<T>> {
    let text: Option<String> = row.get(column)?;
    text.map(|text| text.parse().map_err(|_| damaged(column)))
        .transpose()
}

/// A value of an enum, as in JSON.
fn word<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    serde_json::from_value(text.into()).map_err(|_| damaged(column))
}

fn json<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<T>> {
    let text: Option<String> = row.get(column)?;
    text.map(|text| serde_json::from_str(&text).map_err(|_| damaged(column)))
        .transpose()
}

fn damaged(column: usize) -> rusqlite::Error {
    rusqlite::Error::InvalidColumnType(column, format!("column {column}"), Type::Text)
}

/// Number of runs in the tree of `root`, counted up to `limit`.
pub(super) fn count_tree(
    connection: &Connection,
    root: RunId,
    limit: u64,
) -> rusqlite::Result<u64> {
    let sql = "SELECT count(*) FROM (SELECT 1 FROM runs WHERE root = ?1 LIMIT ?2)";
    connection
        .prepare_cached(sql)?
        .query_row(params![root.root().to_string(), limit], |row| row.get(0))
}

/// Whether `tenant` has a file with this content.
pub(super) fn has_file(
    connection: &Connection,
    tenant: &Tenant,
    digest: Digest,
) -> rusqlite::Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM files WHERE tenant = ?1 AND digest = ?2)";
    connection
        .prepare_cached(sql)?
        .query_row(params![tenant.as_str(), digest.as_bytes()], |row| {
            row.get(0)
        })
}

/// Sequence of the first launch whose run has not ended; that of the next event if all have ended.
pub(super) fn first_needed(connection: &Connection) -> rusqlite::Result<u64> {
    let sql = "SELECT coalesce(
        (SELECT min(launch_sequence) FROM runs INDEXED BY runs_live WHERE is_ended = 0),
        (SELECT sequence + 1 FROM position), 1)";
    connection
        .prepare_cached(sql)?
        .query_row([], |row| row.get(0))
}

/// Sequence of the first launch whose run has ended since `since`, by the clock of the program that ended it; none if
/// no run has.
pub(super) fn first_ended_since(
    connection: &Connection,
    since: Timestamp,
) -> rusqlite::Result<Option<u64>> {
    // Stored times have varying precision, so strings compare correctly only up to whole seconds.
    let sql =
        "SELECT min(launch_sequence) FROM runs WHERE substr(ended_at, 1, 19) >= substr(?1, 1, 19)";
    connection
        .prepare_cached(sql)?
        .query_row([since.to_string()], |row| row.get(0))
}

/// For each queue with waiting runs, the time since when its oldest run waits. Each queue costs one index lookup.
pub(super) fn oldest_queued(connection: &Connection) -> rusqlite::Result<Vec<(String, i64)>> {
    let mut statement = connection.prepare_cached(
        "WITH RECURSIVE queues (queue) AS (
            SELECT min(queue) FROM runs INDEXED BY runs_queued WHERE queued_at_ms IS NOT NULL
            UNION ALL
            SELECT (SELECT min(queue) FROM runs INDEXED BY runs_queued
                WHERE queued_at_ms IS NOT NULL AND queue > queues.queue) FROM queues WHERE queues.queue IS NOT NULL)
         SELECT queue, (SELECT min(queued_at_ms) FROM runs INDEXED BY runs_queued
            WHERE queue = queues.queue AND queued_at_ms IS NOT NULL) FROM queues WHERE queue IS NOT NULL",
    )?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}

/// Whether a run waits for admission.
pub(super) fn has_requested(connection: &Connection) -> rusqlite::Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM runs INDEXED BY runs_requested WHERE state = 'queued' AND queued_at_ms IS NULL)";
    connection
        .prepare_cached(sql)?
        .query_row([], |row| row.get(0))
}

/// Live runs that are past their deadline; queued runs that are cancelled, dead-lettered, or past their queue time;
/// runs that a gateway leased to end them; and runs whose caller has ended.
pub(super) fn suspects(
    connection: &Connection,
    now: Timestamp,
    limit: usize,
) -> rusqlite::Result<Vec<Suspect>> {
    let sql = format!(
        "SELECT live.id, live.parent, coalesce(caller.is_ended, 0)
         FROM runs AS live INDEXED BY runs_live LEFT JOIN runs AS caller ON caller.id = live.parent
         WHERE live.is_ended = 0 AND (live.deadline_ms < ?1 OR caller.is_ended = 1
             OR (live.state = 'queued' AND (live.is_cancelled = 1
                 OR (live.attempts = 0 AND live.queued_until_ms < ?1) OR live.attempts >= {ATTEMPTS_LOST_MAX} OR live.deliveries_counted > {DELIVERIES_COUNTED_MAX}))
             OR (live.state = 'starting' AND live.node IS NULL))
         LIMIT ?2"
    );
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let arguments: [&dyn ToSql; 2] = [&now.as_millisecond(), &limit];
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map(&arguments[..], |row| {
        Ok(Suspect {
            run: text(row, 0)?,
            parent: optional_text(row, 1)?,
            is_orphan: row.get(2)?,
        })
    })?;
    rows.collect()
}
