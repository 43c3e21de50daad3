//! Chunks of payloads.

use super::*;

/// Cuts pieces of these sizes; checks that the bytes are unchanged and that all chunks except the last are full.
fn check(sizes: &[usize]) {
    let bytes: Vec<u8> = (0..=250).cycle().take(sizes.iter().sum()).collect();
    let mut rest = Bytes::from(bytes.clone());
    let payload: PutPayload = sizes.iter().map(|&size| rest.split_to(size)).collect();
    let cut: Vec<Bytes> = chunks(payload).collect();
    assert_eq!(cut.concat(), bytes, "{sizes:?}");
    let full = &cut[..cut.len().saturating_sub(1)];
    assert!(
        full.iter().all(|chunk| chunk.len() == CHUNK_BYTES),
        "{sizes:?}"
    );
    assert!(
        cut.iter()
            .all(|chunk| !chunk.is_empty() && chunk.len() <= CHUNK_BYTES),
        "{sizes:?}"
    );
}

#[test]
fn chunks_contain_the_payload() {
    check(&[]);
    check(&[0]);
    check(&[1]);
    check(&[CHUNK_BYTES]);
    check(&[CHUNK_BYTES + 1]);
    check(&[3 * CHUNK_BYTES]);
    check(&[1, CHUNK_BYTES, 0, 7]);
    check(&[CHUNK_BYTES - 1, 2 * CHUNK_BYTES + 5, 1]);
}

#[test]
fn new_upload_is_young() {
    assert!(age_seconds(Uuid::now_v7()) <= 1);
}
