//! How far a run is, while somebody waits for it: on a terminal one line that changes, else one line.

use std::time::Duration;

use aod_api::events::EventView;
use aod_api::runs::RunSummary;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinHandle;

use crate::client::Client;
use crate::console::Console;
use crate::text;

/// How often the line is drawn.
const TICK: Duration = Duration::from_millis(120);

/// What is told of a run that is waited for.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
    reader: Option<JoinHandle<()>>,
}

impl Progress {
    /// Begins to tell of `run`.
    pub(super) fn begin(client: &Client, run: &RunSummary, console: Console) -> Self {
        if !console.is_interactive {
            console.tell(&format!("{} runs as {}", run.capsule, run.id));
            return Self {
                bar: ProgressBar::hidden(),
                reader: None,
            };
        }
        console.tell(&format!("{}", run.id));
        let style = ProgressStyle::with_template("{spinner} {prefix}  {elapsed}  {msg}")
            .expect("the template is a constant");
        let bar = ProgressBar::new_spinner()
            .with_style(style)
            .with_prefix(run.capsule.clone())
            .with_message("queued");
        bar.enable_steady_tick(TICK);
        let reader = tokio::spawn(read(client.clone(), run.id.to_string(), bar.clone()));
        Self {
            bar,
            reader: Some(reader),
        }
    }

    /// Says something beside the line.
    pub(super) fn tell(&self, console: Console, text: &str) {
        self.bar.suspend(|| console.tell(text));
    }

    /// Takes the line away.
    pub(super) async fn end(self) {
        if let Some(reader) = self.reader {
            reader.abort();
            let _ = reader.await;
        }
        self.bar.finish_and_clear();
    }
}

/// Reads the run's events until it ends; progress that cannot be had is no failure.
async fn read(client: Client, id: String, bar: ProgressBar) {
    let mut events = client.follow(format!("/v1/runs/{id}/events"));
    while let Ok(event) = events.next().await {
        let Ok(event) = serde_json::from_str::<EventView>(&event.data) else {
            continue;
        };
        bar.set_message(text::event::short(&event));
        if text::event::is_result(&event) {
            return;
        }
    }
}
