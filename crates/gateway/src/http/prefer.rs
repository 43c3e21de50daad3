//! `Prefer: wait=N` and `Prefer: respond-async` (RFC 7240).

use std::time::Duration;

use axum::http::HeaderMap;

/// Time that the caller wants to wait for a result, at most `wait_max`; none if it does not wait.
pub(crate) fn wait(headers: &HeaderMap, wait_max: Duration) -> Option<Duration> {
    let values = headers
        .get_all("prefer")
        .iter()
        .filter_map(|value| value.to_str().ok());
    let mut preferences = values
        .flat_map(|value| value.split([',', ';']))
        .map(str::trim);
    // The first valid preference applies, as the RFC requires.
    preferences
        .find_map(|preference| match preference.split_once('=') {
            None if preference.eq_ignore_ascii_case("respond-async") => Some(None),
            Some((name, value)) if name.trim().eq_ignore_ascii_case("wait") => {
                let seconds: u64 = value.trim().trim_matches('"').parse().ok()?;
                Some(Some(Duration::from_secs(seconds).min(wait_max)))
            }
            _ => None,
        })
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: &'static str, expected_seconds: Option<u64>) {
        let headers = HeaderMap::from_iter([("prefer".parse().unwrap(), value.parse().unwrap())]);
        let found = wait(&headers, Duration::from_secs(100));
        assert_eq!(found, expected_seconds.map(Duration::from_secs), "{value}");
    }

    #[test]
    fn first_valid_preference_applies() {
        check("wait=30", Some(30));
        check("Wait = \"7\"", Some(7));
        check("respond-async, wait=10", None);
        check("wait=1000000", Some(100));
        check("handling=lenient; wait=5", Some(5));
        check("wait=soon", None);
    }
}
