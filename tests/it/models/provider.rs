//! A model provider that gives configured answers, and records its requests.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures::stream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

/// How answers are split: small ones into pieces of a few bytes, large ones into a fixed number.
const PIECE_BYTES_MIN: usize = 7;
const PIECES_MAX: usize = 500;

/// An answer of a provider.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) media_type: &'static str,
    pub(crate) body: &'static str,
}

/// The configured answer.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    status: u16,
    media_type: &'static str,
    body: String,
}

impl Reply {
    pub(crate) fn sample(sample: &Sample) -> Self {
        Self {
            status: 200,
            media_type: sample.media_type,
            body: sample.body.to_owned(),
        }
    }

    /// A JSON document.
    pub(crate) fn whole(body: &str) -> Self {
        Self {
            status: 200,
            media_type: "application/json",
            body: body.to_owned(),
        }
    }

    /// A finite stream of events.
    pub(crate) fn events(body: &str) -> Self {
        Self {
            media_type: "text/event-stream",
            ..Self::whole(body)
        }
    }

    pub(crate) fn status(status: u16, body: &str) -> Self {
        Self {
            status,
            media_type: "text/plain",
            body: body.to_owned(),
        }
    }
}

#[derive(Debug)]
struct Memory {
    reply: Reply,
    requests: Vec<String>,
}

/// A provider on a local port, until it is dropped.
#[derive(Debug)]
pub(crate) struct Provider {
    url: String,
    memory: Arc<Mutex<Memory>>,
    _stop: DropGuard,
}

impl Provider {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let memory = Arc::new(Mutex::new(Memory {
            reply: Reply::status(500, "no reply configured"),
            requests: Vec::new(),
        }));
        let router = Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&memory));
        let stop = CancellationToken::new();
        let served = axum::serve(listener, router);
        tokio::spawn(
            served
                .with_graceful_shutdown(stop.clone().cancelled_owned())
                .into_future(),
        );
        Self {
            url,
            memory,
            _stop: stop.drop_guard(),
        }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn reply(&self, reply: Reply) {
        self.memory().reply = reply;
    }

    /// The requests since the last call: their heads and bodies.
    pub(crate) fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.memory().requests)
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn answer(State(memory): State<Arc<Mutex<Memory>>>, request: Request<Body>) -> Response {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 32 << 20)
        .await
        .unwrap_or_default();
    let text = format!(
        "{} {:?} {}",
        head.uri,
        Plain(&head.headers),
        String::from_utf8_lossy(&body)
    );
    let reply = {
        let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.requests.push(text);
        memory.reply.clone()
    };
    // In pieces that end anywhere.
    let pieces: Vec<_> = reply
        .body
        .as_bytes()
        .chunks(PIECE_BYTES_MIN.max(reply.body.len() / PIECES_MAX))
        .map(Bytes::copy_from_slice)
        .collect();
    let pieces = stream::iter(pieces.into_iter().map(Ok::<_, Infallible>));
    let mut response = Body::from_stream(pieces).into_response();
    *response.status_mut() = StatusCode::from_u16(reply.status).expect("a status");
    let media_type = reply.media_type.parse().expect("a media type");
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, media_type);
    if reply.status == 429 {
        response.headers_mut().insert(header::RETRY_AFTER, 1.into());
    }
    response
}

/// The address of a provider that starts a stream and disconnects; ends with the test.
pub(crate) async fn breaking() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            // An answer before the request is invalid, and unread bytes would drop the answer.
            let mut asked = Vec::new();
            while !asked.ends_with(b"}") && stream.read_buf(&mut asked).await.unwrap_or(0) > 0 {}
            let beginning = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 1000\r\n\r\ndata: {\"cho";
            let _ = stream.write_all(beginning.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    url
}

/// Headers with their values.
struct Plain<'a>(&'a axum::http::HeaderMap);

impl std::fmt::Debug for Plain<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (name, value) in self.0 {
            write!(formatter, "{name}: {}; ", value.to_str().unwrap_or("?"))?;
        }
        Ok(())
    }
}

/// Answers in each format, plain and streamed: 100 input tokens, 40 of them cached, 20 output tokens, one tool.
pub(crate) fn samples() -> [&'static Sample; 8] {
    const JSON: &str = "application/json";
    const EVENTS: &str = "text/event-stream";
    static SAMPLES: [Sample; 8] = [
        Sample {
            media_type: JSON,
            body: include_str!("samples/chat.json"),
        },
        Sample {
            media_type: EVENTS,
            body: include_str!("samples/chat.events"),
        },
        Sample {
            media_type: JSON,
            body: include_str!("samples/responses.json"),
        },
        Sample {
            media_type: EVENTS,
            body: include_str!("samples/responses.events"),
        },
        Sample {
            media_type: JSON,
            body: include_str!("samples/messages.json"),
        },
        Sample {
            media_type: EVENTS,
            body: include_str!("samples/messages.events"),
        },
        Sample {
            media_type: JSON,
            body: include_str!("samples/generate_content.json"),
        },
        Sample {
            media_type: EVENTS,
            body: include_str!("samples/generate_content.events"),
        },
    ];
    SAMPLES.each_ref()
}
