//! What must hold of the runs of a list, as SQL that walks through as few of them as can be.
//!
//! Each condition has an index in the order of the launches. A page walks one of them backwards, the one that
//! fits the fewest runs, and looks at each run whether the others hold too: so what is asked for costs what it
//! finds, not what there is.

use std::fmt::Write as _;

use aod_api::runs::RunState;
use aod_domain::tenant::Tenant;
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use super::query::{COLUMNS, Filter};

/// Runs that are counted to find the condition that fits the fewest: a millisecond.
const COUNTED_MAX: u64 = 20_000;

/// Up to so many runs are looked up one by one in the texts, a hundredth of a millisecond each.
const LOOKED_UP_MAX: u64 = 1_000;

/// One condition that has an index of its own.
#[derive(Clone, Debug)]
enum Condition {
    /// Columns of the runs, with an index for each combination.
    Runs {
        tenant: Option<Tenant>,
        state: Option<RunState>,
        capsule: Option<String>,
    },
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
    /// Where its runs are.
    const fn table(&self) -> &'static str {
        match self {
            Self::Runs { .. } => "runs",
            Self::Label { .. } => "run_labels",
            Self::Text(_) => "run_texts",
        }
    }

    /// What the place of a launch is called there.
    const fn place(&self) -> &'static str {
        match self {
            Self::Runs { .. } | Self::Label { .. } => "launch_sequence",
            Self::Text(_) => "rowid",
        }
    }

    /// What holds of its runs in its table, which goes by `alias`.
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

    /// The index that has its runs by the place of their launches, where its table has several.
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

    /// How many runs it fits, counted up to [`COUNTED_MAX`].
    fn count(&self, connection: &Connection) -> rusqlite::Result<u64> {
        let table = self.table();
        let (sql, values) = self.statement(table);
        let sql =
            format!("SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {sql} LIMIT {COUNTED_MAX})");
        connection
            .prepare_cached(&sql)?
            .query_row(params_from_iter(values), |row| row.get(0))
    }

    /// That it holds of the run that was launched at `launch`, of which so many others are looked at.
    fn holds(&self, launch: &str, looked_at: u64, fits: u64) -> Statement {
        let (table, place, index) = (self.table(), self.place(), self.index());
        let (sql, values) = self.statement("other");
        let is_text = matches!(self, Self::Text(_));
        // To find all of a rare word once is quicker than to look for it in each of many runs.
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
}

impl Conditions {
    pub(super) fn of(filter: &Filter, state: Option<RunState>) -> Self {
        let labels = filter.labels.iter().map(|(name, value)| Condition::Label {
            name: name.clone(),
            value: value.clone(),
        });
        let mut all: Vec<Condition> = labels.collect();
        all.extend(filter.text.as_deref().map(as_words).map(Condition::Text));
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
        let mut counted = self.counted(connection)?;
        counted.sort_by_key(|(fits, _)| *fits);
        let (looked_at, fewest) = counted.remove(0);
        let table = fewest.table();
        let launch = format!("{table}.{}", fewest.place());
        let (walked, mut values) = fewest.statement(table);
        let mut sql = format!("SELECT {COLUMNS} FROM {table}");
        if table != "runs" {
            // In this order: the planner does not know which is shorter.
            let _ = write!(sql, " CROSS JOIN runs ON runs.launch_sequence = {launch}");
        }
        let _ = write!(sql, " WHERE {walked} AND {launch} < ?");
        values.push(before.into());
        if is_roots_only {
            sql.push_str(" AND runs.parent IS NULL");
        }
        // Texts last, in which a run costs the most to look up.
        counted.sort_by_key(|(_, condition)| matches!(condition, Condition::Text(_)));
        for (fits, condition) in counted {
            // Of what is walked, not of the run, which is much longer and is read only if all holds.
            let (holds, more) = condition.holds(&launch, looked_at, fits);
            let _ = write!(sql, " AND {holds}");
            values.extend(more);
        }
        let _ = write!(sql, " ORDER BY {launch} DESC LIMIT ?");
        values.push(i64::try_from(limit).unwrap_or(i64::MAX).into());
        Ok((sql, values))
    }

    /// How many runs each condition fits; a single one need not be counted.
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

/// `text` as a query of FTS5: each word as it is, all of which must occur.
fn as_words(text: &str) -> String {
    let words = text
        .split_whitespace()
        .map(|word| format!("\"{}\"", word.replace('"', "\"\"")));
    words.collect::<Vec<_>>().join(" ")
}
