//! Run ids as people type them: in full, as a unique prefix, or as `@last`.

use aod_api::runs::{RunPage, RunSummary};
use aod_domain::id::RunId;

use super::Client;
use crate::failure::Failure;

/// The latest root of the caller's tenant.
const LAST: &str = "@last";

/// The start of every run id.
const START: &str = "run_";

/// Maximum number of runs that a message about an ambiguous prefix names.
const CANDIDATES_MAX: usize = 8;

/// The run that a text names.
#[derive(Debug, PartialEq, Eq)]
enum Named {
    Run(RunId),
    Last,
    Prefix(String),
}

impl Named {
    /// `run_` may be missing, and letters may be small.
    fn parse(text: &str) -> Option<Self> {
        if text == LAST {
            return Some(Self::Last);
        }
        let digits = text
            .strip_prefix(START)
            .unwrap_or(text)
            .to_ascii_uppercase();
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if digits.is_empty() || !digits.bytes().all(is_part) {
            return None;
        }
        let text = format!("{START}{digits}");
        Some(text.parse().map_or(Self::Prefix(text), Self::Run))
    }

    /// The query for the runs that the text can mean. The id of a callee begins with the id of its root, so a prefix
    /// without `-` means a root.
    fn query(&self) -> Vec<(&'static str, String)> {
        let (limit, prefix) = match self {
            Self::Prefix(prefix) => (CANDIDATES_MAX, Some(prefix)),
            Self::Run(_) | Self::Last => (1, None),
        };
        let mut query = vec![("limit", limit.to_string())];
        if prefix.is_none_or(|prefix| !prefix.contains('-')) {
            query.push(("roots", "true".to_owned()));
        }
        query.extend(prefix.map(|prefix| ("id", prefix.clone())));
        query
    }
}

impl Client {
    /// The id of the run that `text` names.
    pub(crate) async fn run_id(&self, text: &str) -> Result<RunId, Failure> {
        let named = Named::parse(text).ok_or_else(|| {
            Failure::usage(format!("{text:?} is not a run id")).with_hint(format!(
                "expected an id, a unique prefix of an id, or {LAST}"
            ))
        })?;
        if let Named::Run(id) = named {
            return Ok(id);
        }
        let page: RunPage = self.get("/v1/runs", &named.query()).await?;
        match &page.items[..] {
            [run] => Ok(run.id),
            [] if named == Named::Last => {
                Err(Failure::usage("there is no run yet").with_hint("start one with `aod run`"))
            }
            [] => Err(Failure::usage(format!("no run id begins with {text}"))
                .with_hint("`aod runs ls` lists the runs")),
            several => Err(ambiguous(text, several, page.next.is_some())),
        }
    }
}

fn ambiguous(text: &str, runs: &[RunSummary], has_more: bool) -> Failure {
    let mut lines: Vec<String> = runs
        .iter()
        .map(|run| format!("{}  {}  {}", run.id, run.capsule, run.state.as_str()))
        .collect();
    if has_more {
        lines.push("and more".to_owned());
    }
    Failure::usage(format!("several run ids begin with {text}"))
        .with_details(lines)
        .with_hint("type more characters of the id")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "run_06H0DZA0PHTQF7V6G2FG22N1S4";

    fn prefix(text: &str) -> Named {
        Named::Prefix(text.to_owned())
    }

    #[test]
    fn text_names_a_run_a_prefix_or_the_last_run() {
        let id = ROOT.parse().expect("an id");
        assert_eq!(Named::parse(ROOT), Some(Named::Run(id)));
        assert_eq!(Named::parse(&ROOT[4..]), Some(Named::Run(id)));
        assert_eq!(Named::parse("@last"), Some(Named::Last));
        assert_eq!(Named::parse("06h0d"), Some(prefix("run_06H0D")));
        assert_eq!(Named::parse("run_06H0-1"), Some(prefix("run_06H0-1")));
        for text in ["", "run_", "@first", "a b", "../x"] {
            assert_eq!(Named::parse(text), None, "{text}");
        }
    }

    #[test]
    fn prefix_without_dash_means_a_root() {
        let has_roots = |text: &str| {
            let query = Named::parse(text).expect("a name").query();
            query.iter().any(|(name, _)| *name == "roots")
        };
        assert!(has_roots("@last") && has_roots("06H0") && !has_roots("06H0-1"));
    }

    #[test]
    fn ambiguous_prefix_names_the_candidates() {
        let run = serde_json::json!({
            "id": ROOT, "root": ROOT, "kind": "capsule", "capsule": "chart", "state": "running", "attempts": 1,
            "requested_at": "2026-03-01T12:00:00Z", "requested_by": "operator",
        });
        let run = serde_json::from_value(run).expect("a run");
        assert_eq!(
            ambiguous("06h", &[run], true).render(),
            format!(
                "error: several run ids begin with 06h\n  {ROOT}  chart  running\n  and more\n\
                 hint: type more characters of the id"
            )
        );
    }
}
