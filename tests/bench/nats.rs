//! Raw publishes to JetStream: each confirmed before the next, which is the bare cost of a synced write, or many in
//! one atomic batch. Implements the protocol itself, so that no library is measured.

use std::net::SocketAddr;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// The stream of the floor, configured like the log.
const STREAM: &str = "BENCH";

/// The subject of its messages.
const SUBJECT: &str = "bench.floor";

/// Size of a message, in bytes: the size of a launch.
const MESSAGE_BYTES: usize = 1_024;

/// Maximum size of the stream, in bytes.
const STREAM_BYTES_MAX: u64 = 1 << 30;

/// One connection, with one request in progress at a time.
#[derive(Debug)]
pub(crate) struct Publisher {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    /// The server's own description.
    pub(crate) server: Value,
    inbox: String,
    message: Vec<u8>,
}

impl Publisher {
    pub(crate) async fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address)
            .await
            .context("the broker does not answer")?;
        stream.set_nodelay(true)?;
        let (reader, mut writer) = stream.into_split();
        let mut reader = BufReader::new(reader);
        let mut line = String::new();
        reader.read_line(&mut line).await?;
        let greeting = line
            .strip_prefix("INFO ")
            .context("the broker does not greet")?;
        let server = serde_json::from_str(greeting)?;
        let hello = "CONNECT {\"verbose\":false,\"pedantic\":false,\"lang\":\"bench\",\"version\":\"0\",\"protocol\":1,\"headers\":true}\r\nSUB answer 1\r\n";
        // Each connection has its own inbox, because subjects are shared by the whole account.
        let inbox = format!("answer.{}", uuid::Uuid::now_v7().simple());
        writer
            .write_all(hello.replace("answer", &inbox).as_bytes())
            .await?;
        let mut message = format!("PUB {SUBJECT} {inbox} {MESSAGE_BYTES}\r\n").into_bytes();
        message.resize(message.len() + MESSAGE_BYTES, b'x');
        message.extend_from_slice(b"\r\n");
        Ok(Self {
            reader,
            writer,
            server,
            inbox,
            message,
        })
    }

    /// Creates the stream of the floor.
    pub(crate) async fn create_stream(&mut self) -> anyhow::Result<()> {
        let config = json!({"name": STREAM, "subjects": [SUBJECT], "storage": "file", "retention": "limits",
            "discard": "old", "max_bytes": STREAM_BYTES_MAX, "num_replicas": 1});
        self.ask(&format!("$JS.API.STREAM.CREATE.{STREAM}"), &config)
            .await
            .map(drop)
    }

    /// Sends a request to the server's API; null sends no body.
    pub(crate) async fn ask(&mut self, subject: &str, body: &Value) -> anyhow::Result<Value> {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let request = format!("PUB {subject} {} {}\r\n{body}\r\n", self.inbox, body.len());
        self.writer.write_all(request.as_bytes()).await?;
        self.answer().await.with_context(|| subject.to_owned())
    }

    /// Publishes messages (subject, id and bytes) in one atomic batch called `name`.
    pub(crate) async fn publish_batch<'a>(
        &mut self,
        name: &str,
        messages: impl ExactSizeIterator<Item = (&'a str, &'a str, &'a [u8])>,
    ) -> anyhow::Result<()> {
        let count = messages.len();
        let mut bytes = Vec::new();
        for (index, (subject, id, payload)) in messages.enumerate() {
            let number = index + 1;
            // Only the last one gets an answer.
            let (reply, commit) = if number == count {
                (self.inbox.as_str(), "Nats-Batch-Commit: 1\r\n")
            } else {
                ("", "")
            };
            let headers = format!(
                "NATS/1.0\r\nNats-Batch-Id: {name}\r\nNats-Batch-Sequence: {number}\r\nNats-Msg-Id: {id}\r\n{commit}\r\n"
            );
            let (head, whole) = (headers.len(), headers.len() + payload.len());
            bytes.extend_from_slice(
                format!("HPUB {subject} {reply} {head} {whole}\r\n{headers}").as_bytes(),
            );
            bytes.extend_from_slice(payload);
            bytes.extend_from_slice(b"\r\n");
        }
        self.writer.write_all(&bytes).await?;
        let answer = self.answer().await?;
        anyhow::ensure!(
            answer["count"] == count,
            "the broker did not store the batch of {count} messages: {answer}"
        );
        Ok(())
    }

    /// Publishes `count` messages, one after the other.
    pub(crate) async fn publish(&mut self, count: usize) -> anyhow::Result<()> {
        for _ in 0..count {
            self.writer.write_all(&self.message).await?;
            let answer = self.answer().await?;
            anyhow::ensure!(
                answer["seq"].is_u64(),
                "the broker did not store the message: {answer}"
            );
        }
        Ok(())
    }

    async fn answer(&mut self) -> anyhow::Result<Value> {
        loop {
            let mut line = String::new();
            anyhow::ensure!(
                self.reader.read_line(&mut line).await? > 0,
                "the broker closed the connection"
            );
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["PING"] => self.writer.write_all(b"PONG\r\n").await?,
                ["MSG", .., length] => {
                    let mut payload = vec![0; length.parse::<usize>()? + 2];
                    self.reader.read_exact(&mut payload).await?;
                    let answer: Value = serde_json::from_slice(&payload)?;
                    anyhow::ensure!(
                        answer["error"].is_null(),
                        "the broker rejected the request: {answer}"
                    );
                    return Ok(answer);
                }
                ["+OK" | "PONG" | "INFO", ..] => (),
                _ => bail!("unexpected answer of the broker: {line:?}"),
            }
        }
    }
}
