//! A program: its threads, and its tasks as a group. A task that a program spawns belongs to the program and ends with
//! it.
//!
//! A real program ends with its process and needs none of this. The simulator runs many programs in one process, on
//! one thread, and kills them between any two steps: each is a [`Program`] there.

use std::thread::available_parallelism;

use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};
use tokio::task::JoinHandle;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;

tokio::task_local! {
    static CURRENT: Program;
}

/// Sets another number of threads. Source: the documentation of tokio.
const WORKERS_VARIABLE: &str = "TOKIO_WORKER_THREADS";

/// The threads of a program on a shared host: half of the processors, at least one. Broker, containers and other
/// programs need the rest, and threads that wake each other for small tasks cost more than they gain: on two
/// processors a nested call takes 4 % less time with one thread, at the same throughput for 64 callers.
///
/// # Errors
/// The host cannot start the threads.
pub fn runtime() -> std::io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    if std::env::var_os(WORKERS_VARIABLE).is_none() {
        let processors = available_parallelism().map_or(1, usize::from);
        builder.worker_threads((processors / 2).max(1));
    }
    builder.enable_all().build()
}

/// A program among others in one process.
#[derive(Clone, Debug, Default)]
pub struct Program {
    killed: CancellationToken,
}

impl Program {
    /// Runs `future` as a part of this program, with everything that it spawns. If the program is killed, the future
    /// is dropped at its current step, and a task that waits for its result waits forever.
    pub fn run<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        CURRENT.scope(self.clone(), self.clone().until_killed(future))
    }

    /// Ends all its tasks immediately, as SIGKILL does, without notifying anything.
    pub fn kill(&self) {
        self.killed.cancel();
    }

    async fn until_killed<F: Future>(self, future: F) -> F::Output {
        tokio::select! {
            biased;
            () = self.killed.cancelled() => (),
            outcome = future => return outcome,
        }
        std::future::pending().await
    }
}

/// Makes `future` part of the current program, for a poller elsewhere.
pub fn inherit<F: Future>(future: F) -> impl Future<Output = F::Output> + use<F> {
    match CURRENT.try_with(Program::clone) {
        Ok(program) => Either::Left(program.run(future)),
        Err(_) => Either::Right(future),
    }
}

/// [`tokio::spawn`] for the current program.
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    tokio::spawn(inherit(future))
}

/// Runs work that may wait for a disk: on a separate thread, or here if there is only one thread.
///
/// # Panics
/// When `work` does.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
        return work();
    }
    tokio::task::spawn_blocking(work)
        .await
        .expect("work that blocks does not panic")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn spawned_tasks_end_with_their_program() {
        let program = Program::default();
        let is_reached = Arc::new(AtomicBool::new(false));
        let reached = Arc::clone(&is_reached);
        tokio::spawn(program.run(async move {
            spawn(async move {
                tokio::time::sleep(Duration::from_secs(2)).await;
                reached.store(true, Ordering::Relaxed);
            })
            .await
        }));
        tokio::time::sleep(Duration::from_secs(1)).await;
        program.kill();
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(!is_reached.load(Ordering::Relaxed));
    }

    #[tokio::test]
    async fn tasks_run_without_a_program() {
        assert_eq!(spawn(async { 7 }).await.unwrap(), 7);
    }
}
