//! A started container, as its node controls it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aod_gate::protocol::{CHANNEL_DIRECTORY, EncodeError, Process, ToGate};
use aod_ports::container_runtime::{Container, ContainerEvent, ProcessSpec, RuntimeError, Verdict};
use async_trait::async_trait;
use bollard::query_parameters::KillContainerOptions;
use futures::stream::BoxStream;
use futures::{StreamExt as _, stream};
use tokio::sync::mpsc;
use tracing::debug;

use crate::creation::refused;
use crate::engine::{CallError, Engine};
use crate::gate::{GateError, GateWriter};

pub(crate) mod watch;

use watch::Watch;

/// Source: POSIX `signal.h`.
const SIGNAL_TERMINATE: i32 = 15;
const SIGNAL_KILL: i32 = 9;

/// One container with its gate and its watch.
#[derive(Debug)]
pub(crate) struct DockerContainer {
    pub(crate) engine: Engine,
    pub(crate) name: String,
    /// The engine's id: another container may have the name by now.
    pub(crate) id: String,
    pub(crate) gate: GateWriter,
    /// None after [`Container::events`] has returned it.
    pub(crate) events: Option<mpsc::Receiver<ContainerEvent>>,
    pub(crate) watch: Watch,
    /// Set when the node kills the container: its end then needs no other reason.
    pub(crate) was_killed: Arc<AtomicBool>,
}

impl DockerContainer {
    async fn signal(&self, signal: &str) -> Result<(), CallError> {
        let options = KillContainerOptions {
            signal: signal.to_owned(),
        };
        let call = self.engine.docker.kill_container(&self.id, Some(options));
        match self.engine.call(self.engine.timeouts.query, call).await {
            // 404: deleted; 409: not running.
            Err(error) if error.is_status(404) || error.is_status(409) => Ok(()),
            outcome => outcome,
        }
    }
}

fn gate_failed(action: &'static str, error: GateError) -> RuntimeError {
    RuntimeError::Engine {
        action,
        source: Box::new(error),
    }
}

#[async_trait]
impl Container for DockerContainer {
    fn name(&self) -> &str {
        &self.name
    }

    fn events(&mut self) -> BoxStream<'static, ContainerEvent> {
        let receiver = self.events.take();
        stream::unfold(receiver, async |receiver| {
            let mut receiver = receiver?;
            receiver.recv().await.map(|event| (event, Some(receiver)))
        })
        .boxed()
    }

    async fn renew(&self, milliseconds: u64) -> Result<(), RuntimeError> {
        self.gate
            .renew(milliseconds)
            .await
            .map_err(|error| gate_failed("renewing a lease", error))
    }

    async fn spawn(&self, process: ProcessSpec) -> Result<(), RuntimeError> {
        let order = ToGate::Process(Process {
            number: process.number,
            argv: process.argv,
            env: process.environment,
            stdin: process
                .stdin
                .map(|name| format!("{CHANNEL_DIRECTORY}/{name}")),
        });
        self.gate.send(&order).await.map_err(|error| match error {
            GateError::Encode(EncodeError::TooLarge { .. }) => refused(&error.to_string()),
            error => gate_failed("starting a process", error),
        })
    }

    async fn end_process(&self, number: u32, is_forced: bool) -> Result<(), RuntimeError> {
        let signal = if is_forced {
            SIGNAL_KILL
        } else {
            SIGNAL_TERMINATE
        };
        self.gate
            .signal(signal, Some(number))
            .await
            .map_err(|error| gate_failed("ending a process", error))
    }

    async fn finish(&self) -> Result<(), RuntimeError> {
        self.gate
            .send(&ToGate::Finish)
            .await
            .map_err(|error| gate_failed("finishing a container", error))
    }

    async fn terminate(&self) -> Result<(), RuntimeError> {
        let Err(error) = self.gate.signal(SIGNAL_TERMINATE, None).await else {
            return Ok(());
        };
        debug!(container = self.name, %error, "the gate does not answer; sending the signal through the engine");
        self.signal("SIGTERM")
            .await
            .map_err(|error| error.during("terminating a container"))
    }

    async fn kill(&self) -> Result<(), RuntimeError> {
        self.was_killed.store(true, Ordering::Relaxed);
        let killed = self.signal("SIGKILL").await;
        // A lease without length: the gate kills everything immediately. Also if the engine reports that nothing runs,
        // because it may have forgotten the start.
        let renewed = self.gate.renew(0).await;
        let (Err(error), Err(_)) = (killed, renewed) else {
            return Ok(());
        };
        Err(error.during("killing a container"))
    }

    async fn gone(&self) -> Result<Verdict, RuntimeError> {
        self.watch.gone().await
    }

    async fn deleted_bytes(&self) -> Result<u64, RuntimeError> {
        let counted = self.gate.count_deleted().await;
        let deleted = counted.map_err(|error| gate_failed("counting deleted files", error))?;
        Ok(deleted.bytes)
    }

    async fn complaints(&self) -> String {
        self.engine.gate_log(&self.id).await
    }
}
