//! The programs that are measured, each a process of its own, and what they take of memory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::Value;

/// How long a program may take until it is ready.
const READY_SECONDS_MAX: u64 = 30;

/// How long a program may take to end after it was asked to.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// How often a condition is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// A started program; it is stopped when this is dropped.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    name: String,
    log: PathBuf,
}

/// `aod`, as it was built with this program.
pub(crate) fn aod() -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("aod");
    anyhow::ensure!(
        path.is_file(),
        "{} is not there: build aod-cli in the same profile",
        path.display()
    );
    Ok(path)
}

impl Program {
    /// Starts `command`, whose log goes to `directory`/`name`.log.
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
            .with_context(|| format!("{name} cannot be started"))?;
        Ok(Self {
            child,
            name: name.to_owned(),
            log,
        })
    }

    /// Waits until the program has logged, as JSON, something with the field `field`; answers that.
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

    /// The end of its log, for a message.
    fn last_lines(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Memory that it has now, and forgets what it had at the most until now.
    pub(crate) fn memory_from_now_on(&self) -> anyhow::Result<u64> {
        // 5: the peak begins anew. Source: proc(5), clear_refs.
        fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5")
            .context("the peak cannot be reset")?;
        self.memory("VmRSS:")
    }

    /// The most memory that it had since [`Program::memory_from_now_on`], in bytes.
    pub(crate) fn memory_peak(&self) -> anyhow::Result<u64> {
        self.memory("VmHWM:")
    }

    /// Memory that it has now, in bytes.
    pub(crate) fn memory_now(&self) -> anyhow::Result<u64> {
        self.memory("VmRSS:")
    }

    fn memory(&self, field: &str) -> anyhow::Result<u64> {
        memory(self.child.id(), field)
    }

    /// Asks it to end, and makes it end when it does not; harmless when it has ended.
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

/// Memory that the process `id` has now, in bytes.
pub(crate) fn memory_of(id: u32) -> anyhow::Result<u64> {
    memory(id, "VmRSS:")
}

/// A size from what the kernel says of a process, in bytes.
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
