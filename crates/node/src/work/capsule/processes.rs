//! The processes of a container that holds, between the watch of the container, which receives their events, and the
//! task, which waits for their ends.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use aod_domain::run::Exit;
use aod_ports::container_runtime::{Container, ProcessEvent, ProcessSpec, RuntimeError};
use aod_ports::log_stream::Output;
use tokio::sync::oneshot;
use tracing::warn;

use super::tail::Tail;
use crate::lock::lock;
use crate::record::logs::{Logs, Source};

/// The processes that run, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Processes(Mutex<BTreeMap<u32, Running>>);

#[derive(Debug)]
struct Running {
    /// The step, for the logs.
    step: Arc<str>,
    stdout: Tail,
    stderr: Tail,
    ended: oneshot::Sender<Ended>,
}

/// A process that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) stdout: Tail,
    pub(crate) stderr: Tail,
    pub(crate) end: End,
}

/// How a process ended.
#[derive(Debug)]
pub(crate) enum End {
    Exited {
        exit: Exit,
        out_of_memory: bool,
        /// The engine, or a user on the host, has requested the end of the container.
        asked_from_outside: bool,
    },
    /// It could not start, with the reason.
    Unusable(String),
}

impl Ended {
    pub(crate) const fn was_asked_from_outside(&self) -> bool {
        matches!(
            self.end,
            End::Exited {
                asked_from_outside: true,
                ..
            }
        )
    }
}

impl Processes {
    /// Starts a process of a step, of whose outputs the last `kept_bytes` each are kept. The receiver gets its end,
    /// unless the container ends before.
    pub(crate) async fn start(
        &self,
        container: &dyn Container,
        spec: ProcessSpec,
        step: Arc<str>,
        kept_bytes: usize,
    ) -> Result<oneshot::Receiver<Ended>, RuntimeError> {
        let (ended, end) = oneshot::channel();
        let number = spec.number;
        let running = Running {
            step,
            stdout: Tail::new(kept_bytes),
            stderr: Tail::new(kept_bytes),
            ended,
        };
        lock(&self.0).insert(number, running);
        let spawned = container.spawn(spec).await;
        spawned.inspect_err(|_| drop(lock(&self.0).remove(&number)))?;
        Ok(end)
    }

    /// Handles an event of the process `number`.
    pub(crate) fn heed(&self, number: u32, event: ProcessEvent, logs: &mut Logs) {
        let end = match event {
            ProcessEvent::Wrote { output, bytes } => {
                return self.wrote(number, output, &bytes, logs);
            }
            ProcessEvent::Exited {
                exit,
                out_of_memory,
                asked_from_outside,
            } => End::Exited {
                exit,
                out_of_memory,
                asked_from_outside,
            },
            ProcessEvent::Unusable(text) => End::Unusable(text),
        };
        let Some(running) = lock(&self.0).remove(&number) else {
            return;
        };
        // The task has ended if nothing receives it.
        let _ = running.ended.send(Ended {
            stdout: running.stdout,
            stderr: running.stderr,
            end,
        });
    }

    fn wrote(&self, number: u32, output: Output, bytes: &[u8], logs: &mut Logs) {
        let mut running = lock(&self.0);
        let Some(running) = running.get_mut(&number) else {
            return;
        };
        let tail = match output {
            Output::Stdout => &mut running.stdout,
            Output::Stderr => &mut running.stderr,
        };
        tail.push(bytes);
        let source = Source::of_step(Arc::clone(&running.step), output);
        if let Err(error) = logs.write(source, bytes) {
            warn!(%error, "a part of the output was lost");
        }
    }
}
