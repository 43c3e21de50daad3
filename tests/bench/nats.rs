//! Raw publishes to JetStream, each confirmed before the next: what a synced write costs with
//! nothing of ours around it. Speaks the protocol itself, so that no library counts.

use std::net::SocketAddr;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// The stream of the floor, set up as the log is.
const STREAM: &str = "BENCH";

/// The subject of its messages.
const SUBJECT: &str = "bench.floor";

/// Size of a message, in bytes: as much as a launch has.
const MESSAGE_BYTES: usize = 1_024;

/// Most that the stream keeps, in bytes.
const STREAM_BYTES_MAX: u64 = 1 << 30;

/// One connection, which has one request under way at a time.
#[derive(Debug)]
pub(crate) struct Publisher {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    /// What the server said of itself.
    pub(crate) server: Value,
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
        let hello = "CONNECT {\"verbose\":false,\"pedantic\":false,\"lang\":\"bench\",\"version\":\"0\",\"protocol\":1}\r\nSUB answer 1\r\n";
        // Of each connection its own inbox: subjects are of the whole account.
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
            message,
        })
    }

    /// Makes the stream of the floor.
    pub(crate) async fn create_stream(&mut self) -> anyhow::Result<()> {
        let config =
            json!({"name": STREAM, "subjects": [SUBJECT], "storage": "file", "retention": "limits",
            "discard": "old", "max_bytes": STREAM_BYTES_MAX, "num_replicas": 1})
            .to_string();
        let head = String::from_utf8_lossy(&self.message);
        let inbox = head
            .split(' ')
            .nth(2)
            .context("a message has an inbox")?
            .to_owned();
        let request = format!(
            "PUB $JS.API.STREAM.CREATE.{STREAM} {inbox} {}\r\n{config}\r\n",
            config.len()
        );
        self.writer.write_all(request.as_bytes()).await?;
        self.answer().await.map(drop)
    }

    /// Publishes `count` messages, one after the other.
    pub(crate) async fn publish(&mut self, count: usize) -> anyhow::Result<()> {
        for _ in 0..count {
            self.writer.write_all(&self.message).await?;
            let answer = self.answer().await?;
            anyhow::ensure!(answer["seq"].is_u64(), "the broker did not store: {answer}");
        }
        Ok(())
    }

    async fn answer(&mut self) -> anyhow::Result<Value> {
        loop {
            let mut line = String::new();
            anyhow::ensure!(
                self.reader.read_line(&mut line).await? > 0,
                "the broker hung up"
            );
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["PING"] => self.writer.write_all(b"PONG\r\n").await?,
                ["MSG", .., length] => {
                    let mut payload = vec![0; length.parse::<usize>()? + 2];
                    self.reader.read_exact(&mut payload).await?;
                    let answer: Value = serde_json::from_slice(&payload)?;
                    anyhow::ensure!(answer["error"].is_null(), "the broker refuses: {answer}");
                    return Ok(answer);
                }
                ["+OK" | "PONG" | "INFO", ..] => (),
                _ => bail!("the broker says {line:?}"),
            }
        }
    }
}
