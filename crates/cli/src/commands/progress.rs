//! The progress of a run that the command waits for: on a terminal the output of the run above one changing line,
//! otherwise one fixed line, and the reason of a long wait.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aod_api::events::EventView;
use aod_api::runs::{RunSummary, RunView};
use aod_domain::id::RunId;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::logs;
use super::runs::path;
use crate::client::Client;
use crate::console::{Console, StatusLine};
use crate::text;

/// Interval between requests for the reason of a wait, on a terminal and elsewhere.
const REASON_INTERVAL: Duration = Duration::from_secs(2);
const REASON_INTERVAL_PLAIN: Duration = Duration::from_secs(30);

/// Time that a run may wait before its reason is of interest.
const REASON_PATIENCE: Duration = Duration::from_secs(2);

/// Maximum time for the last output lines to arrive after the result.
const REST_PATIENCE: Duration = Duration::from_secs(2);

/// The progress display of one run.
#[derive(Debug)]
pub(super) struct Progress {
    status: StatusLine,
    /// The tasks that end with the run.
    readers: Vec<JoinHandle<()>>,
    reasons: JoinHandle<()>,
}

impl Progress {
    /// Starts the display for `run`.
    pub(super) fn begin(client: &Client, run: &RunSummary, console: Console) -> Self {
        let (client, id) = (client.clone(), run.id);
        if !console.is_interactive {
            console.tell(&format!("{} runs as {id}", run.capsule));
            let tell = move |reason: Option<String>| {
                if let Some(reason) = reason {
                    console.tell(&format!("{id} waits: {reason}"));
                }
            };
            return Self {
                status: StatusLine::hidden(),
                readers: Vec::new(),
                reasons: tokio::spawn(read_reasons(client, id, REASON_INTERVAL_PLAIN, tell)),
            };
        }
        console.tell(&id.to_string());
        let line = Line::begin(&run.capsule, console);
        let status = line.status.clone();
        let events = tokio::spawn(read_events(client.clone(), id, line.clone()));
        let output = tokio::spawn(read_output(client.clone(), id, console));
        let show = move |reason| line.update(|shown| shown.reason = reason);
        Self {
            status,
            readers: vec![events, output],
            reasons: tokio::spawn(read_reasons(client, id, REASON_INTERVAL, show)),
        }
    }

    /// Removes the line, after the last output of the run if it has ended.
    pub(super) async fn end(self, has_ended: bool) {
        self.reasons.abort();
        for mut reader in self.readers {
            if !has_ended || timeout(REST_PATIENCE, &mut reader).await.is_err() {
                reader.abort();
            }
        }
        self.status.remove();
    }
}

/// The changing line.
#[derive(Clone, Debug)]
struct Line {
    status: StatusLine,
    shown: Arc<Mutex<Shown>>,
}

/// The content of the line: the state of the run, and the reason why it waits.
#[derive(Debug)]
struct Shown {
    state: String,
    reason: Option<String>,
}

impl Line {
    fn begin(capsule: &str, console: Console) -> Self {
        let status = console.status_line(capsule);
        status.set("queued");
        let shown = Shown {
            state: "queued".to_owned(),
            reason: None,
        };
        Self {
            status,
            shown: Arc::new(Mutex::new(shown)),
        }
    }

    fn update(&self, change: impl FnOnce(&mut Shown)) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut shown);
        match &shown.reason {
            Some(reason) => self.status.set(&format!("{}: {reason}", shown.state)),
            None => self.status.set(&shown.state),
        }
    }
}

/// Reads the run's events until the run ends; missing progress is not a failure.
async fn read_events(client: Client, id: RunId, line: Line) {
    let mut events = client.follow(path(id, "/events"));
    while let Ok(event) = events.next().await {
        let Ok(event) = serde_json::from_str::<EventView>(&event.data) else {
            continue;
        };
        line.update(|shown| {
            shown.state = text::event::short(&event);
            shown.reason = None;
        });
        if text::event::is_result(&event) {
            return;
        }
    }
}

/// Prints the output of the run above the line.
async fn read_output(client: Client, id: RunId, console: Console) {
    let each = |line: &_| console.tell(&text::log::line(line));
    if let Err(failure) = logs::follow(&client, id, each).await {
        tracing::debug!(?failure, "cannot follow the output of the run");
    }
}

/// Calls `each` with each new reason why the run waits, until the run ends.
async fn read_reasons(client: Client, id: RunId, every: Duration, each: impl Fn(Option<String>)) {
    sleep(REASON_PATIENCE).await;
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = None;
    loop {
        ticks.tick().await;
        let Ok(view) = client.get::<RunView>(&path(id, ""), &[]).await else {
            continue;
        };
        if view.summary.state.is_ended() {
            return;
        }
        if view.waits_for != last {
            last.clone_from(&view.waits_for);
            each(view.waits_for);
        }
    }
}
