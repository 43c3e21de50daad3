//! Memory of processes, as the kernel counts it.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use crate::hosts::all_processes;

/// Interval between two searches for short-lived processes, which live for seconds.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// The current memory of the process, in bytes.
pub fn resident_bytes(process: u32) -> Option<u64> {
    status(process, "VmRSS:")
}

/// The peak memory of the process since its start, or since [`forget_peak`], in bytes.
pub fn peak_bytes(process: u32) -> Option<u64> {
    status(process, "VmHWM:")
}

/// Resets the peak of the process to its current memory.
pub fn forget_peak(process: u32) {
    // Source: Linux, `Documentation/filesystems/proc.rst`: 5 resets the peak.
    fs::write(format!("/proc/{process}/clear_refs"), "5").expect("the peak of a process of ours");
}

/// A line of `/proc/<process>/status`, in KiB; none after the process has ended.
fn status(process: u32, field: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// Watches the gates in the containers of a network's hosts.
#[derive(Debug)]
pub struct GateWatch {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<BTreeMap<u32, u64>>>,
}

impl GateWatch {
    /// Starts watching the gates of the network `number`.
    pub fn start(number: u8) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&is_over);
        let watch = move || {
            let mut peaks = BTreeMap::new();
            while !until.load(Ordering::Relaxed) {
                let gates = all_processes()
                    .into_iter()
                    .filter(|&process| is_gate(process, number));
                peaks.extend(gates.filter_map(|process| Some((process, peak_bytes(process)?))));
                sleep(LOOK_INTERVAL);
            }
            peaks
        };
        Self {
            is_over,
            thread: Some(std::thread::spawn(watch)),
        }
    }

    /// Ends; returns the peak of each observed gate, in bytes.
    pub fn end(mut self) -> Vec<u64> {
        self.is_over.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("ended once");
        thread
            .join()
            .expect("a thread of ours")
            .into_values()
            .collect()
    }
}

impl Drop for GateWatch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Whether the process is a gate in a container of one of the network's hosts.
fn is_gate(process: u32, number: u8) -> bool {
    let read =
        |file: &str| fs::read_to_string(format!("/proc/{process}/{file}")).unwrap_or_default();
    read("comm").trim() == "aod-gate" && read("cgroup").contains(&format!("/aodt-{number}-"))
}
