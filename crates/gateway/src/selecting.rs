//! Events of the whole log that somebody asks for: a page at a time, with a bound on what is looked at, or
//! as they come.

use std::collections::HashMap;

use aod_api::events::{EventView, SelectedEvents};
use aod_domain::id::RunId;
use aod_domain::run;
use aod_domain::selection::{Candidate, Kind, LaunchFacts, Scope, Selection, words};
use aod_domain::subject;
use aod_ports::event_log::{EventLog, From, ReadError, StoredEvent, Told};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use jiff::Timestamp;

use crate::context::{Context, Shared};
use crate::http::access::Principal;
use crate::http::error::ApiResult;
use crate::http::parameters::Parameters;
use crate::views;

/// Events that one request looks at: some 20 MB of ordinary ones, which takes less than a second.
const LOOKED_AT_MAX: usize = 10_000;

/// Events that are read at a time.
const PAGE_SIZE: usize = 500;

/// Launches that one request reads beside that: each is a read of its own.
const LAUNCHES_READ_MAX: usize = 500;

/// Launches that one follower remembers.
const LAUNCHES_KNOWN_MAX: usize = 10_000;

/// Takes what is wanted out of `parameters`, which keep what is wrong with them.
pub(crate) fn read(parameters: &mut Parameters, principal: &Principal) -> Selection {
    let mut selection = Selection::default();
    for text in parameters.all("type") {
        match Kind::find(&text) {
            Ok(kind) => selection.kinds.push(kind),
            Err(error) => parameters.error("type", format!("{error}; expected {}", kinds())),
        }
    }
    selection.tenant = parameters.tenant(principal);
    selection.is_of_tenants_only = principal.scope.tenant().is_some();
    let run = parameters.value("run", "the id of a run");
    let tree = parameters.value("tree", "the id of a run");
    if run.is_some() && tree.is_some() {
        parameters.error("tree", "given together with run; expected one of them");
    }
    selection.scope = tree.map(Scope::Tree).or(run.map(Scope::Run));
    selection.capsule = parameters.value("capsule", "the name of a capsule");
    selection.since = parameters.value("since", "a time like 2026-03-01T12:00:00Z");
    selection.until = parameters.value("until", "a time like 2026-03-01T12:00:00Z");
    selection.words = words(&parameters.text("text").unwrap_or_default());
    for text in parameters.all("label") {
        match text.split_once('=') {
            Some((name, value)) => selection.labels.push((name.to_owned(), value.to_owned())),
            None => parameters.error("label", format!("{text:.80?} given; expected name=value")),
        }
    }
    selection
}

fn kinds() -> String {
    let words = Kind::ALL.iter().map(|kind| kind.word);
    words.collect::<Vec<_>>().join(", ")
}

/// Up to `limit` events that `selection` takes, after `after`.
pub(crate) async fn page(
    context: &Context,
    selection: &Selection,
    after: u64,
    limit: usize,
) -> ApiResult<SelectedEvents> {
    let log = context.runs.log().as_ref();
    let filter = selection.filter();
    // Read before the events: what is stored meanwhile may be missing, and is not said to be there.
    let end = log.fill().await?.last_sequence;
    let mut after = after.max(beginning(log, selection, end).await?);
    let mut launches = Launches::default();
    let mut page = SelectedEvents {
        items: Vec::new(),
        next: None,
        as_of: end,
        looked_at: 0,
    };
    loop {
        let read = log.read(&filter, after, PAGE_SIZE).await?;
        let is_end = read.len() < PAGE_SIZE;
        for stored in read {
            page.looked_at += 1;
            after = stored.sequence;
            page.as_of = end.max(after);
            let view = readable(&stored);
            if view
                .as_ref()
                .is_some_and(|view| selection.is_over(view.time))
            {
                return Ok(page);
            }
            if let Some(view) = view
                && takes(log, selection, &mut launches, &stored, &view).await?
            {
                page.items.push(view);
            }
            let is_full = page.items.len() >= limit
                || page.looked_at >= LOOKED_AT_MAX
                || launches.read >= LAUNCHES_READ_MAX;
            if is_full {
                return Ok(SelectedEvents {
                    next: Some(after),
                    as_of: after,
                    ..page
                });
            }
        }
        if is_end {
            return Ok(page);
        }
    }
}

/// The events that `selection` takes, as they come.
pub(crate) async fn follow(
    context: &Shared,
    selection: Selection,
    from: From,
) -> ApiResult<BoxStream<'static, EventView>> {
    let log = context.runs.log().clone();
    let told = log.follow(&selection.filter(), from).await?;
    let state = (told, log, selection, Launches::default());
    let taken = stream::unfold(
        state,
        |(mut told, log, selection, mut launches)| async move {
            loop {
                let Told::Event(stored) = told.next().await? else {
                    continue;
                };
                let Some(view) = readable(&stored) else {
                    continue;
                };
                match takes(log.as_ref(), &selection, &mut launches, &stored, &view).await {
                    Ok(true) => return Some((view, (told, log, selection, launches))),
                    Ok(false) => (),
                    // Whoever follows asks again behind the last event that came.
                    Err(_) => return None,
                }
            }
        },
    );
    Ok(taken.boxed())
}

/// One that cannot be read is left out: it must not hide those that follow.
fn readable(stored: &StoredEvent) -> Option<EventView> {
    let view = views::event(stored);
    if view.is_err() {
        tracing::error!(sequence = stored.sequence, "an event cannot be read");
    }
    view.ok()
}

async fn takes(
    log: &dyn EventLog,
    selection: &Selection,
    launches: &mut Launches,
    stored: &StoredEvent,
    view: &EventView,
) -> ApiResult<bool> {
    let candidate = Candidate {
        subject: &stored.subject,
        time: view.time,
        data: &view.data,
    };
    if !selection.takes(&candidate) {
        return Ok(false);
    }
    let Some(run) = selection.asks_about(&stored.subject) else {
        return Ok(true);
    };
    let own = launches.of(log, run).await?;
    let root = launches.of(log, run.root()).await?;
    let both = own.zip(root);
    Ok(both.is_some_and(|(own, root)| selection.takes_launch(&own, &root)))
}

/// What was read of launches: they never change.
#[derive(Debug, Default)]
struct Launches {
    known: HashMap<RunId, Option<LaunchFacts>>,
    /// How many were read.
    read: usize,
}

impl Launches {
    /// None for a run whose launch is not there or cannot be read: then nothing is known of it.
    async fn of(&mut self, log: &dyn EventLog, run: RunId) -> ApiResult<Option<LaunchFacts>> {
        if let Some(known) = self.known.get(&run) {
            return Ok(known.clone());
        }
        if self.known.len() >= LAUNCHES_KNOWN_MAX {
            self.known.clear();
        }
        self.read += 1;
        let first = log.read(&subject::run_state(run), 0, 1).await?;
        let first = first.first();
        let recorded = first.map(StoredEvent::decode::<run::Event>);
        let recorded = recorded.and_then(Result::ok);
        let launched = recorded
            .as_ref()
            .and_then(|recorded| recorded.event.launched());
        let facts = launched.map(|launched| LaunchFacts {
            capsule: launched.work.name().clone(),
            labels: launched.labels.clone(),
        });
        self.known.insert(run, facts.clone());
        Ok(facts)
    }
}

/// The event after which anything that is wanted can be, by halving: the log is in the order of times, but
/// for what clocks are apart.
async fn beginning(log: &dyn EventLog, selection: &Selection, end: u64) -> Result<u64, ReadError> {
    let Some(begins) = selection.begins() else {
        return Ok(0);
    };
    let (mut before, mut behind) = (0, end);
    // Each round halves what is left.
    while before < behind {
        let middle = before + (behind - before) / 2;
        let found = log.read(subject::ALL, middle, 1).await?;
        match found
            .first()
            .and_then(|stored| Some((stored.sequence, time(stored)?)))
        {
            Some((sequence, time)) if time < begins => before = sequence.max(middle + 1),
            _ => behind = middle,
        }
    }
    Ok(before)
}

fn time(stored: &StoredEvent) -> Option<Timestamp> {
    views::event(stored).ok().map(|view| view.time)
}
