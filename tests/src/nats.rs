//! The protocol of NATS without a client library, for messages that a library would not send.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

/// Maximum time for an answer of the server.
const PATIENCE: Duration = Duration::from_secs(10);

/// A received message.
#[derive(Clone, Debug)]
pub struct Message {
    pub subject: String,
    /// Headers, if there are any, with the body.
    pub bytes: Vec<u8>,
}

impl Message {
    /// The body as JSON; null if it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_default()
    }
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
    inbox: String,
    asked: usize,
}

/// Everything received before the answer to a ping.
#[derive(Debug, Default)]
pub struct Heard {
    pub messages: Vec<Message>,
    /// The errors of the server.
    pub complaints: Vec<String>,
}

impl Connection {
    /// Connects as `user`; returns the server's error if it rejects the user.
    pub fn open(address: SocketAddr, user: &str, password: &str) -> Result<Self, String> {
        let stream = TcpStream::connect(address).expect("the server is there");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        let reader = BufReader::new(stream.try_clone().expect("a handle"));
        let mut connection = Self {
            stream,
            reader,
            inbox: format!("_INBOX.{user}.by-hand"),
            asked: 0,
        };
        connection.line();
        let login = json!({
            "user": user, "pass": password, "verbose": false, "pedantic": false,
            "headers": true, "no_responders": true,
        });
        let inbox = connection.inbox.clone();
        connection.send(&format!("CONNECT {login}\r\nSUB {inbox}.> 1\r\n"));
        let heard = connection.hear();
        match heard.complaints.into_iter().next() {
            Some(complaint) => Err(complaint),
            None => Ok(connection),
        }
    }

    fn send(&mut self, text: &str) {
        // A server that rejects the connection closes it; its message is read afterwards.
        let _ = self.stream.write_all(text.as_bytes());
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let _ = self.reader.read_line(&mut line);
        line
    }

    /// Publishes `bytes` on `subject`, with the reply subject `reply` unless it is empty.
    pub fn publish(&mut self, subject: &str, reply: &str, bytes: &[u8]) {
        let mut message = format!("PUB {subject} {reply} {}\r\n", bytes.len()).into_bytes();
        message.extend_from_slice(bytes);
        message.extend_from_slice(b"\r\n");
        let _ = self.stream.write_all(&message);
    }

    /// As [`Connection::publish`], with one header.
    pub fn publish_with_header(&mut self, subject: &str, header: &str, bytes: &[u8]) {
        let headers = format!("NATS/1.0\r\n{header}\r\n\r\n");
        let (before, all) = (headers.len(), headers.len() + bytes.len());
        let mut message = format!("HPUB {subject} {before} {all}\r\n{headers}").into_bytes();
        message.extend_from_slice(bytes);
        message.extend_from_slice(b"\r\n");
        let _ = self.stream.write_all(&message);
    }

    /// Subscribes to `subject`.
    pub fn subscribe(&mut self, subject: &str) {
        self.send(&format!("SUB {subject} 2\r\n"));
    }

    /// Everything received until the server has processed all sent messages.
    pub fn hear(&mut self) -> Heard {
        self.send("PING\r\n");
        let mut heard = Heard::default();
        loop {
            let line = self.line();
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("PONG") | None => return heard,
                Some("PING") => self.send("PONG\r\n"),
                Some("-ERR") => heard.complaints.push(line.trim().to_owned()),
                Some("MSG" | "HMSG") => heard.messages.push(self.message(&line)),
                Some(_) => (),
            }
        }
    }

    fn message(&mut self, line: &str) -> Message {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let size: usize = words[words.len() - 1].parse().expect("a size");
        let mut bytes = vec![0; size + 2];
        self.reader.read_exact(&mut bytes).expect("a whole message");
        bytes.truncate(size);
        Message {
            subject: words[1].to_owned(),
            bytes,
        }
    }

    /// The reply subject of the next request.
    pub fn inbox(&mut self) -> String {
        self.asked += 1;
        format!("{}.{}", self.inbox, self.asked)
    }

    /// Sends a request, and waits for one answer.
    ///
    /// # Errors
    /// The server's error.
    pub fn request(&mut self, subject: &str, bytes: &[u8]) -> Result<Message, String> {
        let inbox = self.inbox();
        self.publish(subject, &inbox, bytes);
        let mut heard = self.hear();
        let deadline = std::time::Instant::now() + PATIENCE;
        while heard.messages.is_empty() {
            if let Some(complaint) = heard.complaints.into_iter().next() {
                return Err(complaint);
            }
            assert!(
                std::time::Instant::now() < deadline,
                "{subject} is not answered"
            );
            std::thread::sleep(Duration::from_millis(5));
            heard = self.hear();
        }
        Ok(heard.messages.swap_remove(0))
    }
}
