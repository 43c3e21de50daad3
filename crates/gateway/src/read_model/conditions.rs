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
    /// Where its runs are, what the place of their launch is called there, and what holds of them.
    fn source(&self) -> (&'static str, &'static str, Statement) {
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
                        let _ = write!(sql, " AND runs.{column} = ?");
                        values.push(value.into());
                    }
                }
                ("runs", "runs.launch_sequence", (sql, values))
            }
            Self::Label { name, value } => {
                let sql = "run_labels.name = ? AND run_labels.value = ?".to_owned();
                let values = vec![name.clone().into(), value.clone().into()];
                ("run_labels", "run_labels.launch_sequence", (sql, values))
            }
            Self::Text(words) => {
                let sql = "run_texts MATCH ?".to_owned();
                (
                    "run_texts",
                    "run_texts.rowid",
                    (sql, vec![words.clone().into()]),
                )
            }
        }
    }

    /// How many runs it fits, counted up to [`COUNTED_MAX`].
    fn count(&self, connection: &Connection) -> rusqlite::Result<u64> {
        let (table, _, (sql, values)) = self.source();
        let sql =
            format!("SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {sql} LIMIT {COUNTED_MAX})");
        connection
            .prepare_cached(&sql)?
            .query_row(params_from_iter(values), |row| row.get(0))
    }

    /// That it holds of a run of which so many others are looked at.
    fn holds(&self, looked_at: u64, fits: u64) -> Statement {
        let (table, place, (sql, values)) = self.source();
        let sql = match self {
            Self::Runs { .. } => sql,
            // To find all of a rare word once is quicker than to look for it in each of many runs.
            Self::Text(_) if looked_at > LOOKED_UP_MAX && fits < COUNTED_MAX => {
                format!("runs.launch_sequence IN (SELECT {place} FROM {table} WHERE {sql})")
            }
            _ => format!(
                "EXISTS (SELECT 1 FROM {table} WHERE {place} = runs.launch_sequence AND {sql})"
            ),
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
        let (table, place, (walked, mut values)) = fewest.source();
        let mut sql = format!("SELECT {COLUMNS} FROM {table}");
        if table != "runs" {
            // In this order: the planner does not know which is shorter.
            let _ = write!(sql, " CROSS JOIN runs ON runs.launch_sequence = {place}");
        }
        let _ = write!(sql, " WHERE {walked} AND {place} < ?");
        values.push(before.into());
        if is_roots_only {
            sql.push_str(" AND runs.parent IS NULL");
        }
        // Columns of the run itself first, since they are at hand.
        counted.sort_by_key(|(_, condition)| !matches!(condition, Condition::Runs { .. }));
        for (fits, condition) in counted {
            let (holds, more) = condition.holds(looked_at, fits);
            let _ = write!(sql, " AND {holds}");
            values.extend(more);
        }
        let _ = write!(sql, " ORDER BY {place} DESC LIMIT ?");
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
