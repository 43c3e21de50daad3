//! The protocol of NATS by hand: what a client library would not do, a stranger may.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

/// How long the server may take to answer anything.
const PATIENCE: Duration = Duration::from_secs(10);

/// A message that came.
#[derive(Clone, Debug)]
pub struct Message {
    pub subject: String,
    /// Headers, if there are any, with the body.
    pub bytes: Vec<u8>,
}

impl Message {
    /// The body as JSON; null if it is none.
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

/// What came before the server answered a ping.
#[derive(Debug, Default)]
pub struct Heard {
    pub messages: Vec<Message>,
    /// What the server complained of.
    pub complaints: Vec<String>,
}

impl Connection {
    /// Connects as `user`; the server's complaint if it refuses.
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
        // A server that has refused us hangs up; what it said is read afterwards.
        let _ = self.stream.write_all(text.as_bytes());
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let _ = self.reader.read_line(&mut line);
        line
    }

    /// Says `bytes` on `subject`, to be answered on `reply` if that is not empty.
    pub fn publish(&mut self, subject: &str, reply: &str, bytes: &[u8]) {
        let mut message = format!("PUB {subject} {reply} {}\r\n", bytes.len()).into_bytes();
        message.extend_from_slice(bytes);
        message.extend_from_slice(b"\r\n");
        let _ = self.stream.write_all(&message);
    }

    /// Asks to be told what is said on `subject`.
    pub fn subscribe(&mut self, subject: &str) {
        self.send(&format!("SUB {subject} 2\r\n"));
    }

    /// All that has come, until the server has dealt with everything sent so far.
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

    /// Where answers come in that are asked for next.
    pub fn inbox(&mut self) -> String {
        self.asked += 1;
        format!("{}.{}", self.inbox, self.asked)
    }

    /// Asks, and waits for one answer.
    ///
    /// # Errors
    /// The server's complaint.
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
