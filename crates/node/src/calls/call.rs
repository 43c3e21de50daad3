//! One call: its request, its progress, and its answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use aod_api::problem::Problem;
use aod_domain::digest::Digest;
use aod_domain::file_name::FileName;
use aod_domain::id::RunId;
use aod_domain::run::{Ended, Limits, Retries};
use aod_domain::subject::Pool;
use serde_json::{Map, Value};
use tokio::sync::watch;

/// A capsule's request for a call.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(
    not(feature = "fuzzing"),
    expect(unreachable_pub, reason = "public for the fuzz targets")
)]
pub struct Wish {
    pub target: String,
    pub arguments: Map<String, Value>,
    pub idempotency_key: Option<String>,
    pub timeout_seconds: Option<u32>,
    pub retries: Retries,
    pub limits: Limits,
    pub pool: Option<Pool>,
}

/// The answer of a call: the callee's end with its files, or a refusal.
pub(crate) type Answer = Result<Arc<CallEnd>, Box<Problem>>;

/// The end of a callee as its caller sees it.
#[derive(Debug)]
pub(crate) struct CallEnd {
    pub(crate) run: RunId,
    pub(crate) ended: Ended,
    pub(crate) output: Option<Value>,
    /// The callee's names of its files, with their names in `incoming/`.
    pub(crate) files: BTreeMap<FileName, FileName>,
}

/// The progress of a call.
#[derive(Clone, Debug)]
pub(crate) enum Progress {
    /// The gateway checks and stores it.
    Sent,
    Accepted(RunId),
    Done(Answer),
}

/// One call.
pub(crate) struct CallState {
    pub(super) request: Digest,
    pub(super) progress: watch::Sender<Progress>,
    /// No request waits and the answer was not delivered: the next identical request joins this call.
    pub(super) is_abandoned: AtomicBool,
}

impl CallState {
    pub(super) fn new(request: Digest) -> Arc<Self> {
        Arc::new(Self {
            request,
            progress: watch::Sender::new(Progress::Sent),
            is_abandoned: AtomicBool::new(false),
        })
    }

    pub(crate) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }
}
