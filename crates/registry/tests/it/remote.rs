//! A real registry, Docker's own, with and without users; and a server of tokens.

use std::fs;
use std::sync::{Arc, Mutex};

use aod_domain::digest::Digest;
use aod_registry::exchange::{ExchangeError, Found};
use aod_registry::reference::{Place, Reference};
use aod_registry::remote::Remote;
use aod_registry::remote::authorization::Credentials;
use aod_testkit::RegistryServer;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use futures::stream;
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

use crate::bench::Bench;

fn reference(text: &str) -> Reference {
    match Place::parse(text).expect("a reference") {
        Place::Registry(reference) => reference,
        Place::Layout { .. } => panic!("{text}"),
    }
}

fn credentials(password: &str) -> Credentials {
    Credentials {
        user: "user".to_owned(),
        password: password.to_owned(),
    }
}

async fn find(text: &str, credentials: Option<Credentials>) -> Result<Found, ExchangeError> {
    let remote = Remote::for_pull(reference(text), credentials).expect("a client");
    remote.find().await
}

#[tokio::test]
async fn registry_gets_each_part_once_and_returns_the_image() {
    let bench = Bench::new().await;
    let server = RegistryServer::start_open();
    let name = format!("{}/team/words", server.name());
    let lines = Arc::new(Mutex::new(Vec::new()));
    let push = async |tag: &str, layers: &[&[u8]]| {
        let parts = bench.parts(layers).await;
        let remote = Remote::for_push(reference(&format!("{name}:{tag}")), None);
        let remote = remote.expect("a client");
        remote.check().await.expect("the registry answers");
        lines.lock().expect("no panic").clear();
        let keep = |line| lines.lock().expect("no panic").push(line);
        let pushed = remote.push(&parts, &keep).await.expect("it is pushed");
        let lines = lines.lock().expect("no panic");
        let sent = lines.iter().filter(|line| line.contains("sent"));
        (pushed, sent.count())
    };
    let base = vec![7_u8; 3 << 20];
    let (first, sent) = push("1", &[&base, b"one"]).await;
    assert_eq!(sent, 3, "configuration and layers");
    assert_eq!(push("again", &[&base, b"one"]).await, (first, 0));
    let (second, sent) = push("2", &[&base, b"two"]).await;
    assert_eq!(sent, 2, "the base is there");
    assert_ne!(first, second);

    let found = find(&format!("{name}:1"), None).await.expect("an image");
    assert_eq!((found.digest, found.manifest_digest), (first, first));
    assert_eq!(found.labels.name.as_deref(), Some("words"));
    assert_eq!(found.manifest.layers[0].digest, Digest::of(&base));
    let exact = reference(&name).at(second);
    let found = find(&exact, None).await.expect("an image");
    assert_eq!(found.digest, second);

    let error = find(&format!("{name}:3"), None).await.expect_err("no tag");
    assert!(matches!(error, ExchangeError::Missing { .. }), "{error}");
    assert!(error.to_string().contains("manifests/3"), "{error}");
}

#[tokio::test]
async fn registry_with_users_needs_credentials() {
    let bench = Bench::new().await;
    let server = RegistryServer::start();
    let name = format!("{}/words", server.name());
    let parts = bench.parts(&[b"one"]).await;
    for (given, expected) in [
        (None, "no basic auth credentials"),
        (Some(credentials("wrong")), "status 401"),
    ] {
        let remote = Remote::for_push(reference(&name), given).expect("a client");
        let errors = [
            remote.check().await.expect_err("denied"),
            remote.push(&parts, &|_| ()).await.expect_err("denied"),
        ];
        for error in errors {
            assert!(matches!(error, ExchangeError::Denied { .. }), "{error}");
            let text = error.to_string();
            assert!(
                text.contains(expected) && text.contains(&name[..9]),
                "{text}"
            );
        }
    }
    let remote = Remote::for_push(reference(&name), Some(credentials("secret"))).expect("a client");
    let digest = remote.push(&parts, &|_| ()).await.expect("it is pushed");
    let found = find(&name, Some(credentials("secret")))
        .await
        .expect("an image");
    assert_eq!(found.digest, digest);
    let error = find(&name, None).await.expect_err("denied");
    assert!(matches!(error, ExchangeError::Denied { .. }), "{error}");
}

#[tokio::test]
async fn damaged_part_of_a_registry_is_named() {
    let bench = Bench::new().await;
    let server = RegistryServer::start_open();
    let name = format!("{}/words", server.name());
    let parts = bench.parts(&[b"one"]).await;
    let remote = Remote::for_push(reference(&name), None).expect("a client");
    remote.push(&parts, &|_| ()).await.expect("it is pushed");
    let found = find(&name, None).await.expect("an image");
    let config = found.manifest.config;
    let file = server.blob(&config.digest.to_string());
    let mut bytes = fs::read(&file).expect("a blob");
    bytes[3] ^= 1;
    fs::write(&file, bytes).expect("a blob");
    let error = find(&name, None).await.expect_err("damaged");
    assert!(matches!(&error, ExchangeError::Damaged { digest, .. } if *digest == config.digest));
    let text = error.to_string();
    let expected = format!("the repository words of {}", server.name());
    assert!(text.starts_with(&expected), "{text}");
}

#[tokio::test]
async fn registry_with_an_index_of_two_platforms_is_read() {
    let bench = Bench::new().await;
    let server = RegistryServer::start_open();
    let name = format!("{}/words", server.name());
    let mut entries = Vec::new();
    for (processor, layer) in [("s390x", b"one"), ("amd64", b"two")] {
        let parts = bench.parts(&[&layer[..]]).await;
        let tagged = reference(&format!("{name}:{processor}"));
        let remote = Remote::for_push(tagged, None).expect("a client");
        let digest = remote.push(&parts, &|_| ()).await.expect("it is pushed");
        let size = fs::metadata(server.blob(&digest.to_string())).expect("a manifest");
        entries.push(json!({
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": format!("sha256:{digest}"),
            "size": size.len(),
            "platform": {"os": "linux", "architecture": processor},
        }));
    }
    let index = json!({"schemaVersion": 2, "manifests": entries}).to_string();
    let sent = reqwest::Client::new()
        .put(format!("http://{}/v2/words/manifests/both", server.name()))
        .header("content-type", "application/vnd.oci.image.index.v1+json")
        .body(index.clone());
    let answer = sent.send().await.expect("an answer");
    assert_eq!(answer.status(), 201);
    let found = find(&format!("{name}:both"), None).await.expect("an image");
    assert_eq!(found.digest, Digest::of(&index));
    let chosen = entries[1]["digest"].as_str().expect("a digest");
    assert_eq!(format!("sha256:{}", found.manifest_digest), chosen);
}

#[tokio::test]
async fn unreachable_registry_is_named() {
    let _bench = Bench::new().await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let error = find(&format!("{address}/words"), None)
        .await
        .expect_err("no server");
    assert!(
        matches!(error, ExchangeError::Unreachable { .. }),
        "{error}"
    );
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

/// A registry that accepts only the token of its own server of tokens, and what that server was asked for.
#[derive(Clone, Default)]
struct Tokens {
    address: Arc<Mutex<String>>,
    scopes: Arc<Mutex<Vec<String>>>,
}

fn header<'h>(headers: &'h HeaderMap, name: &str) -> &'h str {
    let value = headers.get(name).map(|value| value.to_str());
    value.and_then(Result::ok).unwrap_or_default()
}

async fn root(State(tokens): State<Tokens>, headers: HeaderMap) -> Response {
    if header(&headers, "authorization") == "Bearer right" {
        return "{}".into_response();
    }
    let address = tokens.address.lock().expect("no panic").clone();
    let challenge = format!("Bearer realm=\"http://{address}/token\",service=\"tests\"");
    (StatusCode::UNAUTHORIZED, [("www-authenticate", challenge)]).into_response()
}

async fn token(
    State(tokens): State<Tokens>,
    Query(query): Query<Vec<(String, String)>>,
    headers: HeaderMap,
) -> Response {
    // `user:secret`
    if header(&headers, "authorization") != "Basic dXNlcjpzZWNyZXQ=" {
        let body: Value = json!({"errors": [{"code": "UNAUTHORIZED", "message": "who are you?"}]});
        return (StatusCode::UNAUTHORIZED, axum::Json(body)).into_response();
    }
    let text: Vec<String> = query
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    tokens.scopes.lock().expect("no panic").push(text.join("&"));
    axum::Json(json!({"token": "right"})).into_response()
}

/// Serves `router` on a loopback address, until the test ends.
async fn serve(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, router).await });
    address.to_string()
}

#[tokio::test]
async fn endless_answer_of_a_registry_is_not_held() {
    let _bench = Bench::new().await;
    let endless = async || {
        let piece = Ok::<_, std::convert::Infallible>(Bytes::from_static(&[b' '; 4_096]));
        Body::from_stream(stream::repeat(piece))
    };
    let router = Router::new()
        .route("/v2/words/manifests/latest", get(endless))
        .route(
            "/v2/",
            get(async move || (StatusCode::BAD_GATEWAY, endless().await)),
        );
    let name = format!("{}/words", serve(router).await);
    let error = find(&name, None).await.expect_err("endless");
    assert!(
        error.to_string().contains("more than 262144 bytes"),
        "{error}"
    );
    let remote = Remote::for_push(reference(&name), None).expect("a client");
    let error = remote.check().await.expect_err("endless");
    assert!(error.to_string().contains("status 502"), "{error}");
}

/// A registry that stores blobs on another host, which must not get the password.
#[tokio::test]
async fn credentials_reach_only_the_registry_itself() {
    let bench = Bench::new().await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let see = |place: &'static str| {
        let seen = Arc::clone(&seen);
        move |headers: &HeaderMap| {
            let given = header(headers, "authorization").to_owned();
            seen.lock().expect("no panic").push((place, given));
        }
    };
    let see_storage = see("storage");
    let put_blob = async move |headers: HeaderMap, _: Bytes| {
        see_storage(&headers);
        StatusCode::CREATED
    };
    let storage = serve(Router::new().route("/store", put(put_blob))).await;
    let see_registry = see("registry");
    let begin = async move |headers: HeaderMap| {
        see_registry(&headers);
        if header(&headers, "authorization").is_empty() {
            let challenge = [("www-authenticate", "Basic realm=\"x\"".to_owned())];
            return (StatusCode::UNAUTHORIZED, challenge);
        }
        let location = [("location", format!("http://{storage}/store?upload=1"))];
        (StatusCode::ACCEPTED, location)
    };
    let router = Router::new()
        .route("/v2/words/blobs/uploads/", post(begin))
        .route(
            "/v2/words/manifests/latest",
            put(async || StatusCode::CREATED),
        );
    let name = format!("{}/words", serve(router).await);
    let parts = bench.parts(&[b"one"]).await;
    let remote = Remote::for_push(reference(&name), Some(credentials("secret"))).expect("a client");
    remote.push(&parts, &|_| ()).await.expect("it is pushed");
    let basic = "Basic dXNlcjpzZWNyZXQ=".to_owned();
    let seen = seen.lock().expect("no panic").clone();
    let expected = [
        ("registry", String::new()),
        ("registry", basic.clone()),
        ("storage", String::new()),
        ("registry", basic),
        ("storage", String::new()),
    ];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn token_is_fetched_with_the_credentials_and_the_scope_of_a_push() {
    let _bench = Bench::new().await;
    let tokens = Tokens::default();
    let router = Router::new()
        .route("/v2/", get(root))
        .route("/token", get(token))
        .with_state(tokens.clone());
    let address = serve(router).await;
    tokens
        .address
        .lock()
        .expect("no panic")
        .clone_from(&address);
    let name = format!("{address}/team/words");
    for given in [None, Some(credentials("wrong"))] {
        let remote = Remote::for_push(reference(&name), given).expect("a client");
        let error = remote.check().await.expect_err("denied");
        assert!(error.to_string().contains("who are you?"), "{error}");
    }
    let remote = Remote::for_push(reference(&name), Some(credentials("secret"))).expect("a client");
    remote.check().await.expect("the token is accepted");
    remote.check().await.expect("the token is kept");
    let scopes = tokens.scopes.lock().expect("no panic").clone();
    assert_eq!(
        scopes,
        ["scope=repository:team/words:pull,push&service=tests"]
    );
}
