//! Does work once for several concurrent callers.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use aod_ports::BoxError;
use aod_ports::artifact_store::StoreError;
use aod_ports::container_runtime::RuntimeError;
use tokio::sync::OnceCell;

type Outcome<T> = Result<T, Arc<RuntimeError>>;

/// Work in progress, by key. Only callers that already wait get a result; later callers start again.
#[derive(Debug)]
pub(crate) struct Coalesce<T> {
    running: Mutex<HashMap<String, Arc<OnceCell<Outcome<T>>>>>,
}

impl<T> Default for Coalesce<T> {
    fn default() -> Self {
        Self {
            running: Mutex::default(),
        }
    }
}

impl<T: Clone> Coalesce<T> {
    /// Does `work`, or waits for a caller that does it under the same `key` and shares the outcome.
    /// If that caller is dropped, the next one starts its own work.
    pub(crate) async fn run<F>(&self, key: &str, work: F) -> Result<T, RuntimeError>
    where
        F: Future<Output = Result<T, RuntimeError>>,
    {
        let cell = {
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(running.entry(key.to_owned()).or_default())
        };
        let outcome = cell
            .get_or_init(async || work.await.map_err(Arc::new))
            .await
            .clone();
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running
            .get(key)
            .is_some_and(|current| Arc::ptr_eq(current, &cell))
        {
            running.remove(key);
        }
        outcome.map_err(|error| share(&error))
    }
}

/// The cause of a failure that several callers share.
#[derive(Debug)]
struct Shared(Arc<RuntimeError>);

impl Shared {
    fn cause(&self) -> &(dyn Error + 'static) {
        self.0.source().unwrap_or(&*self.0)
    }
}

impl fmt::Display for Shared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.cause())
    }
}

impl Error for Shared {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()?.source()
    }
}

/// A copy of the error for another caller.
fn share(error: &Arc<RuntimeError>) -> RuntimeError {
    match &**error {
        RuntimeError::ImageMissing { image } => RuntimeError::ImageMissing {
            image: image.clone(),
        },
        RuntimeError::BuildFailed {
            message,
            last_lines,
        } => RuntimeError::BuildFailed {
            message: message.clone(),
            last_lines: last_lines.clone(),
        },
        RuntimeError::ImageRefused { message } => RuntimeError::ImageRefused {
            message: message.clone(),
        },
        RuntimeError::Engine { action, .. } => RuntimeError::Engine {
            action,
            source: Box::new(Shared(error.clone())),
        },
        RuntimeError::Store(failure) => {
            let source = Box::new(Shared(error.clone()));
            RuntimeError::Store(share_failure(failure, source))
        }
    }
}

/// As [`share`], for a failure of the store; `source` is its cause.
fn share_failure(failure: &StoreError, source: BoxError) -> StoreError {
    match failure {
        &StoreError::Missing { digest } => StoreError::Missing { digest },
        StoreError::Corrupt { digest, found } => StoreError::Corrupt {
            digest: *digest,
            found: found.clone(),
        },
        &StoreError::OutOfRange {
            digest,
            size_bytes,
            start,
            end,
        } => StoreError::OutOfRange {
            digest,
            size_bytes,
            start,
            end,
        },
        StoreError::Source { .. } => StoreError::Source { source },
        StoreError::NoRoom { place, .. } => StoreError::NoRoom {
            place: place.clone(),
            source,
        },
        StoreError::Refused { place, .. } => StoreError::Refused {
            place: place.clone(),
            source,
        },
        StoreError::Unavailable { place, .. } => StoreError::Unavailable {
            place: place.clone(),
            source,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn concurrent_callers_share_work_and_failure() {
        let coalesce = Coalesce::<()>::default();
        let times = AtomicU32::new(0);
        let build = async || {
            let work = async {
                times.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
                Err(RuntimeError::ImageRefused {
                    message: "no".into(),
                })
            };
            coalesce.run("tag", work).await
        };
        let (first, second) = tokio::join!(build(), build());
        for outcome in [first, second] {
            assert!(
                matches!(outcome, Err(RuntimeError::ImageRefused { .. })),
                "{outcome:?}"
            );
        }
        assert_eq!(times.load(Ordering::Relaxed), 1);
        assert!(build().await.is_err());
        assert_eq!(times.load(Ordering::Relaxed), 2, "a later caller retries");
    }

    #[tokio::test]
    async fn failure_of_a_full_disk_stays_one() {
        let work = async {
            Err::<(), _>(RuntimeError::Store(StoreError::NoRoom {
                place: "the cache".into(),
                source: "no space".into(),
            }))
        };
        let failed = Coalesce::default().run("tag", work).await;
        let Err(RuntimeError::Store(StoreError::NoRoom { place, .. })) = failed else {
            panic!("{failed:?}");
        };
        assert_eq!(place, "the cache");
    }

    #[tokio::test]
    async fn shared_failure_names_each_cause_once() {
        let work = async {
            Err::<(), _>(RuntimeError::Engine {
                action: "fetching",
                source: "no answer".into(),
            })
        };
        let failed = Coalesce::default().run("tag", work).await;
        let error = failed.expect_err("it failed");
        let cause = error.source().expect("a cause");
        assert_eq!(
            (error.to_string().as_str(), cause.to_string().as_str()),
            ("fetching failed", "no answer")
        );
        assert!(cause.source().is_none());
    }

    #[tokio::test]
    async fn waiting_caller_takes_over_from_dropped_caller() {
        let coalesce = Arc::new(Coalesce::<u32>::default());
        let first = tokio::spawn({
            let coalesce = Arc::clone(&coalesce);
            async move { coalesce.run("tag", std::future::pending()).await }
        });
        while coalesce.running.lock().expect("not poisoned").is_empty() {
            tokio::task::yield_now().await;
        }
        let second = coalesce.run("tag", async { Ok(2) });
        first.abort();
        assert_eq!(second.await.expect("the second's own work"), 2);
    }
}
