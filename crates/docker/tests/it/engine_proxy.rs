//! A proxy of the engine's socket that loses or replaces the engine's answers.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

use crate::fixture::ENGINE;

/// The fate of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The engine executes the request; the connection closes before the answer.
    AnswerLost,
    /// The engine executes the request; the answer never comes.
    AnswerHangs,
    /// The engine does not receive the request, and the proxy sends no answer.
    Hangs,
    /// The connection closes immediately.
    Refused,
    /// The engine does not receive the request; the proxy answers that the container was never started.
    Forgotten,
    /// The engine does not receive the request; the proxy answers that an image of the build cache is gone, with a
    /// message that begins like this and goes on with the digest.
    CacheLost(&'static str),
}

/// Selects requests whose first line contains the text, a number of times.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) contains: &'static str,
    pub(crate) fault: Fault,
    pub(crate) times: u32,
}

/// The running proxy; ends when dropped.
pub(crate) struct EngineProxy {
    pub(crate) socket: PathBuf,
    rules: Arc<Mutex<Vec<Rule>>>,
    task: JoinHandle<()>,
}

impl Drop for EngineProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl EngineProxy {
    pub(crate) fn start(directory: &Path) -> Self {
        let socket = directory.join("engine.sock");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let rules = Arc::<Mutex<Vec<Rule>>>::default();
        let shared = Arc::clone(&rules);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, Arc::clone(&shared)));
            }
        });
        Self {
            socket,
            rules,
            task,
        }
    }

    /// Applies `rules` to requests from now on.
    pub(crate) fn set(&self, rules: &[Rule]) {
        *self.rules.lock().expect("not poisoned") = rules.to_vec();
    }
}

/// Serves one request for each connection, as the client sends them.
async fn serve(mut client: UnixStream, rules: Arc<Mutex<Vec<Rule>>>) {
    let mut head = vec![0; 64 * 1024];
    let Ok(size_bytes) = client.read(&mut head).await else {
        return;
    };
    let head = &head[..size_bytes];
    let first_line = String::from_utf8_lossy(head)
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned();
    let fault = {
        let mut rules = rules.lock().expect("not poisoned");
        let rule = rules
            .iter_mut()
            .find(|rule| rule.times > 0 && first_line.contains(rule.contains));
        rule.map(|rule| {
            rule.times -= 1;
            rule.fault
        })
    };
    match fault {
        Some(Fault::Refused) => return,
        Some(Fault::Hangs) => return std::future::pending().await,
        Some(Fault::Forgotten) if first_line.contains("/kill") => {
            let body = r#"{"message": "it is not running"}"#;
            return answer(&mut client, "409 Conflict", body).await;
        }
        Some(Fault::Forgotten) => {
            let body = r#"{"State": {"Status": "created", "Running": false}}"#;
            return answer(&mut client, "200 OK", body).await;
        }
        Some(Fault::CacheLost(beginning)) => {
            let error = format!("{beginning}{}", "0".repeat(64));
            let body = json!({"errorDetail": {"message": &error}, "error": &error}).to_string();
            read_chunks(&mut client, head.to_vec()).await;
            return answer(&mut client, "200 OK", &body).await;
        }
        _ => (),
    }
    let mut engine = UnixStream::connect(ENGINE)
        .await
        .expect("the engine is there");
    engine.write_all(head).await.expect("the engine reads");
    if fault.is_none() {
        let _ = copy_bidirectional(&mut client, &mut engine).await;
        return;
    }
    let mut answer = [0; 1];
    let _ = engine.read(&mut answer).await;
    if fault == Some(Fault::AnswerHangs) {
        std::future::pending::<()>().await;
    }
}

/// Reads a chunked request to its end, so that the client can send all of it.
async fn read_chunks(client: &mut UnixStream, mut read: Vec<u8>) {
    while !read.ends_with(b"\r\n0\r\n\r\n") {
        if !client.read_buf(&mut read).await.is_ok_and(|size| size > 0) {
            return;
        }
    }
}

/// Answers instead of the engine.
async fn answer(client: &mut UnixStream, status: &str, body: &str) {
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: application/json");
    let size_bytes = body.len();
    let answer =
        format!("{head}\r\nConnection: close\r\nContent-Length: {size_bytes}\r\n\r\n{body}");
    let _ = client.write_all(answer.as_bytes()).await;
}
