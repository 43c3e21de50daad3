//! The measured programs, each as a separate process, and their memory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::Value;

/// Maximum time until a program is ready.
const READY_SECONDS_MAX: u64 = 30;

/// Maximum time for a program to end on request.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// Interval between two checks of a condition.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// A started program; stopped on drop.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    name: String,
    log: PathBuf,
}

/// `aod` from the same build as this program.
pub(crate) fn aod() -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("aod");
    anyhow::ensure!(
        path.is_file(),
        "{} is missing: build aod-cli with the same profile",
        path.display()
    );
    Ok(path)
}

impl Program {
    /// Starts `command`, with its log in `directory`/`name`.log.
    pub(crate) fn start(
        name: &str,
        directory: &Path,
        command: &mut Command,
    ) -> anyhow::Result<Self> {
        let log = directory.join(format!("{name}.log"));
        let output = File::create(&log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        Ok(Self {
            child,
            name: name.to_owned(),
            log,
        })
    }

    /// Waits until the program has logged the field `field` as JSON; returns its value.
    pub(crate) async fn logged(&mut self, field: &str) -> anyhow::Result<String> {
        let deadline = Instant::now() + Duration::from_secs(READY_SECONDS_MAX);
        loop {
            let text = fs::read_to_string(&self.log)?;
            let value_in = |line| {
                let line: Value = serde_json::from_str(line).ok()?;
                line["fields"][field].as_str().map(str::to_owned)
            };
            if let Some(found) = text.lines().find_map(value_in) {
                return Ok(found);
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended with {status}: {}", self.name, self.last_lines());
            }
            if Instant::now() > deadline {
                bail!(
                    "{} is not ready after {READY_SECONDS_MAX} s: {}",
                    self.name,
                    self.last_lines()
                );
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// The end of its log, for messages.
    fn last_lines(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Resets the peak; returns the current memory in bytes.
    pub(crate) fn memory_from_now_on(&self) -> anyhow::Result<u64> {
        // 5 resets the peak. Source: proc(5), clear_refs.
        fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5")
            .context("cannot reset the peak")?;
        self.memory("VmRSS:")
    }

    /// The peak memory since [`Program::memory_from_now_on`], in bytes.
    pub(crate) fn memory_peak(&self) -> anyhow::Result<u64> {
        self.memory("VmHWM:")
    }

    /// The current memory, in bytes.
    pub(crate) fn memory_now(&self) -> anyhow::Result<u64> {
        self.memory("VmRSS:")
    }

    fn memory(&self, field: &str) -> anyhow::Result<u64> {
        memory(self.child.id(), field)
    }

    /// Asks it to end, and kills it after a while; harmless if it has ended.
    pub(crate) fn stop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        self.signal("TERM");
        let deadline = Instant::now() + END_PATIENCE;
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn signal(&self, signal: &str) {
        let _ = Command::new("sh")
            .args([
                "-c",
                "kill -s \"$0\" \"$1\"",
                signal,
                &self.child.id().to_string(),
            ])
            .stderr(Stdio::null())
            .status();
    }
}

/// The current memory of the process `id`, in bytes.
pub(crate) fn memory_of(id: u32) -> anyhow::Result<u64> {
    memory(id, "VmRSS:")
}

/// A size in the kernel's status of a process, in bytes.
fn memory(id: u32, field: &str) -> anyhow::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = text.lines().find(|line| line.starts_with(field));
    let kibibytes = line.and_then(|line| line.split_whitespace().nth(1));
    let kibibytes: u64 = kibibytes
        .with_context(|| format!("process {id} has no {field}"))?
        .parse()?;
    Ok(kibibytes * 1024)
}

impl Drop for Program {
    fn drop(&mut self) {
        self.stop();
    }
}
