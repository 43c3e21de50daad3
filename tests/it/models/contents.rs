//! Requests and answers of models, stored if the operator enables it.

use std::fs::{self, Permissions};
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aod_domain::capsule::{ModelGrant, Needs, Registration};
use aod_domain::digest::Digest;
use aod_domain::disk::Space;
use aod_domain::manifest::Secret;
use aod_domain::spending::Budget;
use aod_node::CONTENT_BYTES_MAX;
use aod_ports::artifact_store::{
    ArtifactStore, Content, Incoming, Listing, LocalFile, Removal, StoreError, Stored,
};
use aod_testkit::capsules::registration;
use aod_tests::cluster::{any_schema, append_registration, store_schema};
use async_trait::async_trait;
use futures::TryStreamExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::provider::{self, Reply};
use super::{ALL, KEY, Scene, chat, messages, streamed, tokens};

/// A secret of the capsule, with a character that JSON escapes.
const SECRET: &str = "open\"sesame-7c";

/// A scene whose node stores contents.
async fn keeping(budget: Budget) -> Scene {
    Scene::start_with(ALL, budget, 1, |cluster| cluster.keep_model_contents = true).await
}

/// The stored text of the part `what` of the contents of `settled`, and the size of its missing rest.
async fn kept(scene: &Scene, settled: &Value, what: &str) -> (String, u64) {
    let kept = &settled["contents"][what];
    let digest = kept["digest"]
        .as_str()
        .unwrap_or_else(|| panic!("{settled}"));
    let digest: Digest = digest.parse().expect("a digest");
    let content = scene.cluster.artifacts.get_stream(digest, None).await;
    let bytes: Vec<_> = content
        .expect("it is stored")
        .bytes
        .try_collect()
        .await
        .expect("it is whole");
    let bytes = bytes.concat();
    assert_eq!(kept["size_bytes"], bytes.len());
    let text = String::from_utf8(bytes).expect("a text");
    (text, kept["dropped_bytes"].as_u64().expect("a number"))
}

#[tokio::test(flavor = "multi_thread")]
async fn model_requests_and_answers_are_stored_unchanged() {
    let scene = keeping(Budget::default()).await;
    let [
        chat_answer,
        chat_events,
        _,
        _,
        messages_answer,
        messages_events,
        ..,
    ] = provider::samples();
    let refusal = Reply::status(400, &format!("bad key {KEY}"));
    for (request, reply, answer) in [
        (
            chat("tiny", None),
            Reply::sample(chat_answer),
            chat_answer.body,
        ),
        (
            streamed(chat("tiny", None)),
            Reply::sample(chat_events),
            chat_events.body,
        ),
        (
            messages(),
            Reply::sample(messages_answer),
            messages_answer.body,
        ),
        (
            streamed(messages()),
            Reply::sample(messages_events),
            messages_events.body,
        ),
        (chat("tiny", None), refusal, "bad key ***"),
    ] {
        scene.provider.reply(reply);
        let (answers, run) = scene.ask(json!([request]), json!({})).await;
        assert_eq!(answers[0]["text"], answer, "{answers:?}");
        let settled = scene.settled(&run).await;
        let (asked, dropped_bytes) = kept(&scene, &settled[0], "request").await;
        let seen = scene.provider.take_requests();
        assert!(seen[0].ends_with(&asked), "{asked} in {}", seen[0]);
        assert!(
            asked.starts_with('{') && asked.contains("\"model\""),
            "{asked}"
        );
        assert_eq!(dropped_bytes, 0);
        assert_eq!(
            kept(&scene, &settled[0], "answer").await,
            (answer.to_owned(), 0)
        );
    }
    assert_eq!(scene.holds(KEY), [""; 0], "the key is nowhere");
}

#[tokio::test(flavor = "multi_thread")]
async fn model_contents_are_not_stored_by_default() {
    let scene = Scene::start(ALL, Budget::default()).await;
    scene.provider.reply(Reply::sample(provider::samples()[0]));
    let (_, run) = scene.ask(json!([chat("tiny", None)]), json!({})).await;
    let settled = scene.settled(&run).await;
    assert_eq!(settled[0]["contents"], Value::Null, "{settled:?}");
    assert_eq!(scene.holds("finish_reason"), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn long_model_contents_are_cut_and_the_rest_is_counted() {
    let scene = keeping(Budget::default()).await;
    let added = CONTENT_BYTES_MAX + 1_000;
    let mut answer: Value =
        serde_json::from_str(provider::samples()[0].body).expect("a sample is JSON");
    answer["system_fingerprint"] = "y".repeat(added).into();
    let answer = answer.to_string();
    scene.provider.reply(Reply::whole(&answer));
    let mut request = chat("tiny", None);
    request["adds"] = added.into();
    let (answers, run) = scene.ask(json!([request]), json!({})).await;
    assert_eq!(answers[0]["status"], 200, "{answers:?}");
    let settled = scene.settled(&run).await;
    assert_eq!(settled[0]["tokens"]["input"], 100, "{settled:?}");
    let seen = scene.provider.take_requests();
    let asked = &seen[0][seen[0].find('{').expect("a body")..];
    for (what, whole) in [("request", asked), ("answer", &answer)] {
        let (text, dropped_bytes) = kept(&scene, &settled[0], what).await;
        assert!(
            text == whole[..CONTENT_BYTES_MAX],
            "the beginning of the {what}"
        );
        assert_eq!(
            dropped_bytes,
            (whole.len() - CONTENT_BYTES_MAX) as u64,
            "{what}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_contents_have_neither_secrets_nor_the_operators_key() {
    let scene = keeping(Budget::default()).await;
    let path = scene.cluster.data("secrets").join("OPENER");
    fs::write(&path, SECRET).expect("a test directory");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("a test file");
    let secret = Secret {
        name: "OPENER".to_owned(),
        env: "OPENER".to_owned(),
        required: true,
    };
    let schema = store_schema(scene.cluster.artifacts.as_ref(), &any_schema()).await;
    let registration = Registration {
        models: Some(ModelGrant {
            names: vec!["openai/tiny".to_owned()],
            budget: Budget::default(),
        }),
        needs: Needs {
            secrets: vec![secret],
            ..Needs::default()
        },
        ..registration("ask", schema)
    };
    append_registration(&scene.cluster.broker("registrar").await, registration).await;

    let mut answer: Value =
        serde_json::from_str(provider::samples()[0].body).expect("a sample is JSON");
    answer["system_fingerprint"] = format!("{KEY}, {SECRET}").into();
    scene.provider.reply(Reply::whole(&answer.to_string()));
    let mut request = chat("tiny", None);
    request["body"]["user"] = json!({"said": SECRET}).to_string().into();
    let (_, run) = scene.ask(json!([request]), json!({})).await;
    // The provider received the secret, so it could have been stored.
    assert!(scene.provider.take_requests()[0].contains("sesame-7c"));
    let settled = scene.settled(&run).await;
    let (asked, _) = kept(&scene, &settled[0], "request").await;
    assert!(asked.contains(r#""user":"{\"said\":\"***\"}""#), "{asked}");
    let (answered, _) = kept(&scene, &settled[0], "answer").await;
    assert!(answered.contains("\"***, ***\""), "{answered}");
}

#[tokio::test(flavor = "multi_thread")]
async fn model_call_settles_when_contents_cannot_be_stored() {
    let is_away = Arc::new(AtomicBool::new(false));
    let scene = Scene::start_with(ALL, tokens(100_000), 1, |cluster| {
        cluster.keep_model_contents = true;
        cluster.artifacts = Arc::new(Flaky {
            store: Arc::clone(&cluster.artifacts),
            is_away: Arc::clone(&is_away),
        });
    })
    .await;
    scene.provider.reply(Reply::sample(provider::samples()[0]));
    is_away.store(true, Ordering::Relaxed);
    let (answers, run) = scene.ask(json!([chat("tiny", None)]), json!({})).await;
    assert_eq!(answers[0]["status"], 200, "{answers:?}");
    let settled = scene.settled(&run).await;
    assert_eq!(settled[0]["tokens"]["input"], 100, "{settled:?}");
    assert_eq!(settled[0]["contents"], Value::Null, "{settled:?}");
}

/// A store that rejects puts while it is unavailable.
#[derive(Debug)]
struct Flaky {
    store: Arc<dyn ArtifactStore>,
    is_away: Arc<AtomicBool>,
}

#[async_trait]
impl ArtifactStore for Flaky {
    async fn put_stream(&self, bytes: Incoming<'_>) -> Result<Stored, StoreError> {
        if self.is_away.load(Ordering::Relaxed) {
            return Err(StoreError::Unavailable {
                place: "the store".to_owned(),
                source: "it is away".into(),
            });
        }
        self.store.put_stream(bytes).await
    }

    async fn put_reader(&self, reader: Box<dyn Read + Send>) -> Result<Stored, StoreError> {
        self.store.put_reader(reader).await
    }

    async fn put_file(&self, path: &Path, known: Option<Stored>) -> Result<Stored, StoreError> {
        self.store.put_file(path, known).await
    }

    async fn get_stream(
        &self,
        digest: Digest,
        range: Option<Range<u64>>,
    ) -> Result<Content, StoreError> {
        self.store.get_stream(digest, range).await
    }

    async fn get_file(&self, digest: Digest, size_bytes: u64) -> Result<LocalFile, StoreError> {
        self.store.get_file(digest, size_bytes).await
    }

    async fn size(&self, digest: Digest) -> Result<Option<u64>, StoreError> {
        self.store.size(digest).await
    }

    async fn renew(&self, digest: Digest) -> Result<Option<u64>, StoreError> {
        self.store.renew(digest).await
    }

    async fn list(&self) -> Result<Listing, StoreError> {
        self.store.list().await
    }

    async fn remove(&self, digest: Digest, before: Timestamp) -> Result<Removal, StoreError> {
        self.store.remove(digest, before).await
    }

    async fn space(&self) -> Result<Option<Space>, StoreError> {
        self.store.space().await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.store.check().await
    }

    fn spool_directory(&self) -> &Path {
        self.store.spool_directory()
    }
}
