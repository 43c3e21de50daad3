//! What goes to models and what they answer, kept as artifacts where the operator asks for it.
//!
//! No call waits for it: bytes are copied as they pass. What there is no room for, and what cannot be stored, is
//! missing, and the log of the node says so.

use std::sync::Arc;
use std::time::Duration;

use aod_domain::id::RunId;
use aod_domain::spending::{Contents, Kept};
use aod_ports::artifact_store::ArtifactStore;
use aod_ports::program::{blocking, spawn};
use axum::body::Bytes;
use futures::future::join;
use futures::stream::{self, StreamExt as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::warn;

use crate::calls::chain;
use crate::redaction::Redaction;

/// Bytes of a request, and of an answer, that are kept: a million tokens of text, as much as models take. Of
/// pictures and documents that make more, the beginning is.
pub const CONTENT_BYTES_MAX: usize = 4 << 20;

/// Room is given in blocks of so many bytes: most answers have fewer.
const BLOCK_BYTES: usize = 64 << 10;

/// Blocks that a node holds at one time until they are stored, 64 MiB: its memory is its capsules'.
const BLOCKS_MAX: usize = 1_024;

/// How long storing may take once a call is over: the end of its attempt waits twice as long for what the
/// call took.
const STORE_PATIENCE: Duration = Duration::from_secs(5);

/// Keeps what all calls of a node say.
#[derive(Debug)]
pub(crate) struct Keeper {
    store: Arc<dyn ArtifactStore>,
    room: Arc<Semaphore>,
}

impl Keeper {
    pub(crate) fn new(store: Arc<dyn ArtifactStore>) -> Self {
        Self {
            store,
            room: Arc::new(Semaphore::new(BLOCKS_MAX)),
        }
    }

    /// Begins to keep a call of `run`: its request is stored while it is under way.
    pub(super) fn keep(&self, run: RunId, request: &Bytes, redaction: Redaction) -> Keeping {
        let mut passed = Passed::new(Arc::clone(&self.room));
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
            passed: Passed::new(Arc::clone(&self.room)),
        }
    }
}

/// One call that is kept.
#[derive(Debug)]
pub(super) struct Keeping {
    storing: Storing,
    request: JoinHandle<Option<Kept>>,
    /// As far as it is kept.
    answer: Vec<u8>,
    passed: Passed,
}

impl Keeping {
    /// The next bytes of the answer.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        let taken = self.passed.take_in(bytes.len());
        self.answer.extend_from_slice(&bytes[..taken]);
    }

    /// What was said, once it is stored; what could not be stored in time is missing.
    pub(super) async fn store(self) -> Option<Contents> {
        let run = self.storing.run;
        // A task that does not come to its end belongs to a program that ends.
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
        warn!(%run, "what was said in a call of a model was not stored in time");
        None
    })
}

/// Whose body is stored where, without what.
#[derive(Clone, Debug)]
struct Storing {
    run: RunId,
    store: Arc<dyn ArtifactStore>,
    redaction: Redaction,
}

impl Storing {
    /// Stores `body`, of which `passed` holds the room; nothing where there is nothing of it.
    async fn body(self, body: Bytes, passed: Passed) -> Option<Kept> {
        let Self {
            run,
            store,
            redaction,
        } = self;
        let dropped_bytes = passed.dropped_bytes;
        if body.is_empty() {
            if dropped_bytes > 0 {
                warn!(%run, "there is no room to keep what is said in a call of a model");
            }
            return None;
        }
        let is_cut = dropped_bytes > 0;
        let (bytes, held_back) = blocking(move || redacted(&redaction, &body, is_cut)).await;
        let bytes = stream::iter([Ok(Bytes::from(bytes))]).boxed();
        match store.put_stream(bytes).await {
            Ok(stored) => Some(Kept {
                digest: stored.digest,
                size_bytes: stored.size_bytes,
                dropped_bytes: dropped_bytes + held_back as u64,
            }),
            Err(error) => {
                warn!(%run, error = %chain(&error), "what was said in a call of a model is not stored");
                None
            }
        }
    }
}

/// How much of a body has passed.
#[derive(Debug)]
struct Passed {
    room: Arc<Semaphore>,
    blocks: Vec<OwnedSemaphorePermit>,
    taken_bytes: usize,
    dropped_bytes: u64,
}

impl Passed {
    const fn new(room: Arc<Semaphore>) -> Self {
        Self {
            room,
            blocks: Vec::new(),
            taken_bytes: 0,
            dropped_bytes: 0,
        }
    }

    /// Of the next `size_bytes`, how many are kept. Of a body whose middle was dropped its end would say
    /// another thing.
    fn take_in(&mut self, size_bytes: usize) -> usize {
        let mut taken = 0;
        if self.dropped_bytes == 0 {
            taken = size_bytes.min(CONTENT_BYTES_MAX - self.taken_bytes);
            taken = taken.min(self.make_room(taken));
        }
        self.taken_bytes += taken;
        self.dropped_bytes += (size_bytes - taken) as u64;
        taken
    }

    /// How many of the next `wanted` bytes the node has room for.
    fn make_room(&mut self, wanted: usize) -> usize {
        let needed = (self.taken_bytes + wanted).div_ceil(BLOCK_BYTES);
        while self.blocks.len() < needed {
            match Arc::clone(&self.room).try_acquire_owned() {
                Ok(block) => self.blocks.push(block),
                Err(_) => break,
            }
        }
        self.blocks.len() * BLOCK_BYTES - self.taken_bytes
    }
}

/// `body` without secrets. The end of one that was cut may be the beginning of a secret, and is held back;
/// how much that is comes with it.
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

    fn room(blocks: usize) -> Arc<Semaphore> {
        Arc::new(Semaphore::new(blocks))
    }

    #[test]
    fn a_body_is_kept_up_to_its_limit_and_the_rest_is_counted() {
        let mut passed = Passed::new(room(BLOCKS_MAX));
        assert_eq!(passed.take_in(CONTENT_BYTES_MAX - 3), CONTENT_BYTES_MAX - 3);
        assert_eq!(passed.take_in(10), 3);
        assert_eq!(passed.take_in(1), 0);
        assert_eq!(passed.dropped_bytes, 8);
    }

    #[test]
    fn calls_share_the_room_of_their_node_and_give_it_back() {
        let room = room(2);
        let mut first = Passed::new(Arc::clone(&room));
        assert_eq!(first.take_in(BLOCK_BYTES + 1), BLOCK_BYTES + 1);
        let mut second = Passed::new(Arc::clone(&room));
        assert_eq!(second.take_in(1), 0);
        // The block that it has is its own.
        assert_eq!(first.take_in(BLOCK_BYTES), BLOCK_BYTES - 1);
        drop(first);
        assert_eq!(second.take_in(1), 0, "nothing follows what was dropped");
        assert_eq!(Passed::new(room).take_in(1), 1);
    }

    #[test]
    fn a_secret_is_in_no_body_also_where_it_was_cut() {
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
