//! Queries of events of the whole log: pages, each with a limit of events read, or a stream of new events.

use std::collections::HashMap;

use aod_api::events::{EventView, SelectedEvents};
use aod_domain::id::RunId;
use aod_domain::run;
use aod_domain::selection::{Candidate, Kind, LaunchFacts, Scope, Selection, words};
use aod_domain::subject;
use aod_ports::event_log::{EventLog, Followed, From, ReadError, StoredEvent};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use jiff::Timestamp;

use crate::context::{Context, Shared};
use crate::error::Result;
use crate::parameters::Parameters;
use crate::reading::views;
use aod_domain::access::Principal;

/// Maximum number of events that one request reads: some 20 MB of ordinary ones, which takes less than a second.
const LOOKED_AT_MAX: usize = 10_000;

/// Events that are read at a time.
const PAGE_SIZE: usize = 500;

/// Maximum number of launches that one request reads in addition: each is a read of its own.
const LAUNCHES_READ_MAX: usize = 500;

/// Maximum number of launches that one follower keeps in memory.
const LAUNCHES_KNOWN_MAX: usize = 10_000;

/// Takes the query from `parameters`, which collects problems.
pub(crate) fn read(parameters: &mut Parameters, principal: &Principal) -> Selection {
    let mut selection = Selection::default();
    for text in parameters.all("type") {
        match Kind::find(&text) {
            Ok(kinds) => selection.kinds.extend(kinds),
            Err(error) => parameters.error("type", format!("{error}; expected {}", kinds())),
        }
    }
    selection.tenant = parameters.tenant(principal);
    selection.is_of_tenants_only = principal.scope.tenant().is_some();
    let run = parameters.value("run", "the id of a run");
    let tree = parameters.value("tree", "the id of a run");
    if run.is_some() && tree.is_some() {
        parameters.error("tree", "expected either run or tree, not both");
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
    let mut words: Vec<&str> = Vec::new();
    for kind in Kind::ALL {
        if !words.contains(&kind.word) {
            words.push(kind.word);
        }
    }
    words.join(", ")
}

/// Up to `limit` events after `after` that match `selection`.
pub(crate) async fn page(
    context: &Context,
    selection: &Selection,
    after: u64,
    limit: usize,
) -> Result<SelectedEvents> {
    let log = context.runs.log().as_ref();
    let filter = selection.filter();
    // Read before the events: `as_of` must not cover events that are stored in the meantime.
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

/// A stream of events that match `selection`.
pub(crate) async fn follow(
    context: &Shared,
    selection: Selection,
    from: From,
) -> Result<BoxStream<'static, EventView>> {
    let log = context.runs.log().clone();
    let followed = log.follow(&selection.filter(), from).await?;
    let state = (followed, log, selection, Launches::default());
    let taken = stream::unfold(
        state,
        |(mut followed, log, selection, mut launches)| async move {
            loop {
                let Followed::Event(stored) = followed.next().await? else {
                    continue;
                };
                let Some(view) = readable(&stored) else {
                    continue;
                };
                match takes(log.as_ref(), &selection, &mut launches, &stored, &view).await {
                    Ok(true) => return Some((view, (followed, log, selection, launches))),
                    Ok(false) => (),
                    // The client resumes after the last event that it received.
                    Err(_) => return None,
                }
            }
        },
    );
    Ok(taken.boxed())
}

/// Skips an unreadable event, so that it does not hide the following ones.
fn readable(stored: &StoredEvent) -> Option<EventView> {
    let view = views::event(stored);
    if view.is_err() {
        tracing::error!(sequence = stored.sequence, "skipped an unreadable event");
    }
    view.ok()
}

async fn takes(
    log: &dyn EventLog,
    selection: &Selection,
    launches: &mut Launches,
    stored: &StoredEvent,
    view: &EventView,
) -> Result<bool> {
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

/// Facts of launches, which never change.
#[derive(Debug, Default)]
struct Launches {
    known: HashMap<RunId, Option<LaunchFacts>>,
    /// Number of launches read.
    read: usize,
}

impl Launches {
    /// The facts of a launch; none if it is missing or unreadable.
    async fn of(&mut self, log: &dyn EventLog, run: RunId) -> Result<Option<LaunchFacts>> {
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

/// The event after which the first match can be, by binary search: the log is ordered by time, except for differences
/// between clocks.
async fn beginning(log: &dyn EventLog, selection: &Selection, end: u64) -> Result<u64, ReadError> {
    let Some(begins) = selection.begins() else {
        return Ok(0);
    };
    let (mut before, mut behind) = (0, end);
    // Each round halves the rest.
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
