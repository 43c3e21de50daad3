//! The end of a call: settles every call once, after any end.

use std::sync::Arc;
use std::time::Duration;

use aod_domain::spending::{Answered, Command, ModelCall, Price, Settled, Spent, Worst};
use aod_ports::secrets::SecretValue;
use axum::body::Bytes;
use tokio::time::Instant;
use tracing::warn;

use super::access::ModelAccess;
use super::format::Reported;
use super::keeping::Keeping;
use super::meter::Meter;
use aod_services::error::chain;

/// Maximum number of tries to store a settlement, with pauses that double from a second to a minute: enough for an
/// operator to restart a broker.
const STORE_TRIES_MAX: u32 = 30;
const STORE_PAUSE_MAX: Duration = Duration::from_secs(60);

/// The progress of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing is stored.
    New,
    /// It may be reserved; nothing was sent to the provider.
    Reserved,
    /// The provider may charge it.
    Sent,
}

/// A call that is not settled. If it is dropped after it was sent, its answer broke off.
#[derive(Debug)]
pub(super) struct Settlement {
    access: Arc<ModelAccess>,
    price: Option<Price>,
    worst: Option<Worst>,
    began: Instant,
    stage: Stage,
    meter: Option<Meter>,
    keeping: Option<Keeping>,
    /// The known facts; none once settled.
    end: Option<Settled>,
}

impl Settlement {
    pub(super) fn new(
        access: Arc<ModelAccess>,
        call: ModelCall,
        price: Option<Price>,
        worst: Option<Worst>,
        is_streamed: bool,
    ) -> Self {
        let end = Settled {
            call,
            answered: Answered::Broken,
            status: None,
            tokens: None,
            cost: None,
            tools: Vec::new(),
            tool_calls: 0,
            is_streamed,
            first_byte_ms: None,
            duration_ms: 0,
            contents: None,
        };
        Self {
            access,
            price,
            worst,
            began: Instant::now(),
            stage: Stage::New,
            meter: None,
            keeping: None,
            end: Some(end),
        }
    }

    /// Marks the call as possibly reserved: from now on it must be settled.
    pub(super) fn reserving(&mut self) {
        self.stage = Stage::Reserved;
    }

    /// Drops a call that was not reserved, without settling it.
    pub(super) fn forget(mut self) {
        self.end = None;
    }

    /// Marks the call as sent; `request` goes to the provider with `key`.
    pub(super) fn sending(&mut self, request: &Bytes, key: Option<&SecretValue>) {
        self.stage = Stage::Sent;
        if let Some(keeper) = &self.access.models.keeper {
            let redaction = self.access.redaction.in_json(key);
            self.keeping = Some(keeper.keep(self.access.asker.run, request, redaction));
        }
    }

    /// Records the head of the answer; `meter` reads the body.
    pub(super) fn head(&mut self, status: u16, meter: Option<Meter>) {
        let elapsed = self.elapsed_ms();
        self.meter = meter;
        if let Some(end) = &mut self.end {
            end.status = Some(status);
            end.first_byte_ms = Some(elapsed);
        }
    }

    /// Reads the next bytes of the answer.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        if let Some(meter) = &mut self.meter {
            meter.read(bytes);
        }
        if let Some(keeping) = &mut self.keeping {
            keeping.read(bytes);
        }
    }

    /// Settles a complete answer.
    pub(super) fn whole(mut self) {
        let reported = self.reported();
        let answered = match reported.tokens() {
            Some(_) => Answered::Whole,
            None => Answered::Broken,
        };
        self.settle(answered, reported);
    }

    /// Settles a refused call, for which the provider charges nothing.
    pub(super) fn refused(mut self) {
        self.settle(Answered::Refused, Reported::default());
    }

    fn reported(&mut self) -> Reported {
        self.meter.take().map(Meter::finish).unwrap_or_default()
    }

    fn settle(&mut self, answered: Answered, reported: Reported) {
        let duration_ms = self.elapsed_ms();
        let Some(end) = self.end.take() else { return };
        let tokens = reported.tokens();
        let price = self.price;
        let settled = Settled {
            answered,
            tokens,
            cost: tokens.and_then(|tokens| Some(price?.cost(tokens))),
            tools: reported.tools,
            tool_calls: reported.tool_calls,
            duration_ms,
            ..end
        };
        let unreported = self.worst.filter(|_| settled.is_unreported());
        let mut spent = Spent::of(&settled, unreported.map_or(0, |worst| worst.tokens));
        if let Some(cost) = unreported.and_then(|worst| worst.cost) {
            spent.cost = cost;
            spent.unpriced_calls = 0;
        }
        self.access.add(spent);
        let access = Arc::clone(&self.access);
        let keeping = self.keeping.take();
        self.access.tasks.spawn(store(access, settled, keeping));
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Drop for Settlement {
    fn drop(&mut self) {
        match self.stage {
            Stage::New => (),
            Stage::Reserved => self.settle(Answered::Refused, Reported::default()),
            Stage::Sent => {
                let reported = self.reported();
                self.settle(Answered::Broken, reported);
            }
        }
    }
}

/// Stores the settlement. Until then the call counts as reserved: the budget counts more than was used, never less.
async fn store(access: Arc<ModelAccess>, mut settled: Settled, keeping: Option<Keeping>) {
    if let Some(keeping) = keeping {
        settled.contents = keeping.store().await;
    }
    let root = settled.call.run.root();
    let command = Command::Settle(Box::new(settled));
    let mut pause = Duration::from_secs(1);
    for _ in 0..STORE_TRIES_MAX {
        let tenant = &access.asker.tenant;
        let stored = access.models.accounts.handle(tenant, root, &command).await;
        let Err(error) = stored else {
            return;
        };
        warn!(error = %chain(&error), "the usage of a model call is not stored yet; retrying");
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(STORE_PAUSE_MAX);
    }
    warn!(%root, "the usage of a model call was not stored; its reservation remains");
}
