//! The events of a tree, a page at a time.

use aod_domain::id::RunId;
use aod_domain::subject;
use aod_ports::event_log::{EventLog, ReadError, StoredEvent};

/// Events per read.
const PAGE_SIZE: usize = 500;

/// A reading position in the events of a tree.
#[derive(Debug)]
pub(crate) struct Pages<'a> {
    log: &'a dyn EventLog,
    filter: String,
    after: u64,
    is_done: bool,
}

impl<'a> Pages<'a> {
    pub(crate) fn new(log: &'a dyn EventLog, root: RunId) -> Self {
        Self {
            log,
            filter: subject::tree(root),
            after: 0,
            is_done: false,
        }
    }

    /// The next events in the order of the log; none after the last.
    pub(crate) async fn next(&mut self) -> Result<Vec<StoredEvent>, ReadError> {
        if self.is_done {
            return Ok(Vec::new());
        }
        let page = self.log.read(&self.filter, self.after, PAGE_SIZE).await?;
        self.is_done = page.len() < PAGE_SIZE;
        self.after = page.last().map_or(self.after, |stored| stored.sequence);
        Ok(page)
    }
}
