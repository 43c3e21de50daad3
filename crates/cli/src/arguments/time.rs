//! Parsing of points in time: RFC 3339, a date, an age, `today` and `yesterday`.

use jiff::civil::Date;
use jiff::{Error, Span, Timestamp, Zoned};

/// Parses a time, in the time zone of this machine.
pub(super) fn time(text: &str) -> Result<Timestamp, String> {
    parse(text, &Zoned::now()).map_err(|_| {
        "expected a time such as 2026-03-01T12:00:00Z, a date such as 2026-03-01, an age such as 2h or 3d, \
         today or yesterday"
            .to_owned()
    })
}

fn parse(text: &str, now: &Zoned) -> Result<Timestamp, Error> {
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    let time = match text {
        "today" => now.start_of_day()?,
        "yesterday" => now.yesterday()?.start_of_day()?,
        text => match text.parse::<Date>() {
            Ok(date) => date.to_zoned(now.time_zone().clone())?,
            Err(_) => now.checked_sub(text.parse::<Span>()?.abs())?,
        },
    };
    Ok(time.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_a_timestamp_date_age_or_word() {
        let now: Zoned = "2026-03-02T12:00:00+01:00[Europe/Paris]"
            .parse()
            .expect("a time");
        for (text, expected) in [
            ("2026-03-01T12:00:00Z", "2026-03-01T12:00:00Z"),
            ("2026-02-01", "2026-01-31T23:00:00Z"),
            ("90s", "2026-03-02T10:58:30Z"),
            ("2h", "2026-03-02T09:00:00Z"),
            ("3d", "2026-02-27T11:00:00Z"),
            ("today", "2026-03-01T23:00:00Z"),
            ("yesterday", "2026-02-28T23:00:00Z"),
        ] {
            let time = parse(text, &now).map(|time| time.to_string());
            assert_eq!(time.ok().as_deref(), Some(expected), "{text}");
        }
        for text in ["", "noon", "2", "h"] {
            assert!(parse(text, &now).is_err(), "{text}");
        }
    }
}
