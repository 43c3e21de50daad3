//! Conformance suite of container runtimes: containers from start to end, and images.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aod_domain::node::ObservedContainer;
use aod_domain::run::Exit;
use aod_ports::artifact_store::ArtifactStore;
use aod_ports::container_runtime::{
    Container, ContainerEvent, ContainerRuntime, ContainerSpec, ProcessEvent, ProcessSpec,
    RuntimeError, Verdict,
};
use aod_ports::log_stream::Output;
use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream::BoxStream;

mod behaviour;
mod double;
pub mod images;

pub use behaviour::Behaviour;
pub use double::Double;

use crate::events::soon;

/// A lease longer than any test.
const LONG: Duration = Duration::from_secs(120);

/// A short lease, long enough for the messages that renew it.
const SHORT: Duration = Duration::from_secs(3);

/// The result of building a packed directory.
#[derive(Clone, Copy, Debug)]
pub enum Recipe {
    /// An image with this behaviour.
    Makes(Behaviour),
    /// None: the build prints `line 1` to `line 30`, and fails.
    Fails,
}

/// A runtime under test, with operations that only its tests have.
pub trait Bench: Sync {
    fn runtime(&self) -> &dyn ContainerRuntime;

    /// A store for images.
    fn artifacts(&self) -> &Arc<dyn ArtifactStore>;

    /// Puts an image with this behaviour on the engine.
    fn image(&self, behaviour: Behaviour) -> String;

    /// Removes an image from the engine; no container uses it.
    fn forget(&self, image: &str);

    /// A packed directory with this result.
    fn context(&self, recipe: Recipe) -> PathBuf;

    /// A tag that no other test has.
    fn tag(&self, text: &str) -> String;

    /// A path for a file of this name.
    fn path(&self, name: &str) -> PathBuf;

    /// The first attempt of a new run, with a lease of `left`.
    fn spec(&self, image: &str, left: Duration) -> ContainerSpec;

    /// Asks a container to end without the runtime, like its engine or a user on its host.
    fn ask_from_outside(&self, container: &str);
}

/// Runs the whole suite; leaves only images on the engine.
pub async fn check_all(bench: &dyn Bench) {
    the_engine_says_what_it_is(bench).await;
    command_reports_start_output_and_end(bench).await;
    every_end_has_its_code(bench).await;
    missing_command_is_reported(bench).await;
    who_is_asked_to_end_may_do_so_its_own_way(bench).await;
    termination_from_outside_is_reported(bench).await;
    force_ends_what_does_not_listen(bench).await;
    a_lease_lasts_while_it_is_renewed_and_no_longer(bench).await;
    container_that_holds_runs_processes_until_it_is_finished(bench).await;
    container_that_holds_passes_requests_to_end_to_its_processes(bench).await;
    container_that_holds_reports_requests_from_outside(bench).await;
    a_container_is_listed_until_it_is_removed(bench).await;
    the_same_attempt_again_replaces_what_is_there(bench).await;
    what_is_dropped_runs_on(bench).await;
    many_at_once_keep_to_themselves(bench).await;
    images::check(bench).await;
    let left = bench.runtime().list().await.expect("a list");
    assert_eq!(left, []);
}

/// A started container.
struct Started {
    container: Box<dyn Container>,
    events: BoxStream<'static, ContainerEvent>,
    seen: Vec<ContainerEvent>,
}

impl Started {
    async fn new(bench: &dyn Bench, behaviour: Behaviour) -> Self {
        let image = bench.image(behaviour);
        Self::of(bench, bench.spec(&image, LONG)).await
    }

    async fn of(bench: &dyn Bench, spec: ContainerSpec) -> Self {
        let container = soon(bench.runtime().start(spec)).await;
        let mut container = container.expect("a container");
        let events = container.events();
        Self {
            container,
            events,
            seen: Vec::new(),
        }
    }

    /// A container that holds; its image has each behaviour.
    async fn holding(bench: &dyn Bench) -> Self {
        let image = bench.image(Behaviour::Waits);
        let spec = ContainerSpec {
            holds: true,
            ..bench.spec(&image, LONG)
        };
        let mut held = Self::of(bench, spec).await;
        let first = soon(held.events.next()).await;
        assert_eq!(first, Some(ContainerEvent::Started));
        held
    }

    async fn spawn(&self, number: u32, behaviour: Behaviour) {
        let process = ProcessSpec {
            number,
            argv: behaviour.argv(),
            environment: Vec::new(),
            stdin: None,
        };
        let spawned = soon(self.container.spawn(process)).await;
        spawned.expect("an order");
    }

    /// Reads to the end of a process.
    async fn end_of(&mut self, wanted: u32) -> Exit {
        loop {
            let event = soon(self.events.next()).await.expect("more to come");
            self.seen.push(event.clone());
            if let ContainerEvent::Process(number, ProcessEvent::Exited { exit, .. }) = event
                && number == wanted
            {
                return exit;
            }
        }
    }

    /// The text of a process on one output.
    fn said_by(&self, wanted: u32, on: Output) -> String {
        let mut all = Vec::new();
        for event in &self.seen {
            if let ContainerEvent::Process(number, ProcessEvent::Wrote { output, bytes }) = event
                && (*number, *output) == (wanted, on)
            {
                all.extend_from_slice(bytes);
            }
        }
        String::from_utf8(all).expect("text")
    }

    /// Reads until a process has printed this.
    async fn hear_process(&mut self, number: u32, wanted: &str) {
        while !self.said_by(number, Output::Stdout).contains(wanted) {
            let event = soon(self.events.next()).await;
            self.seen.push(event.expect("more to come"));
        }
    }

    /// Its text on one output.
    fn said(&self, wanted: Output) -> String {
        let mut all = Vec::new();
        for event in &self.seen {
            if let ContainerEvent::Wrote { output, bytes } = event
                && *output == wanted
            {
                all.extend_from_slice(bytes);
            }
        }
        String::from_utf8(all).expect("text")
    }

    /// Reads until it has printed this.
    async fn hear(&mut self, wanted: &str) {
        while !self.said(Output::Stdout).contains(wanted) {
            let event = soon(self.events.next()).await;
            self.seen.push(event.expect("more to come"));
        }
    }

    /// Reads to the last event and waits for the removal; returns both. An end is the last event, and comes once.
    async fn end(&mut self) -> (ContainerEvent, Verdict) {
        while let Some(event) = soon(self.events.next()).await {
            self.seen.push(event);
        }
        let (last, before) = self.seen.split_last().expect("an end at least");
        let is_amidst = |event: &ContainerEvent| {
            matches!(
                event,
                ContainerEvent::Started
                    | ContainerEvent::Wrote { .. }
                    | ContainerEvent::Process(..)
            )
        };
        assert!(before.iter().all(is_amidst), "{:?}", self.seen);
        assert!(!is_amidst(last), "{:?}", self.seen);
        let verdict = soon(self.container.gone()).await.expect("a verdict");
        (last.clone(), verdict)
    }

    async fn remove(self, bench: &dyn Bench) {
        let removed = soon(bench.runtime().remove(self.container.name())).await;
        removed.expect("a removal");
    }
}

const fn verdict(exit_code: i64) -> Verdict {
    Verdict {
        out_of_memory: false,
        exit_code: Some(exit_code),
    }
}

const fn exited(code: Option<i32>, signal: Option<i32>) -> ContainerEvent {
    ContainerEvent::Exited {
        exit: Exit { code, signal },
        out_of_memory: false,
        asked_from_outside: false,
    }
}

/// Waits until the engine's list satisfies `is_wanted`: the engine may know later than the gate reports.
async fn list_until(bench: &dyn Bench, is_wanted: impl Fn(&[ObservedContainer]) -> bool) {
    soon(async {
        while !is_wanted(&bench.runtime().list().await.expect("a list")) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

async fn the_engine_says_what_it_is(bench: &dyn Bench) {
    let info = soon(bench.runtime().describe()).await.expect("an answer");
    assert!(
        !info.version.is_empty() && !info.architecture.is_empty(),
        "{info:?}"
    );
    assert!(info.cpus > 0 && info.memory_bytes > 0, "{info:?}");
}

async fn command_reports_start_output_and_end(bench: &dyn Bench) {
    let mut started = Started::new(bench, Behaviour::Speaks).await;
    let end = started.end().await;
    assert_eq!(end, (exited(Some(0), None), verdict(0)));
    assert_eq!(started.seen.first(), Some(&ContainerEvent::Started));
    let starts = started.seen.iter();
    let starts = starts.filter(|event| **event == ContainerEvent::Started);
    assert_eq!(starts.count(), 1);
    assert_eq!(started.said(Output::Stdout), "one\nthree\n");
    assert_eq!(started.said(Output::Stderr), "two\n");
    // A repeated call returns the same; ending an ended container is harmless.
    let container = &started.container;
    assert_eq!(container.gone().await.expect("a verdict"), verdict(0));
    container.terminate().await.expect("nothing to do");
    container.kill().await.expect("nothing to do");
    assert_eq!(container.gone().await.expect("a verdict"), verdict(0));
    started.remove(bench).await;
}

async fn every_end_has_its_code(bench: &dyn Bench) {
    for code in [1, 7, 255] {
        let mut started = Started::new(bench, Behaviour::Exits(code)).await;
        let end = started.end().await;
        assert_eq!(end, (exited(Some(code.into()), None), verdict(code.into())));
        started.remove(bench).await;
    }
}

async fn missing_command_is_reported(bench: &dyn Bench) {
    let mut started = Started::new(bench, Behaviour::Missing).await;
    let (last, seen) = started.end().await;
    assert!(matches!(last, ContainerEvent::Unusable(_)), "{last:?}");
    assert_eq!(seen, verdict(127));
    assert_eq!(started.seen.len(), 1, "{:?}", started.seen);
    started.remove(bench).await;
}

async fn who_is_asked_to_end_may_do_so_its_own_way(bench: &dyn Bench) {
    let mut started = Started::new(bench, Behaviour::Obeys).await;
    started.hear("ready").await;
    is_not_gone(&started).await;
    started.container.terminate().await.expect("a message");
    assert_eq!(started.end().await, (exited(Some(5), None), verdict(5)));
    assert_eq!(started.said(Output::Stdout), "ready\nbye\n");
    started.remove(bench).await;

    let mut started = Started::new(bench, Behaviour::Waits).await;
    started.hear("ready").await;
    started.container.terminate().await.expect("a message");
    assert_eq!(started.end().await, (exited(None, Some(15)), verdict(143)));
    started.remove(bench).await;
}

async fn termination_from_outside_is_reported(bench: &dyn Bench) {
    let ends = [
        (Behaviour::Obeys, Some(5), None),
        (Behaviour::Waits, None, Some(15)),
    ];
    for (behaviour, code, signal) in ends {
        let mut started = Started::new(bench, behaviour).await;
        started.hear("ready").await;
        bench.ask_from_outside(started.container.name());
        let expected = ContainerEvent::Exited {
            exit: Exit { code, signal },
            out_of_memory: false,
            asked_from_outside: true,
        };
        assert_eq!(started.end().await.0, expected);
        started.remove(bench).await;
    }
}

async fn is_not_gone(started: &Started) {
    let gone = tokio::time::timeout(Duration::from_millis(100), started.container.gone()).await;
    assert!(gone.is_err(), "{gone:?} while it runs");
}

async fn force_ends_what_does_not_listen(bench: &dyn Bench) {
    let mut started = Started::new(bench, Behaviour::Ignores).await;
    started.hear("ready").await;
    started.container.terminate().await.expect("a message");
    started.hear("asked").await;
    is_not_gone(&started).await;
    started.container.kill().await.expect("the engine takes it");
    // The gate is killed with all processes, and cannot report.
    assert_eq!(started.end().await, (ContainerEvent::Lost, verdict(137)));
    started.remove(bench).await;
}

async fn a_lease_lasts_while_it_is_renewed_and_no_longer(bench: &dyn Bench) {
    // A lease that is never renewed.
    let image = bench.image(Behaviour::Ignores);
    let mut silent = Started::of(bench, bench.spec(&image, SHORT)).await;
    assert_eq!(silent.end().await, (ContainerEvent::Lost, verdict(125)));
    silent.remove(bench).await;

    // A lease that is renewed for a while.
    let mut renewed = Started::of(bench, bench.spec(&image, LONG)).await;
    renewed.hear("ready").await;
    let milliseconds = u64::try_from(SHORT.as_millis()).expect("a short time");
    for _ in 0..8 {
        let answer = renewed.container.renew(milliseconds).await;
        answer.expect("a gate that lives");
        let gone = tokio::time::timeout(SHORT / 4, renewed.container.gone()).await;
        assert!(gone.is_err(), "{gone:?} although it is renewed");
    }
    assert_eq!(renewed.end().await, (ContainerEvent::Lost, verdict(125)));
    renewed.remove(bench).await;

    // A lease that is withdrawn.
    let mut cut = Started::new(bench, Behaviour::Ignores).await;
    cut.hear("ready").await;
    cut.container.renew(0).await.expect("a gate that lives");
    assert_eq!(cut.end().await, (ContainerEvent::Lost, verdict(125)));
    cut.remove(bench).await;
}

async fn container_that_holds_runs_processes_until_it_is_finished(bench: &dyn Bench) {
    let mut held = Started::holding(bench).await;
    held.spawn(1, Behaviour::Speaks).await;
    assert_eq!(held.end_of(1).await, with_code(0));
    assert_eq!(held.said_by(1, Output::Stdout), "one\nthree\n");
    assert_eq!(held.said_by(1, Output::Stderr), "two\n");
    // Two at the same time.
    held.spawn(2, Behaviour::Waits).await;
    held.spawn(3, Behaviour::Exits(3)).await;
    assert_eq!(held.end_of(3).await, with_code(3));
    soon(held.container.end_process(2, true))
        .await
        .expect("an order");
    let killed = Exit {
        code: None,
        signal: Some(9),
    };
    assert_eq!(held.end_of(2).await, killed);
    soon(held.container.finish()).await.expect("an order");
    let (last, verdict) = held.end().await;
    let finished = ContainerEvent::Exited {
        exit: with_code(0),
        out_of_memory: false,
        asked_from_outside: false,
    };
    assert_eq!((last, verdict.exit_code), (finished, Some(0)));
    held.remove(bench).await;
}

async fn container_that_holds_passes_requests_to_end_to_its_processes(bench: &dyn Bench) {
    let mut held = Started::holding(bench).await;
    held.spawn(1, Behaviour::Obeys).await;
    held.hear_process(1, "ready").await;
    soon(held.container.terminate()).await.expect("an order");
    assert_eq!(held.end_of(1).await, with_code(5));
    let (last, _) = held.end().await;
    assert!(matches!(last, ContainerEvent::Exited { .. }), "{last:?}");
    held.remove(bench).await;
}

/// A step that the engine interrupts is no failed step.
async fn container_that_holds_reports_requests_from_outside(bench: &dyn Bench) {
    let mut held = Started::holding(bench).await;
    held.spawn(1, Behaviour::Waits).await;
    held.hear_process(1, "ready").await;
    bench.ask_from_outside(held.container.name());
    held.end_of(1).await;
    let last = held.seen.last().expect("an end");
    let is_reported = |event: &ContainerEvent| {
        matches!(
            event,
            ContainerEvent::Process(
                1,
                ProcessEvent::Exited {
                    asked_from_outside: true,
                    ..
                }
            )
        )
    };
    assert!(is_reported(last), "{last:?}");
    held.end().await;
    held.remove(bench).await;
}

const fn with_code(code: i32) -> Exit {
    Exit {
        code: Some(code),
        signal: None,
    }
}

async fn a_container_is_listed_until_it_is_removed(bench: &dyn Bench) {
    let image = bench.image(Behaviour::Obeys);
    let spec = bench.spec(&image, LONG);
    let run = spec.run;
    let later = ContainerSpec {
        attempt: 2,
        ..bench.spec(&image, LONG)
    };
    let later_run = later.run;
    let mut one = Started::of(bench, spec).await;
    let mut two = Started::of(bench, later).await;
    let observed = |started: &Started, run, attempt, is_running| ObservedContainer {
        name: started.container.name().to_owned(),
        run,
        attempt,
        is_running,
    };
    let both = |one_runs| {
        let mut both = [
            observed(&one, run, 1, one_runs),
            observed(&two, later_run, 2, true),
        ];
        both.sort_by(|a, b| a.name.cmp(&b.name));
        both
    };
    let (both_run, one_ended) = (both(true), both(false));
    let is = |list: &[ObservedContainer], wanted: &[ObservedContainer]| {
        let mut list = list.to_vec();
        list.sort_by(|a, b| a.name.cmp(&b.name));
        list == wanted
    };
    list_until(bench, |list| is(list, &both_run)).await;
    one.hear("ready").await;
    one.container.terminate().await.expect("a message");
    one.end().await;
    list_until(bench, |list| is(list, &one_ended)).await;

    // One ended and one running container; each is removed twice.
    let runtime = bench.runtime();
    for name in [one.container.name(), two.container.name()] {
        soon(runtime.remove(name)).await.expect("a removal");
        let listed = runtime.list().await.expect("a list");
        assert!(listed.iter().all(|found| found.name != name), "{listed:?}");
        soon(runtime.remove(name)).await.expect("nothing to remove");
    }
    let (last, _) = two.end().await;
    assert_eq!(last, ContainerEvent::Lost);
}

async fn the_same_attempt_again_replaces_what_is_there(bench: &dyn Bench) {
    let spec = bench.spec(&bench.image(Behaviour::Obeys), LONG);
    let mut first = Started::of(bench, spec.clone()).await;
    first.hear("ready").await;
    let mut second = Started::of(bench, spec.clone()).await;
    assert_eq!(first.container.name(), second.container.name());
    let (last, _) = first.end().await;
    assert_eq!(last, ContainerEvent::Lost);
    list_until(
        bench,
        |list| matches!(list, [one] if one.is_running && one.run == spec.run),
    )
    .await;
    // Messages to the first do not reach the second.
    let _ = first.container.terminate().await;
    second.hear("ready").await;
    is_not_gone(&second).await;
    second.container.terminate().await.expect("a message");
    assert_eq!(second.end().await, (exited(Some(5), None), verdict(5)));

    // An ended container too.
    let mut third = Started::of(bench, spec).await;
    third.hear("ready").await;
    assert_eq!(bench.runtime().list().await.expect("a list").len(), 1);
    third.remove(bench).await;
}

async fn what_is_dropped_runs_on(bench: &dyn Bench) {
    let mut started = Started::new(bench, Behaviour::Obeys).await;
    started.hear("ready").await;
    let name = started.container.name().to_owned();
    drop(started);
    let is_there = |list: &[ObservedContainer]| matches!(list, [one] if one.is_running);
    list_until(bench, is_there).await;
    soon(bench.runtime().remove(&name))
        .await
        .expect("a removal");
}

async fn many_at_once_keep_to_themselves(bench: &dyn Bench) {
    let images = [1, 2, 3, 4].map(|code| (code, bench.image(Behaviour::Exits(code))));
    let runs = images.iter().map(|(code, image)| async move {
        let mut started = Started::of(bench, bench.spec(image, LONG)).await;
        let end = started.end().await;
        let code = *code;
        assert_eq!(end, (exited(Some(code.into()), None), verdict(code.into())));
        started.remove(bench).await;
    });
    join_all(runs).await;
}

/// Whether a start failed because the image is missing.
async fn is_missing(bench: &dyn Bench, image: &str) -> bool {
    let started = soon(bench.runtime().start(bench.spec(image, LONG))).await;
    matches!(started, Err(RuntimeError::ImageMissing { image: missing }) if missing == image)
}
