//! Memory for uploads: a fixed total.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::spool::blocking;

/// Memory of all uploads together, in MiB: three parts of 5 MiB.
const MEMORY_MIB_MAX: u32 = 16;

/// Maximum number of kept buffers: as many as fit.
const IDLE_MAX: usize = 3;

/// Minimum size of kept buffers, in bytes; the allocator manages smaller ones well.
const KEPT_BYTES_MIN: usize = 1024 * 1024;

/// Buffers for parts and small files. Reused, because the allocator would keep several times as many
/// freed buffers of this size.
#[derive(Debug)]
pub(super) struct Memory {
    mib: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            mib: Arc::new(Semaphore::new(MEMORY_MIB_MAX as usize)),
            idle: Arc::default(),
        }
    }
}

impl Memory {
    /// Reads a piece of a file, after enough memory is free.
    pub(super) async fn read(&self, file: Arc<File>, offset: u64, count: u64) -> io::Result<Bytes> {
        let count = usize::try_from(count).map_err(io::Error::other)?;
        let mib = u32::try_from(count.div_ceil(1024 * 1024)).unwrap_or(u32::MAX);
        let share = mib.clamp(1, MEMORY_MIB_MAX);
        let share = Arc::clone(&self.mib).acquire_many_owned(share).await;
        let mut buffer = Buffer {
            bytes: if count < KEPT_BYTES_MIN {
                Vec::new()
            } else {
                self.idle_buffer()
            },
            idle: Arc::clone(&self.idle),
            _share: share.expect("the semaphore is never closed"),
        };
        blocking(move || {
            buffer.bytes.resize(count, 0);
            file.read_exact_at(&mut buffer.bytes, offset)?;
            Ok(Bytes::from_owner(buffer))
        })
        .await
    }

    fn idle_buffer(&self) -> Vec<u8> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.pop().unwrap_or_default()
    }
}

/// Bytes that return their memory when dropped.
struct Buffer {
    bytes: Vec<u8>,
    idle: Arc<Mutex<Vec<Vec<u8>>>>,
    _share: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if self.bytes.capacity() >= KEPT_BYTES_MIN && idle.len() < IDLE_MAX {
            idle.push(std::mem::take(&mut self.bytes));
        }
    }
}
