//! Asks a server's monitoring whether the server syncs each write.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use aod_ports::BoxError;

/// Whether confirmed writes survive a power failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The server syncs before it confirms.
    Synced,
    /// The server confirms first: a power failure loses up to its `sync_interval`, two minutes by default.
    Unsynced,
    /// Monitoring is not configured, or did not answer.
    Unknown,
}

/// Time limit of the whole request, in seconds.
const MONITORING_SECONDS_MAX: u64 = 3;

/// Maximum size of the answer, in bytes: `/varz` has some 10 KB.
const ANSWER_BYTES_MAX: u64 = 1024 * 1024;

/// The setting that the warnings recommend.
const HINT: &str = "set `jetstream { sync_interval: always }` in the server's configuration";

/// Checks and warns, once for each connection.
pub(crate) async fn check(monitoring_url: Option<&str>) -> Durability {
    let Some(url) = monitoring_url else {
        tracing::warn!(
            "unknown whether the broker syncs each write, because no monitoring URL is configured; {HINT}"
        );
        return Durability::Unknown;
    };
    let patience = Duration::from_secs(MONITORING_SECONDS_MAX);
    let answer = match tokio::time::timeout(patience, ask(url)).await {
        Ok(answer) => answer,
        Err(elapsed) => Err(elapsed.into()),
    };
    match answer {
        Ok(true) => Durability::Synced,
        Ok(false) => {
            tracing::warn!(
                "the broker confirms writes before they are on disk; a power failure loses the latest writes; {HINT}"
            );
            Durability::Unsynced
        }
        Err(error) => {
            tracing::warn!(
                error,
                "unknown whether the broker syncs each write: the monitoring at {url} does not respond"
            );
            Durability::Unknown
        }
    }
}

/// A minimal HTTP/1.0 client: one request; the connection ends with the answer. Monitoring uses only `http`.
async fn ask(url: &str) -> Result<bool, BoxError> {
    let address = url
        .strip_prefix("http://")
        .map(|rest| rest.trim_end_matches('/'))
        .ok_or("invalid monitoring URL; expected http://host:port")?;
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /varz HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream
        .take(ANSWER_BYTES_MAX)
        .read_to_end(&mut answer)
        .await?;
    parse(&answer)
}

fn parse(answer: &[u8]) -> Result<bool, BoxError> {
    let separator = b"\r\n\r\n";
    let head_length = answer
        .windows(separator.len())
        .position(|window| window == separator)
        .ok_or("the answer is not HTTP")?;
    let (head, body) = answer.split_at(head_length);
    let status = String::from_utf8_lossy(head)
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned();
    if !status.contains(" 200 ") {
        return Err(format!("the monitoring answered {status:?}").into());
    }
    let varz: Value = serde_json::from_slice(&body[separator.len()..])?;
    let config = varz
        .pointer("/jetstream/config")
        .ok_or("JetStream is not enabled on the server")?;
    Ok(config
        .get("sync_always")
        .and_then(Value::as_bool)
        .unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_of_monitoring_is_parsed() {
        let answer =
            |body: &str| parse(format!("HTTP/1.0 200 OK\r\nA: b\r\n\r\n{body}").as_bytes());
        assert!(answer(r#"{"jetstream":{"config":{"sync_always":true}}}"#).unwrap());
        assert!(!answer(r#"{"jetstream":{"config":{"sync_interval":1}}}"#).unwrap());
        assert!(answer(r#"{"jetstream":{}}"#).is_err());
        assert!(answer("not JSON").is_err());
        assert!(parse(b"HTTP/1.0 404 Not Found\r\n\r\n{}").is_err());
        assert!(parse(b"").is_err());
    }
}
