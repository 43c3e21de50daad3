//! Conformance suite of transports to gateways: whole requests, streamed answers, and an error for each answer that
//! breaks off.

use std::sync::{Arc, Mutex, PoisonError};

use aod_ports::BoxError;
use aod_ports::gateways::{AnswerBody, GatewayTransport};
use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::{HeaderMap, Request, Response, StatusCode};
use tokio::sync::mpsc;

use crate::events::soon;

/// Larger than any buffer on the path, smaller than the default limit of a server.
const LARGE_BYTES: usize = 1024 * 1024;

type Piece = Result<Bytes, BoxError>;

/// A server for the suite; listens with its router.
#[derive(Clone, Debug, Default)]
pub struct Server {
    /// The pieces of the next answer to `/pieces`.
    next: Arc<Mutex<Option<mpsc::Receiver<Piece>>>>,
}

impl Server {
    /// The router that must listen at the address given to the suite.
    pub fn router(&self) -> Router {
        let server = self.clone();
        Router::new()
            .route("/echo", post(echo))
            .route("/pieces", get(move || async move { server.pieces() }))
    }

    fn pieces(&self) -> Response<Body> {
        let pieces = self
            .next
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
            .expect("one answer for each request");
        let pieces = stream::unfold(pieces, |mut pieces| async {
            pieces.recv().await.map(|piece| (piece, pieces))
        });
        Response::new(Body::from_stream(pieces))
    }

    /// Requests an answer whose pieces the test sends.
    async fn ask(
        &self,
        transport: &dyn GatewayTransport,
        url: &str,
    ) -> (mpsc::Sender<Piece>, AnswerBody) {
        let (sender, receiver) = mpsc::channel(1);
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(receiver);
        let request = Request::get(format!("{url}/pieces"));
        let request = request.body(Bytes::new()).expect("a request");
        // The head arrives before any body.
        let answer = soon(transport.send(request)).await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::OK);
        (sender, answer.into_body())
    }
}

async fn echo(headers: HeaderMap, body: Bytes) -> impl IntoResponse {
    let name = headers.get("x-name").cloned();
    let name = name.map(|name| [("x-name", name)]);
    (StatusCode::CREATED, name, body)
}

/// Runs the whole suite; `stop` kills the server.
pub async fn check_all(
    transport: &dyn GatewayTransport,
    server: &Server,
    url: &str,
    stop: impl FnOnce(),
) {
    requests_and_answers_arrive_whole(transport, url).await;
    pieces_arrive_as_they_are_sent(transport, server, url).await;
    an_answer_that_breaks_off_says_so(transport, server, url).await;
    who_no_longer_listens_is_noticed(transport, server, url).await;
    a_server_that_is_gone_is_an_error(transport, server, url, stop).await;
}

async fn requests_and_answers_arrive_whole(transport: &dyn GatewayTransport, url: &str) {
    for size in [0, 5, LARGE_BYTES] {
        let body = Bytes::from(vec![7; size]);
        let request = Request::post(format!("{url}/echo")).header("x-name", "value");
        let request = request.body(body.clone()).expect("a request");
        let answer = soon(transport.send(request)).await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::CREATED);
        assert_eq!(
            answer.headers().get("x-name").expect("a header"),
            "value",
            "{size} bytes"
        );
        let pieces: Vec<_> = soon(answer.into_body().try_collect())
            .await
            .expect("all of it");
        assert!(pieces.concat() == body, "{size} bytes");
    }
    let request = Request::get(format!("{url}/nothing"));
    let request = request.body(Bytes::new()).expect("a request");
    let answer = soon(transport.send(request)).await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::NOT_FOUND);
}

async fn pieces_arrive_as_they_are_sent(
    transport: &dyn GatewayTransport,
    server: &Server,
    url: &str,
) {
    let (sender, mut body) = server.ask(transport, url).await;
    for text in ["one", "two"] {
        let piece = Bytes::from(text);
        sender
            .send(Ok(piece.clone()))
            .await
            .expect("it is asked for");
        let received = soon(body.next()).await.expect("more to come");
        assert_eq!(received.expect("a piece"), piece);
    }
    // An empty piece is not the end.
    sender
        .send(Ok(Bytes::new()))
        .await
        .expect("it is asked for");
    sender
        .send(Ok("three".into()))
        .await
        .expect("it is asked for");
    drop(sender);
    let rest: Vec<_> = soon(body.try_collect()).await.expect("all of it");
    assert_eq!(rest.concat(), b"three");
}

async fn an_answer_that_breaks_off_says_so(
    transport: &dyn GatewayTransport,
    server: &Server,
    url: &str,
) {
    let (sender, mut body) = server.ask(transport, url).await;
    sender
        .send(Ok("one".into()))
        .await
        .expect("it is asked for");
    let received = soon(body.next()).await.expect("more to come");
    assert_eq!(received.expect("a piece"), "one");
    let broken = sender.send(Err("it breaks off".into())).await;
    broken.expect("it is asked for");
    let received = soon(body.next()).await;
    assert!(matches!(received, Some(Err(_))), "{received:?}");
}

async fn who_no_longer_listens_is_noticed(
    transport: &dyn GatewayTransport,
    server: &Server,
    url: &str,
) {
    let (sender, body) = server.ask(transport, url).await;
    drop(body);
    soon(sender.closed()).await;
}

async fn a_server_that_is_gone_is_an_error(
    transport: &dyn GatewayTransport,
    server: &Server,
    url: &str,
    stop: impl FnOnce(),
) {
    let (sender, mut body) = server.ask(transport, url).await;
    sender
        .send(Ok("one".into()))
        .await
        .expect("it is asked for");
    let received = soon(body.next()).await.expect("more to come");
    assert_eq!(received.expect("a piece"), "one");
    stop();
    let received = soon(body.next()).await;
    assert!(matches!(received, Some(Err(_))), "{received:?}");
    let request = Request::get(format!("{url}/nothing"));
    let request = request.body(Bytes::new()).expect("a request");
    let answer = soon(transport.send(request)).await.map(|_| ());
    assert!(answer.is_err(), "nobody listens");
}
