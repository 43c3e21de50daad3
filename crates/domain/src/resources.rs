//! The limits of one container.

use serde::{Deserialize, Serialize};

/// Upper limits of one container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// Thousandths of a processor.
    pub cpu_millis: u32,
    /// Memory and swap together, in bytes.
    pub memory_bytes: u64,
    /// Processes and threads.
    pub pids: u32,
    /// Maximum that a run may write to disk (outputs, handoffs, workspace), in bytes.
    pub disk_bytes: u64,
    /// Running time, without the time that the run waits for callees.
    pub timeout_seconds: u32,
}

impl Default for Resources {
    /// The defaults of `agent.yaml`: 1 processor, 2 GiB, 256 processes, 8 GiB of disk, 15 minutes.
    fn default() -> Self {
        Self {
            cpu_millis: 1_000,
            memory_bytes: 2 << 30,
            pids: 256,
            disk_bytes: 8 << 30,
            timeout_seconds: 900,
        }
    }
}
