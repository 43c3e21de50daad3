//! Server-sent events: a stream that continues after its last event when the connection breaks.

use futures::StreamExt as _;
use futures::stream::BoxStream;
use reqwest::Method;
use serde::de::DeserializeOwned;
use tokio::time::sleep;

use super::{Client, RETRY_PAUSE};
use crate::exit::Exit;
use crate::failure::Failure;

/// Maximum event, in bytes: an event of the log has at most 32 KiB, an output line less.
const EVENT_BYTES_MAX: usize = 1 << 20;

/// Maximum consecutive connections without an event, before the stream fails: a minute.
const BARREN_CONNECTIONS_MAX: u32 = 120;

/// As [`BARREN_CONNECTIONS_MAX`], before the first answer of a gateway: a second.
const FIRST_CONNECTIONS_MAX: u32 = 3;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerEvent {
    /// The type, by default `message`.
    pub(crate) kind: String,
    pub(crate) data: String,
}

/// Reads the data of an event.
pub(crate) fn parsed<T: DeserializeOwned>(data: &str) -> Result<T, Failure> {
    serde_json::from_str(data).map_err(|error| {
        Failure::new(Exit::Internal, "an event of the gateway cannot be read").because(&error)
    })
}

/// A stream of events that continues after the last received one.
pub(crate) struct Follow {
    client: Client,
    path: String,
    last_id: String,
    reader: Reader,
    bytes: Option<BoxStream<'static, reqwest::Result<Vec<u8>>>>,
    barren_connections: u32,
}

impl Client {
    /// Follows the events of `path`. The caller must recognize the last event, because a stream that ends is
    /// requested again.
    pub(crate) fn follow(&self, path: String) -> Follow {
        let reader = Reader::default();
        Follow {
            client: self.clone(),
            path,
            last_id: String::new(),
            reader,
            bytes: None,
            barren_connections: 0,
        }
    }
}

impl Follow {
    /// Begins after the event `id`; an empty `id` is the beginning.
    pub(crate) fn after(mut self, id: String) -> Self {
        self.last_id = id;
        self
    }

    /// The id of the last event.
    pub(crate) fn last_id(&self) -> &str {
        &self.last_id
    }

    /// An event that has arrived already.
    pub(crate) fn ready(&mut self) -> Option<ServerEvent> {
        let (id, event) = self.reader.take()?;
        if !id.is_empty() {
            self.last_id = id;
        }
        self.barren_connections = 0;
        Some(event)
    }

    /// The next event.
    pub(crate) async fn next(&mut self) -> Result<ServerEvent, Failure> {
        loop {
            if let Some(event) = self.ready() {
                return Ok(event);
            }
            let Some(bytes) = &mut self.bytes else {
                self.open().await?;
                continue;
            };
            match bytes.next().await {
                Some(Ok(bytes)) => self.reader.feed(&bytes),
                // The connection broke or the gateway stopped: the next loop connects to any gateway.
                Some(Err(_)) | None => self.bytes = None,
            }
        }
    }

    /// Maximum consecutive connections without an event.
    fn most(&self) -> u32 {
        if self.client.has_answered() {
            BARREN_CONNECTIONS_MAX
        } else {
            FIRST_CONNECTIONS_MAX
        }
    }

    async fn open(&mut self) -> Result<(), Failure> {
        if self.barren_connections > 0 {
            sleep(RETRY_PAUSE).await;
        }
        self.barren_connections += 1;
        self.reader = Reader::default();
        let request = self
            .client
            .request(Method::GET, &self.path)
            .header("accept", "text/event-stream");
        let request = request.header("last-event-id", &self.last_id);
        match self.client.send(request).await {
            Ok(response) => {
                let bytes = response
                    .bytes_stream()
                    .map(|bytes| bytes.map(|bytes| bytes.to_vec()));
                self.bytes = Some(bytes.boxed());
                Ok(())
            }
            Err(error) if error.is_passing() && self.barren_connections < self.most() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Parses events. Source: the HTML standard, section "Server-sent events".
#[derive(Debug, Default)]
struct Reader {
    bytes: Vec<u8>,
    id: String,
    kind: String,
    data: Option<String>,
    ready: std::collections::VecDeque<(String, ServerEvent)>,
}

impl Reader {
    fn take(&mut self) -> Option<(String, ServerEvent)> {
        self.ready.pop_front()
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let Some(end) = self.bytes.iter().rposition(|byte| *byte == b'\n') else {
            return self.bound();
        };
        let rest = self.bytes.split_off(end + 1);
        let lines = std::mem::replace(&mut self.bytes, rest);
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(line);
            self.line(line.trim_end_matches(['\n', '\r']));
        }
        self.bound();
    }

    fn bound(&mut self) {
        if self.bytes.len() > EVENT_BYTES_MAX {
            self.bytes.clear();
        }
    }

    fn line(&mut self, line: &str) {
        if line.is_empty() {
            return self.dispatch();
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => value.clone_into(&mut self.id),
            "event" => value.clone_into(&mut self.kind),
            "data" => match &mut self.data {
                Some(data) if data.len() + value.len() < EVENT_BYTES_MAX => {
                    data.push('\n');
                    data.push_str(value);
                }
                Some(_) => (),
                None => self.data = Some(value.to_owned()),
            },
            // Comments, which keep the connection alive, and unknown fields.
            _ => (),
        }
    }

    fn dispatch(&mut self) {
        let kind = std::mem::take(&mut self.kind);
        if let Some(data) = self.data.take() {
            let kind = if kind.is_empty() {
                "message".to_owned()
            } else {
                kind
            };
            self.ready
                .push_back((self.id.clone(), ServerEvent { kind, data }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_split_at_any_byte_are_parsed() {
        let text = ": hello\n\nid: 7\nevent: line\ndata: one\ndata:  two\r\n\r\ndata: three\n\nid: 8\ndata: cut";
        let expected = [("7", "line", "one\n two"), ("7", "message", "three")];
        for size in [1, 3, 1_000] {
            let mut reader = Reader::default();
            text.as_bytes()
                .chunks(size)
                .for_each(|chunk| reader.feed(chunk));
            let found: Vec<_> = std::iter::from_fn(|| reader.take()).collect();
            let found: Vec<_> = found
                .iter()
                .map(|(id, event)| (id.as_str(), event.kind.as_str(), event.data.as_str()))
                .collect();
            assert_eq!(found, expected, "in pieces of {size}");
        }
    }
}
