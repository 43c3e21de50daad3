//! Parses the acknowledgement subject of a delivery.
//!
//! ```text
//! $JS.ACK.<stream>.<consumer>.<delivery>.<stream seq>.<consumer seq>.<time ns>.<pending>
//! $JS.ACK.<domain>.<account>.<stream>.<consumer>.<delivery>. … .<pending>[.<random>]
//! ```
//!
//! Source: nats-server `server/consumer.go`, `replyInfo`, and ADR-15.

/// The content of an acknowledgement subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AckSubject {
    /// Number of deliveries of the message, from 1.
    pub(crate) delivery: u64,
    /// Sequence of the message in the stream.
    pub(crate) stream_sequence: u64,
    /// Number of the consumer's delivery, from 1.
    pub(crate) consumer_sequence: u64,
    /// Time when the stream stored the message, in nanoseconds since 1970.
    pub(crate) stored_nanoseconds: i64,
}

/// Tokens before the delivery count of the short form.
const SHORT_PREFIX_TOKENS: usize = 4;
const SHORT_TOKENS: usize = 9;

/// Tokens before the delivery count of the form with domain and account.
const LONG_PREFIX_TOKENS: usize = 6;
const LONG_TOKENS_MIN: usize = 11;

impl AckSubject {
    /// Parses both forms; none for other subjects.
    pub(crate) fn parse(subject: &str) -> Option<Self> {
        let tokens: Vec<&str> = subject.split('.').collect();
        let prefix = match tokens.len() {
            SHORT_TOKENS => SHORT_PREFIX_TOKENS,
            LONG_TOKENS_MIN.. => LONG_PREFIX_TOKENS,
            _ => return None,
        };
        if tokens[..2] != ["$JS", "ACK"] {
            return None;
        }
        let mut numbers = tokens[prefix..].iter();
        Some(Self {
            delivery: numbers.next()?.parse().ok()?,
            stream_sequence: numbers.next()?.parse().ok()?,
            consumer_sequence: numbers.next()?.parse().ok()?,
            stored_nanoseconds: numbers.next()?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_parsed() {
        let expected = AckSubject {
            delivery: 3,
            stream_sequence: 8,
            consumer_sequence: 5,
            stored_nanoseconds: 1_700_000_000_000_000_000,
        };
        for subject in [
            "$JS.ACK.WORK.any-child.3.8.5.1700000000000000000.1",
            "$JS.ACK._.hash.WORK.any-child.3.8.5.1700000000000000000.1",
            "$JS.ACK.hub.hash.WORK.any-child.3.8.5.1700000000000000000.1.random",
        ] {
            assert_eq!(AckSubject::parse(subject), Some(expected), "{subject}");
        }
    }

    #[test]
    fn other_subjects_are_rejected() {
        for subject in [
            "",
            "$JS.FC.WORK.x",
            "$JS.ACK.WORK.c.x.8.5.1.1",
            "a.b.c.d.1.2.3.4.5",
        ] {
            assert_eq!(AckSubject::parse(subject), None, "{subject}");
        }
    }
}
