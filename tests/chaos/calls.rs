//! Where calls of runs waited, according to the logs of nodes.

use aod_domain::id::RunId;
use jiff::{SignedDuration, Timestamp};

/// The node's log message for a call that moves to another gateway.
const MOVED: &str = "a call continues at another gateway";

/// The node's log message for an answered call.
const ANSWERED: &str = "a call was answered";

/// How a stay ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The call moved to another gateway.
    Moved,
    Answered,
}

/// The wait of one call at one gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stay {
    pub(crate) run: RunId,
    pub(crate) callee: RunId,
    /// The URL of the gateway.
    pub(crate) gateway: String,
    pub(crate) began: Timestamp,
    pub(crate) ended: Timestamp,
    pub(crate) how: End,
}

impl Stay {
    /// All stays in a node's log.
    pub(crate) fn all(log: &str) -> Vec<Self> {
        log.lines().filter_map(Self::read).collect()
    }

    fn read(line: &str) -> Option<Self> {
        let (how, gateway) = if line.contains(MOVED) {
            (End::Moved, "before")
        } else if line.contains(ANSWERED) {
            (End::Answered, "url")
        } else {
            return None;
        };
        let ended: Timestamp = line.split_whitespace().next()?.parse().ok()?;
        let waited: i64 = field(line, "waited_ms")?.parse().ok()?;
        Some(Self {
            run: field(line, "run")?.parse().ok()?,
            callee: field(line, "callee")?.parse().ok()?,
            gateway: field(line, gateway)?.to_owned(),
            began: ended - SignedDuration::from_millis(waited),
            ended,
            how,
        })
    }
}

/// The value of `name` in a line of a log.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let value = |pair: &'a str| pair.strip_prefix(name)?.strip_prefix('=');
    let value = line.split_whitespace().find_map(value)?;
    Some(value.trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stay_is_parsed_from_its_final_log_line() {
        let run: RunId = "run_01JBX3T5Y4Q8Z6W7V2N1M0K9H8".parse().expect("an id");
        let log = format!(
            "2026-11-21T10:00:07.500000Z  INFO aod_node::gateways::speaker: {MOVED} run={run} callee={run} \
             before=\"http://10.0.0.1:8700\" waited_ms=7250 url=\"http://10.0.0.2:8700\"\n\
             2026-11-21T10:00:08.000000Z DEBUG aod_node::gateways::speaker: {ANSWERED} run={run} \
             callee={run} url=\"http://10.0.0.2:8700\" waited_ms=500\n\
             2026-11-21T10:00:09.000000Z  INFO aod_node: something else\n"
        );
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        let stay = |gateway: &str, began, ended, how| Stay {
            run,
            callee: run,
            gateway: gateway.to_owned(),
            began: at(began),
            ended: at(ended),
            how,
        };
        let (first, second) = ("http://10.0.0.1:8700", "http://10.0.0.2:8700");
        assert_eq!(
            Stay::all(&log),
            [
                stay(
                    first,
                    "2026-11-21T10:00:00.25Z",
                    "2026-11-21T10:00:07.5Z",
                    End::Moved
                ),
                stay(
                    second,
                    "2026-11-21T10:00:07.5Z",
                    "2026-11-21T10:00:08Z",
                    End::Answered
                ),
            ]
        );
    }
}
