//! Sweeps remove only old chunks without a record.

use aod_testkit::{NatsConfig, NatsServer};
use object_store::path::Path;
use object_store::{MultipartUpload as _, ObjectStoreExt as _, PutPayload};

use super::super::{BucketConfig, CHUNK_BYTES, JetStreamObjectStore};
use super::*;

async fn open(server: &NatsServer) -> JetStreamObjectStore {
    let client = async_nats::connect(server.url())
        .await
        .expect("a server that has just started");
    let config = BucketConfig {
        stream: "FILES".to_owned(),
        bucket: "artifacts".to_owned(),
        bytes_max: 1 << 30,
        replicas: 1,
    };
    JetStreamObjectStore::open(client, &config)
        .await
        .expect("a store on a fresh server")
}

fn payload(chunks: usize) -> PutPayload {
    vec![b'x'; chunks * CHUNK_BYTES].into()
}

#[tokio::test]
async fn sweep_removes_old_chunks_without_record() {
    let server = NatsServer::start(NatsConfig::default());
    let store = open(&server).await;
    let kept = Path::from("kept");
    store.put(&kept, payload(3)).await.expect("a put");
    store
        .put(&Path::from("small"), "inline".into())
        .await
        .expect("a put");
    store
        .put(&kept, payload(2))
        .await
        .expect("an overwrite, which leaves 3 chunks");
    let mut upload = store
        .put_multipart(&Path::from("broken"))
        .await
        .expect("an upload");
    upload.put_part(payload(4)).await.expect("a part");
    drop(upload);

    assert_eq!(
        store.sweep(0).await.expect("a sweep"),
        Swept::default(),
        "all chunks are young"
    );
    let swept = sweep_older_than(&store.transport, 0)
        .await
        .expect("a sweep");
    assert_eq!(
        swept,
        Swept {
            uploads: 2,
            chunks: 7
        }
    );
    let kept = store
        .get(&kept)
        .await
        .expect("the object")
        .bytes()
        .await
        .expect("its bytes");
    assert_eq!(kept.len(), 2 * CHUNK_BYTES);
}
