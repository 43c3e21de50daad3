//! What every container runtime must do: containers from their start to their end, and images.

use std::path::PathBuf;
use std::time::Duration;

use aod_domain::node::ObservedContainer;
use aod_domain::run::Exit;
use aod_ports::container_runtime::{
    Container, ContainerEvent, ContainerRuntime, ContainerSpec, RuntimeError, Verdict,
};
use aod_ports::log_stream::Output;
use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream::BoxStream;

mod behaviour;
mod double;
mod images;

pub use behaviour::Behaviour;
pub use double::Double;

use crate::events::soon;

/// A lease that no test outlives.
const LONG: Duration = Duration::from_secs(120);

/// A lease that ends soon, and is long enough for the messages that renew it.
const SHORT: Duration = Duration::from_secs(3);

/// What becomes of a packed directory.
#[derive(Clone, Copy, Debug)]
pub enum Recipe {
    /// An image that does this.
    Makes(Behaviour),
    /// Nothing: the build says `line 1` to `line 30`, and fails.
    Fails,
}

/// A runtime under test, and what only the tests of its kind can do.
pub trait Bench: Sync {
    fn runtime(&self) -> &dyn ContainerRuntime;

    /// Puts an image on the engine that does this.
    fn image(&self, behaviour: Behaviour) -> String;

    /// Takes an image from the engine; no container of it is left.
    fn forget(&self, image: &str);

    /// A packed directory that becomes this.
    fn context(&self, recipe: Recipe) -> PathBuf;

    /// A tag that no other test has.
    fn tag(&self, text: &str) -> String;

    /// Where there is room for a file of this name.
    fn path(&self, name: &str) -> PathBuf;

    /// The first attempt of a new run, with a lease that has `left`.
    fn spec(&self, image: &str, left: Duration) -> ContainerSpec;

    /// Asks a container to end, not through the runtime: as its engine does, or somebody on its host.
    fn ask_from_outside(&self, container: &str);
}

/// Runs all of it; nothing of it is left on the engine but images.
pub async fn check_all(bench: &dyn Bench) {
    the_engine_says_what_it_is(bench).await;
    a_command_is_told_from_its_start_to_its_end(bench).await;
    every_end_has_its_code(bench).await;
    a_command_that_is_not_there_is_told(bench).await;
    who_is_asked_to_end_may_do_so_its_own_way(bench).await;
    an_end_that_others_asked_for_is_told_as_such(bench).await;
    force_ends_what_does_not_listen(bench).await;
    a_lease_lasts_while_it_is_renewed_and_no_longer(bench).await;
    a_container_is_listed_until_it_is_removed(bench).await;
    the_same_attempt_again_replaces_what_is_there(bench).await;
    what_is_dropped_runs_on(bench).await;
    many_at_once_keep_to_themselves(bench).await;
    images::check(bench).await;
    let left = bench.runtime().list().await.expect("a list");
    assert_eq!(left, []);
}

/// A container that was started.
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

    /// What it has said on one output.
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

    /// Reads until it has said this.
    async fn hear(&mut self, wanted: &str) {
        while !self.said(Output::Stdout).contains(wanted) {
            let event = soon(self.events.next()).await;
            self.seen.push(event.expect("more to come"));
        }
    }

    /// Reads to the last event and waits until it is gone: both are the answer. An end comes once,
    /// and nothing after it.
    async fn end(&mut self) -> (ContainerEvent, Verdict) {
        while let Some(event) = soon(self.events.next()).await {
            self.seen.push(event);
        }
        let (last, before) = self.seen.split_last().expect("an end at least");
        let is_amidst = |event: &ContainerEvent| {
            matches!(
                event,
                ContainerEvent::Started | ContainerEvent::Wrote { .. }
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

/// Waits until the engine lists what `is_wanted`: it may know later than the gate has told.
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

async fn a_command_is_told_from_its_start_to_its_end(bench: &dyn Bench) {
    let mut started = Started::new(bench, Behaviour::Speaks).await;
    let end = started.end().await;
    assert_eq!(end, (exited(Some(0), None), verdict(0)));
    assert_eq!(started.seen.first(), Some(&ContainerEvent::Started));
    let starts = started.seen.iter();
    let starts = starts.filter(|event| **event == ContainerEvent::Started);
    assert_eq!(starts.count(), 1);
    assert_eq!(started.said(Output::Stdout), "one\nthree\n");
    assert_eq!(started.said(Output::Stderr), "two\n");
    // Whoever asks again is told the same; to end what has ended is harmless.
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

async fn a_command_that_is_not_there_is_told(bench: &dyn Bench) {
    let mut started = Started::new(bench, Behaviour::Missing).await;
    let (last, told) = started.end().await;
    assert!(matches!(last, ContainerEvent::Unusable(_)), "{last:?}");
    assert_eq!(told, verdict(127));
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

async fn an_end_that_others_asked_for_is_told_as_such(bench: &dyn Bench) {
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
    // The gate is killed with all others, and cannot say what it was.
    assert_eq!(started.end().await, (ContainerEvent::Lost, verdict(137)));
    started.remove(bench).await;
}

async fn a_lease_lasts_while_it_is_renewed_and_no_longer(bench: &dyn Bench) {
    // Whoever is silent from the beginning.
    let image = bench.image(Behaviour::Ignores);
    let mut silent = Started::of(bench, bench.spec(&image, SHORT)).await;
    assert_eq!(silent.end().await, (ContainerEvent::Lost, verdict(125)));
    silent.remove(bench).await;

    // Whoever renews, until it does no more.
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

    // Whose lease is taken away.
    let mut cut = Started::new(bench, Behaviour::Ignores).await;
    cut.hear("ready").await;
    cut.container.renew(0).await.expect("a gate that lives");
    assert_eq!(cut.end().await, (ContainerEvent::Lost, verdict(125)));
    cut.remove(bench).await;
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

    // One that has ended, and one that runs; both a second time.
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
    // What the first is told does not reach the second.
    let _ = first.container.terminate().await;
    second.hear("ready").await;
    is_not_gone(&second).await;
    second.container.terminate().await.expect("a message");
    assert_eq!(second.end().await, (exited(Some(5), None), verdict(5)));

    // Also one that has ended.
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

/// Whether a start was refused because the image is not here.
async fn is_missing(bench: &dyn Bench, image: &str) -> bool {
    let started = soon(bench.runtime().start(bench.spec(image, LONG))).await;
    matches!(started, Err(RuntimeError::ImageMissing { image: missing }) if missing == image)
}
