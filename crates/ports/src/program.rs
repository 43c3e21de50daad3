//! A program: its threads, and its tasks as a group, in which what one spawns belongs to it and ends with it.
//!
//! A real program ends with its process, and nothing here is needed for that. The simulator runs many
//! in one process, on one thread, and kills them between any two steps: each is a [`Program`] there.

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

/// The threads of a program that shares its host: as many as half of the processors, at least one. Broker,
/// containers and other programs want theirs, and threads that wake one another for little cost more than
/// they do: of two processors a nested call takes 4 % less with one thread, and 64 callers get as much done.
///
/// # Errors
/// When the host has no room for them.
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
    /// Runs `future` as a part of this program: what it spawns is part of it too. If the program is
    /// killed the future is dropped where it stands, and whoever waits for its outcome waits for ever.
    pub fn run<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        CURRENT.scope(self.clone(), self.clone().until_killed(future))
    }

    /// Ends all its tasks at once, as SIGKILL would: nothing is told to anybody.
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

/// Makes `future` part of the program that is running now, for whoever polls it elsewhere.
pub fn inherit<F: Future>(future: F) -> impl Future<Output = F::Output> + use<F> {
    match CURRENT.try_with(Program::clone) {
        Ok(program) => Either::Left(program.run(future)),
        Err(_) => Either::Right(future),
    }
}

/// As [`tokio::spawn`], for the program that is running now.
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    tokio::spawn(inherit(future))
}

/// Runs what may wait for a disk: on a thread of its own, or where there is only one thread, here.
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
    async fn what_a_program_spawned_ends_with_it() {
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
    async fn without_a_program_tasks_are_tasks() {
        assert_eq!(spawn(async { 7 }).await.unwrap(), 7);
    }
}
