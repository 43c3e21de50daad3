//! The end of a call: settled once, whatever became of its answer.

use std::sync::Arc;
use std::time::Duration;

use aod_domain::spending::{Answered, Command, ModelCall, Price, Settled, Spent, Worst};
use aod_ports::secrets::SecretValue;
use axum::body::Bytes;
use tokio::time::Instant;
use tracing::warn;

use super::access::ModelAccess;
use super::format::Told;
use super::keeping::Keeping;
use super::meter::Meter;
use crate::calls::chain;

/// How often a settlement is tried to be stored, with pauses that double from a second to a minute:
/// as long as a broker may be away with a person on the way.
const STORE_TRIES_MAX: u32 = 30;
const STORE_PAUSE_MAX: Duration = Duration::from_secs(60);

/// How far a call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nobody knows of it.
    New,
    /// It may be reserved; the provider knows nothing of it.
    Reserved,
    /// The provider may charge it.
    Sent,
}

/// A call that is not settled. Dropped after it was sent, its answer broke off.
#[derive(Debug)]
pub(super) struct Settlement {
    access: Arc<ModelAccess>,
    price: Option<Price>,
    worst: Option<Worst>,
    began: Instant,
    stage: Stage,
    meter: Option<Meter>,
    keeping: Option<Keeping>,
    /// What is known so far; none once it is settled.
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

    /// It is about to be reserved: from now on its end is told.
    pub(super) fn reserving(&mut self) {
        self.stage = Stage::Reserved;
    }

    /// It was not reserved: nothing is to be settled.
    pub(super) fn forget(mut self) {
        self.end = None;
    }

    /// `request` is about to be sent, with `key`.
    pub(super) fn sending(&mut self, request: &Bytes, key: Option<&SecretValue>) {
        self.stage = Stage::Sent;
        if let Some(keeper) = &self.access.models.keeper {
            let redaction = self.access.redaction.in_json(key);
            self.keeping = Some(keeper.keep(self.access.run(), request, redaction));
        }
    }

    /// The head of the answer is here; what follows is read by `meter`.
    pub(super) fn head(&mut self, status: u16, meter: Option<Meter>) {
        let elapsed = self.elapsed_ms();
        self.meter = meter;
        if let Some(end) = &mut self.end {
            end.status = Some(status);
            end.first_byte_ms = Some(elapsed);
        }
    }

    /// The next bytes of the answer.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        if let Some(meter) = &mut self.meter {
            meter.read(bytes);
        }
        if let Some(keeping) = &mut self.keeping {
            keeping.read(bytes);
        }
    }

    /// The answer has come to its end.
    pub(super) fn whole(mut self) {
        let told = self.told();
        let answered = match told.tokens() {
            Some(_) => Answered::Whole,
            None => Answered::Broken,
        };
        self.settle(answered, told);
    }

    /// The provider charges nothing.
    pub(super) fn refused(mut self) {
        self.settle(Answered::Refused, Told::default());
    }

    fn told(&mut self) -> Told {
        self.meter.take().map(Meter::finish).unwrap_or_default()
    }

    fn settle(&mut self, answered: Answered, told: Told) {
        let duration_ms = self.elapsed_ms();
        let Some(end) = self.end.take() else { return };
        let tokens = told.tokens();
        let price = self.price;
        let settled = Settled {
            answered,
            tokens,
            cost: tokens.and_then(|tokens| Some(price?.cost(tokens))),
            tools: told.tools,
            tool_calls: told.tool_calls,
            duration_ms,
            ..end
        };
        let untold = self.worst.filter(|_| settled.is_untold());
        let mut spent = Spent::of(&settled, untold.map_or(0, |worst| worst.tokens));
        if let Some(cost) = untold.and_then(|worst| worst.cost) {
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
            Stage::Reserved => self.settle(Answered::Refused, Told::default()),
            Stage::Sent => {
                let told = self.told();
                self.settle(Answered::Broken, told);
            }
        }
    }
}

/// Until it is stored, what was reserved stays so: more is counted than was taken, never less.
async fn store(access: Arc<ModelAccess>, mut settled: Settled, keeping: Option<Keeping>) {
    if let Some(keeping) = keeping {
        settled.contents = keeping.store().await;
    }
    let root = settled.call.run.root();
    let command = Command::Settle(Box::new(settled));
    let mut pause = Duration::from_secs(1);
    for _ in 0..STORE_TRIES_MAX {
        let tenant = access.tenant();
        let stored = access.models.accounts.handle(tenant, root, &command).await;
        let Err(error) = stored else {
            return;
        };
        warn!(error = %chain(&error), "what a call of a model took is not stored yet");
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(STORE_PAUSE_MAX);
    }
    warn!(%root, "what a call of a model took was never stored");
}
