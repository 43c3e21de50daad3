//! Events of the log, a page at a time.

use aod_ports::event_log::{EventLog, ReadError, StoredEvent};

/// Events per read.
const PAGE_SIZE: usize = 500;

/// A reading position in the events under a filter.
#[derive(Debug)]
pub struct Pages<'a> {
    log: &'a dyn EventLog,
    filter: String,
    after: u64,
    is_done: bool,
}

impl<'a> Pages<'a> {
    /// Starts after the sequence `after`.
    pub const fn new(log: &'a dyn EventLog, filter: String, after: u64) -> Self {
        Self {
            log,
            filter,
            after,
            is_done: false,
        }
    }

    /// The next events in the order of the log; none after the last.
    ///
    /// # Errors
    /// Those of the log.
    pub async fn next(&mut self) -> Result<Vec<StoredEvent>, ReadError> {
        if self.is_done {
            return Ok(Vec::new());
        }
        let page = self.log.read(&self.filter, self.after, PAGE_SIZE).await?;
        self.is_done = page.len() < PAGE_SIZE;
        self.after = page.last().map_or(self.after, |stored| stored.sequence);
        Ok(page)
    }

    /// All remaining events.
    ///
    /// # Errors
    /// Those of the log.
    pub async fn rest(mut self) -> Result<Vec<StoredEvent>, ReadError> {
        let mut events = Vec::new();
        while !self.is_done {
            events.append(&mut self.next().await?);
        }
        Ok(events)
    }
}
