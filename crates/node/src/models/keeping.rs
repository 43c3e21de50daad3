//! Stores requests to models and their answers as artifacts, if the operator enables it.
//!
//! Calls do not wait for the store: the node copies bytes as they pass. Contents are missing if the memory is full or
//! the store fails; the node logs a warning.

use std::sync::Arc;
use std::time::Duration;

use aod_domain::id::RunId;
use aod_domain::spending::{Contents, Kept};
use aod_ports::artifact_store::ArtifactStore;
use aod_services::program::{blocking, spawn};
use axum::body::Bytes;
use futures::future::join;
use futures::stream::{self, StreamExt as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::warn;

use crate::secrets::redaction::Redaction;
use aod_services::error::chain;

/// Maximum stored size of a request, and of an answer, in bytes: a million tokens of text, the maximum of models. The
/// node stores the beginning of larger ones, with pictures or documents.
pub const CONTENT_BYTES_MAX: usize = 4 << 20;

/// Size of a block of memory, in bytes: most answers are smaller.
const BLOCK_BYTES: usize = 64 << 10;

/// Maximum number of blocks until they are stored, 64 MiB: the memory of a node is for capsules.
const BLOCKS_MAX: usize = 1_024;

/// How long storing may take after the end of a call: half the time that the end of the attempt waits for its calls.
const STORE_PATIENCE: Duration = Duration::from_secs(5);

/// Stores the contents of all calls of a node.
#[derive(Debug)]
pub(crate) struct Keeper {
    store: Arc<dyn ArtifactStore>,
    memory: Arc<Semaphore>,
}

impl Keeper {
    pub(crate) fn new(store: Arc<dyn ArtifactStore>) -> Self {
        Self {
            store,
            memory: Arc::new(Semaphore::new(BLOCKS_MAX)),
        }
    }

    /// Starts to store a call of `run`: stores the request while the call is in progress.
    pub(super) fn keep(&self, run: RunId, request: &Bytes, redaction: Redaction) -> Keeping {
        let mut passed = Passed::new(Arc::clone(&self.memory));
        let taken = passed.take_in(request.len());
        let storing = Storing {
            run,
            store: Arc::clone(&self.store),
            redaction,
        };
        Keeping {
            storing: storing.clone(),
            request: spawn(storing.body(request.slice(..taken), passed)),
            answer: Vec::new(),
            passed: Passed::new(Arc::clone(&self.memory)),
        }
    }
}

/// One call whose contents the node stores.
#[derive(Debug)]
pub(super) struct Keeping {
    storing: Storing,
    request: JoinHandle<Option<Kept>>,
    /// The beginning that the node stores.
    answer: Vec<u8>,
    passed: Passed,
}

impl Keeping {
    /// Copies the next bytes of the answer.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        let taken = self.passed.take_in(bytes.len());
        self.answer.extend_from_slice(&bytes[..taken]);
    }

    /// Stores the answer; returns the contents that were stored in time.
    pub(super) async fn store(self) -> Option<Contents> {
        let run = self.storing.run;
        // The task fails only if the program ends.
        let request = async { self.request.await.unwrap_or_default() };
        let answer = self.storing.body(self.answer.into(), self.passed);
        let (request, answer) = join(in_time(run, request), in_time(run, answer)).await;
        let contents = Contents { request, answer };
        (contents != Contents::default()).then_some(contents)
    }
}

async fn in_time(run: RunId, stored: impl Future<Output = Option<Kept>>) -> Option<Kept> {
    let stored = timeout(STORE_PATIENCE, stored).await;
    stored.unwrap_or_else(|_| {
        warn!(%run, "the contents of a model call were not stored in time");
        None
    })
}

/// The run, the store and the redaction of a body.
#[derive(Clone, Debug)]
struct Storing {
    run: RunId,
    store: Arc<dyn ArtifactStore>,
    redaction: Redaction,
}

impl Storing {
    /// Stores `body`, whose memory `passed` holds; none if empty.
    async fn body(self, body: Bytes, passed: Passed) -> Option<Kept> {
        let (run, redaction) = (self.run, self.redaction);
        let dropped_bytes = passed.dropped_bytes;
        if body.is_empty() {
            if dropped_bytes > 0 {
                warn!(%run, "the memory for contents is full: the contents of a model call are not stored");
            }
            return None;
        }
        let is_cut = dropped_bytes > 0;
        let (bytes, held_back) = blocking(move || redacted(&redaction, &body, is_cut)).await;
        let bytes = stream::iter([Ok(Bytes::from(bytes))]).boxed();
        match self.store.put_stream(bytes).await {
            Ok(stored) => Some(Kept {
                digest: stored.digest,
                size_bytes: stored.size_bytes,
                dropped_bytes: dropped_bytes + held_back as u64,
            }),
            Err(error) => {
                warn!(%run, error = %chain(&error), "the node cannot store the contents of a model call");
                None
            }
        }
    }
}

/// Counts the bytes of a body, and holds the memory for the stored ones.
#[derive(Debug)]
struct Passed {
    memory: Arc<Semaphore>,
    blocks: Vec<OwnedSemaphorePermit>,
    taken_bytes: usize,
    dropped_bytes: u64,
}

impl Passed {
    const fn new(memory: Arc<Semaphore>) -> Self {
        Self {
            memory,
            blocks: Vec::new(),
            taken_bytes: 0,
            dropped_bytes: 0,
        }
    }

    /// The number of the next `size_bytes` to store. After dropped bytes it is zero: a body without its middle would be
    /// misleading.
    fn take_in(&mut self, size_bytes: usize) -> usize {
        let mut taken = 0;
        if self.dropped_bytes == 0 {
            taken = size_bytes.min(CONTENT_BYTES_MAX - self.taken_bytes);
            taken = taken.min(self.acquire(taken));
        }
        self.taken_bytes += taken;
        self.dropped_bytes += (size_bytes - taken) as u64;
        taken
    }

    /// Acquires memory for the next `wanted` bytes; returns the number of bytes that fit.
    fn acquire(&mut self, wanted: usize) -> usize {
        let needed = (self.taken_bytes + wanted).div_ceil(BLOCK_BYTES);
        while self.blocks.len() < needed {
            match Arc::clone(&self.memory).try_acquire_owned() {
                Ok(block) => self.blocks.push(block),
                Err(_) => break,
            }
        }
        self.blocks.len() * BLOCK_BYTES - self.taken_bytes
    }
}

/// `body` without secrets, and the number of bytes that were held back at the end of a cut body, because they may be
/// the beginning of a secret.
fn redacted(redaction: &Redaction, body: &[u8], is_cut: bool) -> (Vec<u8>, usize) {
    let mut held = Vec::new();
    let Some(mut bytes) = redaction.stream(&mut held, body) else {
        return (body.to_vec(), 0);
    };
    if !is_cut {
        bytes.extend(redaction.rest(&mut held));
    }
    (bytes, held.len())
}

#[cfg(test)]
mod tests {
    use aod_ports::secrets::SecretValue;

    use super::*;

    fn memory(blocks: usize) -> Arc<Semaphore> {
        Arc::new(Semaphore::new(blocks))
    }

    #[test]
    fn body_is_stored_up_to_its_limit_and_the_rest_is_counted() {
        let mut passed = Passed::new(memory(BLOCKS_MAX));
        assert_eq!(passed.take_in(CONTENT_BYTES_MAX - 3), CONTENT_BYTES_MAX - 3);
        assert_eq!(passed.take_in(10), 3);
        assert_eq!(passed.take_in(1), 0);
        assert_eq!(passed.dropped_bytes, 8);
    }

    #[test]
    fn calls_share_memory_of_node_and_release_it() {
        let memory = memory(2);
        let mut first = Passed::new(Arc::clone(&memory));
        assert_eq!(first.take_in(BLOCK_BYTES + 1), BLOCK_BYTES + 1);
        let mut second = Passed::new(Arc::clone(&memory));
        assert_eq!(second.take_in(1), 0);
        // The first call has the rest of its block.
        assert_eq!(first.take_in(BLOCK_BYTES), BLOCK_BYTES - 1);
        drop(first);
        assert_eq!(second.take_in(1), 0, "bytes after a gap are dropped");
        assert_eq!(Passed::new(memory).take_in(1), 1);
    }

    #[test]
    fn secret_is_redacted_in_whole_and_cut_bodies() {
        let redaction = Redaction::default();
        redaction.begin(&[SecretValue::new("opensesame".to_owned())]);
        let check = |body: &str, is_cut, expected: (&str, usize)| {
            let (bytes, held_back) = redacted(&redaction, body.as_bytes(), is_cut);
            assert_eq!(
                (bytes.as_slice(), held_back),
                (expected.0.as_bytes(), expected.1)
            );
        };
        check("say opensesame, openses", true, ("say ***, ", 7));
        check("say opensesame, openses", false, ("say ***, openses", 0));
    }
}
