//! One container of the double, from start to end.

use std::sync::Arc;
use std::time::Duration;

use aod_domain::node::ObservedContainer;
use aod_domain::run::Exit;
use aod_ports::container_runtime::{
    Container, ContainerEvent, ContainerSpec, ProcessEvent, ProcessSpec, RuntimeError, Verdict,
};
use aod_ports::log_stream::Output;
use aod_services::program::Program;
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt as _};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::held::Order;
use super::{Command, EXIT_CODE_GATE, End};

/// Source: POSIX `signal.h`.
pub(super) const SIGNAL_TERMINATE: i32 = 15;

/// Added to the number of a fatal signal by engines and shells.
const EXIT_CODE_SIGNAL: i64 = 128;

/// 128 and the number of SIGKILL.
pub(super) const EXIT_CODE_KILLED: i64 = 137;

/// The view of a command.
#[derive(Clone, Debug)]
pub struct Inside {
    pub spec: ContainerSpec,
    /// The process of a container that holds; none for the image's own command.
    pub process: Option<ProcessSpec>,
    pub(super) events: mpsc::UnboundedSender<ContainerEvent>,
    pub(super) asked: watch::Sender<Asked>,
}

impl Inside {
    /// The payload.
    pub fn input(&self) -> serde_json::Value {
        let text = std::fs::read_to_string(&self.spec.io.input_json)
            .expect("input.json is there before the start");
        serde_json::from_str(&text).expect("input.json is JSON")
    }

    /// Writes the answer.
    pub fn write_output(&self, output: &serde_json::Value) {
        std::fs::write(self.spec.io.io.join("output.json"), output.to_string())
            .expect("/io can be written");
    }

    /// Writes to one of its outputs.
    pub fn say(&self, output: Output, text: &'static str) {
        let bytes = Bytes::from_static(text.as_bytes());
        let _ = self.events.send(match &self.process {
            None => ContainerEvent::Wrote { output, bytes },
            Some(process) => {
                ContainerEvent::Process(process.number, ProcessEvent::Wrote { output, bytes })
            }
        });
    }

    /// From now on the command handles the request to end itself; the future returns on that request. Without a
    /// handler the request ends the command.
    pub fn trap(&self) -> impl Future<Output = ()> + use<> {
        self.asked.send_modify(|asked| asked.is_trapped = true);
        let mut asked = self.asked.subscribe();
        async move {
            let _ = asked.wait_for(|asked| asked.came).await;
        }
    }
}

/// Whether a command was asked to end, and whether it has a handler.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    pub(super) came: bool,
    pub(super) came_from_outside: bool,
    pub(super) is_trapped: bool,
}

/// A container.
pub(super) struct Live {
    pub(super) name: String,
    pub(super) spec: ContainerSpec,
    pub(super) asked: watch::Sender<Asked>,
    pub(super) killed: watch::Sender<bool>,
    /// The end of its gate's lease.
    pub(super) until: watch::Sender<Instant>,
    pub(super) gone: watch::Sender<Option<Verdict>>,
    /// For a container that holds.
    pub(super) orders: mpsc::UnboundedSender<Order>,
}

impl Live {
    pub(super) fn observed(&self) -> ObservedContainer {
        ObservedContainer {
            name: self.name.clone(),
            run: self.spec.run,
            attempt: self.spec.attempt,
            is_running: self.gone.borrow().is_none(),
        }
    }

    pub(super) fn ask_from_outside(&self) {
        self.asked.send_modify(|asked| {
            asked.came = true;
            asked.came_from_outside = true;
        });
    }

    pub(super) async fn gone(&self) -> Verdict {
        let mut gone = self.gone.subscribe();
        let verdict = gone.wait_for(Option::is_some).await;
        verdict
            .ok()
            .and_then(|verdict| *verdict)
            .unwrap_or_default()
    }
}

/// Runs the command until it ends or is killed, or its gate's lease expires.
pub(super) async fn run(
    live: &Live,
    command: &Command,
    events: &mpsc::UnboundedSender<ContainerEvent>,
) -> End {
    let _ = events.send(ContainerEvent::Started);
    let (mut killed, mut asked) = (live.killed.subscribe(), live.asked.subscribe());
    let inside = Inside {
        spec: live.spec.clone(),
        process: None,
        events: events.clone(),
        asked: live.asked.clone(),
    };
    // Its processes end with it.
    let processes = Program::default();
    let exited = |code, signal| ContainerEvent::Exited {
        exit: Exit { code, signal },
        out_of_memory: false,
        asked_from_outside: live.asked.borrow().came_from_outside,
    };
    let end = tokio::select! {
        biased;
        // The gate is killed too, and reports nothing; the same is true after its lease has expired.
        _ = killed.wait_for(|&killed| killed) => End {
            event: ContainerEvent::Lost,
            exit_code: EXIT_CODE_KILLED,
        },
        () = overdue(live.until.subscribe()) => End {
            event: ContainerEvent::Lost,
            exit_code: EXIT_CODE_GATE,
        },
        _ = asked.wait_for(|asked| asked.came && !asked.is_trapped) => End {
            event: exited(None, Some(SIGNAL_TERMINATE)),
            exit_code: EXIT_CODE_SIGNAL + i64::from(SIGNAL_TERMINATE),
        },
        code = processes.run(command(inside)) => End {
            event: exited(Some(code), None),
            exit_code: code.into(),
        },
    };
    processes.kill();
    end
}

/// Returns when the lease of the container has expired.
pub(super) async fn overdue(mut until: watch::Receiver<Instant>) {
    loop {
        let at = *until.borrow_and_update();
        tokio::select! {
            biased;
            changed = until.changed() => if changed.is_err() {
                std::future::pending::<()>().await;
            },
            () = tokio::time::sleep_until(at) => return,
        }
    }
}

pub(super) struct DoubleContainer {
    pub(super) live: Arc<Live>,
    /// None once taken.
    pub(super) events: Option<mpsc::UnboundedReceiver<ContainerEvent>>,
}

impl DoubleContainer {
    fn order(&self, order: Order) -> Result<(), RuntimeError> {
        let sent = self.live.orders.send(order);
        sent.map_err(|_| RuntimeError::Engine {
            action: "an order for a container",
            source: "the container has ended".into(),
        })
    }
}

#[async_trait]
impl Container for DoubleContainer {
    fn name(&self) -> &str {
        &self.live.name
    }

    fn events(&mut self) -> BoxStream<'static, ContainerEvent> {
        let events = self.events.take().expect("events are taken once");
        stream::unfold(events, |mut events| async {
            events.recv().await.map(|event| (event, events))
        })
        .boxed()
    }

    async fn renew(&self, milliseconds: u64) -> Result<(), RuntimeError> {
        let until = Instant::now() + Duration::from_millis(milliseconds);
        self.live.until.send_replace(until);
        Ok(())
    }

    async fn spawn(&self, process: ProcessSpec) -> Result<(), RuntimeError> {
        self.order(Order::Start(process))
    }

    async fn end_process(&self, number: u32, is_forced: bool) -> Result<(), RuntimeError> {
        self.order(Order::End { number, is_forced })
    }

    async fn finish(&self) -> Result<(), RuntimeError> {
        self.order(Order::Finish)
    }

    async fn terminate(&self) -> Result<(), RuntimeError> {
        self.live.asked.send_modify(|asked| asked.came = true);
        Ok(())
    }

    async fn kill(&self) -> Result<(), RuntimeError> {
        self.live.killed.send_replace(true);
        Ok(())
    }

    async fn gone(&self) -> Result<Verdict, RuntimeError> {
        Ok(self.live.gone().await)
    }
}
