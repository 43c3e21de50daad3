//! Conditions of a list of runs, as SQL that reads as few runs as possible.
//!
//! Each condition has an index in the order of the launches. A page walks the index of the condition with the fewest
//! runs backwards, and checks the other conditions for each run. Its cost therefore depends on the number of results,
//! not on the number of runs.

use std::fmt::Write as _;

use aod_api::runs::RunState;
use aod_domain::selection::CLOCKS_APART_MAX;
use aod_domain::tenant::Tenant;
use jiff::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use super::query::{COLUMNS, Filter};

/// Maximum number of runs counted to find the condition with the fewest runs: this takes a millisecond.
const COUNTED_MAX: u64 = 20_000;

/// Maximum number of runs looked up one by one in the texts, a hundredth of a millisecond each.
const LOOKED_UP_MAX: u64 = 1_000;

/// A condition that has an index of its own.
#[derive(Clone, Debug)]
enum Condition {
    /// Columns of the runs, with an index for each combination.
    Runs {
        tenant: Option<Tenant>,
        state: Option<RunState>,
        capsule: Option<String>,
    },
    /// The start of the id.
    Id(String),
    Label {
        name: String,
        value: String,
    },
    /// A query of FTS5.
    Text(String),
}

/// SQL with the values of its parameters.
type Statement = (String, Vec<Value>);

impl Condition {
    /// The table of its runs.
    const fn table(&self) -> &'static str {
        match self {
            Self::Runs { .. } | Self::Id(_) => "runs",
            Self::Label { .. } => "run_labels",
            Self::Text(_) => "run_texts",
        }
    }

    /// The column with the sequence of the launch.
    const fn place(&self) -> &'static str {
        match self {
            Self::Runs { .. } | Self::Id(_) | Self::Label { .. } => "launch_sequence",
            Self::Text(_) => "rowid",
        }
    }

    /// The condition as SQL, with `alias` for its table.
    fn statement(&self, alias: &str) -> Statement {
        match self {
            Self::Runs {
                tenant,
                state,
                capsule,
            } => {
                let (mut sql, mut values) = ("1".to_owned(), Vec::new());
                let given = [
                    ("tenant", tenant.as_ref().map(Tenant::to_string)),
                    ("state", state.map(|state| state.as_str().to_owned())),
                    ("capsule", capsule.clone()),
                ];
                for (column, value) in given {
                    if let Some(value) = value {
                        let _ = write!(sql, " AND {alias}.{column} = ?");
                        values.push(value.into());
                    }
                }
                (sql, values)
            }
            Self::Id(start) => {
                // All characters of ids are before `~`.
                let sql = format!("{alias}.id >= ? AND {alias}.id < ? || '~'");
                (sql, vec![start.clone().into(), start.clone().into()])
            }
            Self::Label { name, value } => {
                let sql = format!("{alias}.name = ? AND {alias}.value = ?");
                (sql, vec![name.clone().into(), value.clone().into()])
            }
            Self::Text(words) => {
                let sql = format!("{alias}.run_texts MATCH ?");
                (sql, vec![words.clone().into()])
            }
        }
    }

    /// The index of its runs in the order of their launches, if its table has several indexes.
    fn index(&self) -> &'static str {
        let Self::Runs {
            tenant,
            state,
            capsule,
        } = self
        else {
            return "";
        };
        match (tenant.is_some(), capsule.is_some(), state.is_some()) {
            (false, false, false) => "",
            (false, false, true) => "INDEXED BY runs_by_state",
            (false, true, false) => "INDEXED BY runs_by_capsule",
            (false, true, true) => "INDEXED BY runs_by_capsule_and_state",
            (true, false, false) => "INDEXED BY runs_by_tenant",
            (true, false, true) => "INDEXED BY runs_by_tenant_and_state",
            (true, true, false) => "INDEXED BY runs_by_tenant_and_capsule",
            (true, true, true) => "INDEXED BY runs_by_tenant_capsule_and_state",
        }
    }

    /// Number of matching runs, counted up to [`COUNTED_MAX`].
    fn count(&self, connection: &Connection) -> rusqlite::Result<u64> {
        let table = self.table();
        let (sql, values) = self.statement(table);
        let sql =
            format!("SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {sql} LIMIT {COUNTED_MAX})");
        connection
            .prepare_cached(&sql)?
            .query_row(params_from_iter(values), |row| row.get(0))
    }

    /// SQL that checks the condition for the run launched at `launch`, one of `looked_at` runs.
    fn holds(&self, launch: &str, looked_at: u64, fits: u64) -> Statement {
        let (table, place, index) = (self.table(), self.place(), self.index());
        let (sql, values) = self.statement("other");
        let is_text = matches!(self, Self::Text(_));
        // Finding all runs with a rare word once is faster than checking each of many runs.
        let sql = if is_text && looked_at > LOOKED_UP_MAX && fits < COUNTED_MAX {
            format!("{launch} IN (SELECT other.{place} FROM {table} AS other WHERE {sql})")
        } else {
            format!(
                "EXISTS (SELECT 1 FROM {table} AS other {index} WHERE other.{place} = {launch} AND {sql})"
            )
        };
        (sql, values)
    }
}

/// All conditions of a list, of runs in at most one state.
#[derive(Debug)]
pub(super) struct Conditions {
    all: Vec<Condition>,
    is_roots_only: bool,
    /// Milliseconds since 1970.
    since: Option<i64>,
    until: Option<i64>,
}

impl Conditions {
    pub(super) fn of(filter: &Filter, state: Option<RunState>) -> Self {
        let labels = filter.labels.iter().map(|(name, value)| Condition::Label {
            name: name.clone(),
            value: value.clone(),
        });
        let mut all: Vec<Condition> = labels.collect();
        all.extend(filter.text.as_deref().map(as_words).map(Condition::Text));
        all.extend(filter.id.clone().map(Condition::Id));
        let is_of_columns = filter.tenant.is_some() || state.is_some() || filter.capsule.is_some();
        if is_of_columns || all.is_empty() {
            all.push(Condition::Runs {
                tenant: filter.tenant.clone(),
                state,
                capsule: filter.capsule.clone(),
            });
        }
        Self {
            all,
            is_roots_only: filter.is_roots_only,
            since: filter.since.map(Timestamp::as_millisecond),
            until: filter.until.map(Timestamp::as_millisecond),
        }
    }

    /// The latest `limit` runs launched before `before`.
    pub(super) fn page(
        self,
        connection: &Connection,
        before: i64,
        limit: usize,
    ) -> rusqlite::Result<Statement> {
        let is_roots_only = self.is_roots_only;
        let period = (self.since, self.until);
        let mut counted = self.counted(connection)?;
        counted.sort_by_key(|(fits, _)| *fits);
        let (looked_at, fewest) = counted.remove(0);
        let table = fewest.table();
        // For a start of an id, the plus prevents a walk over all runs in their order instead of the index of ids.
        let plus = if matches!(fewest, Condition::Id(_)) {
            "+"
        } else {
            ""
        };
        let launch = format!("{plus}{table}.{}", fewest.place());
        let (walked, mut values) = fewest.statement(table);
        let mut sql = format!("SELECT {COLUMNS} FROM {table}");
        if table != "runs" {
            // Fixes the order: the planner does not know which table has fewer rows.
            let _ = write!(sql, " CROSS JOIN runs ON runs.launch_sequence = {launch}");
        }
        let _ = write!(sql, " WHERE {walked} AND {launch} < ?");
        values.push(before.into());
        if is_roots_only {
            sql.push_str(" AND runs.parent IS NULL");
        }
        let (within, times) = within(&launch, period);
        sql.push_str(&within);
        values.extend(times);
        // Texts last: their lookups cost most.
        counted.sort_by_key(|(_, condition)| matches!(condition, Condition::Text(_)));
        for (fits, condition) in counted {
            // Check the walked table first; the run, which is much longer, is read only if all conditions hold.
            let (holds, more) = condition.holds(&launch, looked_at, fits);
            let _ = write!(sql, " AND {holds}");
            values.extend(more);
        }
        let _ = write!(sql, " ORDER BY {launch} DESC LIMIT ?");
        values.push(i64::try_from(limit).unwrap_or(i64::MAX).into());
        Ok((sql, values))
    }

    /// Number of matching runs of each condition; a single condition needs no count.
    fn counted(self, connection: &Connection) -> rusqlite::Result<Vec<(u64, Condition)>> {
        let is_single = self.all.len() == 1;
        let count = |condition: Condition| {
            let fits = if is_single {
                0
            } else {
                condition.count(connection)?
            };
            Ok((fits, condition))
        };
        self.all.into_iter().map(count).collect()
    }
}

/// SQL that checks the time of the request. The order of launches is that of their times, except for
/// [`CLOCKS_APART_MAX`]: the walk therefore skips runs that are clearly outside the period.
fn within(launch: &str, (since, until): (Option<i64>, Option<i64>)) -> Statement {
    let apart = CLOCKS_APART_MAX.as_secs() * 1_000;
    let (mut sql, mut values) = (String::new(), Vec::new());
    if let Some(since) = since {
        let _ = write!(
            sql,
            " AND runs.requested_at_ms >= ? AND {launch} > coalesce((SELECT clearly.launch_sequence FROM runs AS clearly
                INDEXED BY runs_by_time WHERE clearly.requested_at_ms < ? ORDER BY clearly.requested_at_ms DESC LIMIT 1), 0)"
        );
        values.extend([since.into(), (since - apart).into()]);
    }
    if let Some(until) = until {
        let _ = write!(
            sql,
            " AND runs.requested_at_ms < ? AND {launch} < coalesce((SELECT clearly.launch_sequence FROM runs AS clearly
                INDEXED BY runs_by_time WHERE clearly.requested_at_ms > ? ORDER BY clearly.requested_at_ms LIMIT 1), ?)"
        );
        values.extend([until.into(), (until + apart).into(), i64::MAX.into()]);
    }
    (sql, values)
}

/// `text` as a query of FTS5: all words must occur, each as it is.
fn as_words(text: &str) -> String {
    let words = text
        .split_whitespace()
        .map(|word| format!("\"{}\"", word.replace('"', "\"\"")));
    words.collect::<Vec<_>>().join(" ")
}
