//! A container's output: without secrets, cut into lines, escaped, counted, bounded; live to the
//! stream, whole into an artifact.
//!
//! The pump never makes a capsule wait for the broker: the file takes everything up to the limit,
//! the live stream takes what it can.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aod_domain::id::RunId;
use aod_domain::run::LogsSummary;
use aod_ports::artifact_store::{ArtifactStore, StoreError};
use aod_ports::clock::Clock;
use aod_ports::log_stream::{LogLine, LogStream, Output};
use aod_ports::program::spawn;
use tokio::sync::mpsc;
use tracing::debug;

use crate::redaction::Redaction;

/// Longest line, in bytes of output; a longer one is cut into several.
pub(crate) const LINE_LENGTH_BYTES_MAX: usize = 8 * 1024;

/// Last lines kept for the message of a failure. Source: the capsule contract.
const LAST_LINES: usize = 20;

/// Batches on their way to the live stream; more are not told live, the artifact has them.
const LIVE_QUEUE_LENGTH: usize = 256;

/// The output of one attempt.
pub(crate) struct Logs {
    attempt: u32,
    clock: Arc<dyn Clock>,
    /// Made when there is something to write.
    file: Option<BufWriter<std::fs::File>>,
    path: PathBuf,
    live: mpsc::Sender<Vec<LogLine>>,
    partial: [Vec<u8>; 2],
    number: u64,
    bytes_left: u64,
    dropped_bytes: u64,
    is_drop_marked: bool,
    last_lines: VecDeque<String>,
    redaction: Redaction,
    /// Of each output what may be the beginning of a secret.
    held: [Vec<u8>; 2],
}

impl Logs {
    pub(crate) fn start(
        path: &Path,
        run: RunId,
        attempt: u32,
        bytes_max: u64,
        stream: Arc<dyn LogStream>,
        clock: Arc<dyn Clock>,
        redaction: Redaction,
    ) -> Self {
        let (live, mut batches) = mpsc::channel::<Vec<LogLine>>(LIVE_QUEUE_LENGTH);
        spawn(async move {
            while let Some(lines) = batches.recv().await {
                if let Err(error) = stream.publish(run, &lines).await {
                    debug!(%run, %error, "lines are missing from the live logs");
                }
            }
        });
        Self {
            attempt,
            clock,
            file: None,
            path: path.to_path_buf(),
            live,
            partial: [Vec::new(), Vec::new()],
            number: 0,
            bytes_left: bytes_max,
            dropped_bytes: 0,
            is_drop_marked: false,
            last_lines: VecDeque::new(),
            redaction,
            held: [Vec::new(), Vec::new()],
        }
    }

    /// Takes bytes as the capsule wrote them.
    pub(crate) fn write(&mut self, output: Output, bytes: &[u8]) -> io::Result<()> {
        let redacted = self.redaction.stream(&mut self.held[index(output)], bytes);
        let mut lines = Vec::new();
        self.take_all(output, redacted.as_deref().unwrap_or(bytes), &mut lines);
        self.keep(lines)
    }

    fn take_all(&mut self, output: Output, bytes: &[u8], lines: &mut Vec<LogLine>) {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.take(output, piece, lines);
        }
    }

    fn take(&mut self, output: Output, mut piece: &[u8], lines: &mut Vec<LogLine>) {
        loop {
            let partial = &mut self.partial[index(output)];
            let room = LINE_LENGTH_BYTES_MAX - partial.len();
            let (head, tail) = piece.split_at(piece.len().min(room));
            partial.extend_from_slice(head);
            if partial.last() == Some(&b'\n') || partial.len() == LINE_LENGTH_BYTES_MAX {
                let line = std::mem::take(partial);
                self.end_line(output, &line, lines);
            }
            if tail.is_empty() {
                return;
            }
            piece = tail;
        }
    }

    fn end_line(&mut self, output: Output, line: &[u8], lines: &mut Vec<LogLine>) {
        let length = line.len() as u64;
        if length > self.bytes_left {
            self.bytes_left = 0;
            self.dropped_bytes += length;
            return;
        }
        self.bytes_left -= length;
        self.number += 1;
        let text = escaped(line.strip_suffix(b"\n").unwrap_or(line));
        if self.last_lines.len() == LAST_LINES {
            self.last_lines.pop_front();
        }
        self.last_lines.push_back(text.clone());
        lines.push(LogLine {
            attempt: self.attempt,
            number: self.number,
            at: self.clock.now(),
            output,
            text,
        });
    }

    fn keep(&mut self, lines: Vec<LogLine>) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        if self.file.is_none() {
            self.file = Some(BufWriter::new(std::fs::File::create_new(&self.path)?));
        }
        if let Some(file) = &mut self.file {
            for line in &lines {
                serde_json::to_writer(&mut *file, line)?;
                file.write_all(b"\n")?;
            }
        }
        let _ = self.live.try_send(lines);
        Ok(())
    }

    /// The last lines, for the message of a failure; to be asked after [`Logs::end`].
    pub(crate) fn last_lines(&self) -> Vec<String> {
        self.last_lines.iter().cloned().collect()
    }

    /// Ends lines that have no end of their own, and marks what was dropped; a second time it does
    /// nothing.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        let mut lines = Vec::new();
        for output in [Output::Stdout, Output::Stderr] {
            let rest = self.redaction.rest(&mut self.held[index(output)]);
            self.take_all(output, &rest, &mut lines);
            let line = std::mem::take(&mut self.partial[index(output)]);
            if !line.is_empty() {
                self.end_line(output, &line, &mut lines);
            }
        }
        if self.dropped_bytes > 0 && !self.is_drop_marked {
            self.is_drop_marked = true;
            self.number += 1;
            let text = format!(
                "[aod: {} more bytes of output were dropped]",
                self.dropped_bytes
            );
            let at = self.clock.now();
            lines.push(LogLine {
                attempt: self.attempt,
                number: self.number,
                at,
                output: Output::Stderr,
                text,
            });
        }
        self.keep(lines)?;
        self.file.as_mut().map_or(Ok(()), io::Write::flush)
    }

    /// Stores the whole output; nothing if there was none.
    pub(crate) async fn store(
        self,
        artifacts: &dyn ArtifactStore,
    ) -> Result<Option<LogsSummary>, StoreError> {
        if self.number == 0 {
            return Ok(None);
        }
        let dropped_bytes = self.dropped_bytes;
        drop(self.file);
        let stored = artifacts.put_file(&self.path, None).await?;
        Ok(Some(LogsSummary {
            digest: stored.digest,
            size_bytes: stored.size_bytes,
            dropped_bytes,
        }))
    }
}

fn index(output: Output) -> usize {
    match output {
        Output::Stdout => 0,
        Output::Stderr => 1,
    }
}

/// `line` as text: control characters other than tabs, and bytes that are no UTF-8, as `\x1b`.
fn escaped(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut text = String::with_capacity(line.len());
    for chunk in line.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character.is_control() && character != '\t' {
                let _ = write!(text, "\\x{:02x}", u32::from(character));
            } else {
                text.push(character);
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use aod_ports::clock::SystemClock;
    use aod_ports::log_stream::LogStreamError;
    use aod_ports::secrets::SecretValue;
    use async_trait::async_trait;
    use futures::stream::{self, BoxStream, StreamExt};
    use uuid::Uuid;

    use super::*;

    #[derive(Debug)]
    struct Deaf;

    #[async_trait]
    impl LogStream for Deaf {
        async fn publish(&self, _: RunId, _: &[LogLine]) -> Result<(), LogStreamError> {
            Ok(())
        }

        async fn follow(
            &self,
            _: RunId,
            _: u64,
        ) -> Result<BoxStream<'static, (u64, LogLine)>, LogStreamError> {
            Ok(stream::empty().boxed())
        }
    }

    fn lines_of(bytes_max: u64, writes: &[(Output, &[u8])]) -> Vec<(Output, String)> {
        lines_without(Redaction::default(), bytes_max, writes)
    }

    fn lines_without(
        redaction: Redaction,
        bytes_max: u64,
        writes: &[(Output, &[u8])],
    ) -> Vec<(Output, String)> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let run = RunId::root_of(Uuid::from_u128(1));
        let mut logs = Logs::start(
            &path,
            run,
            1,
            bytes_max,
            Arc::new(Deaf),
            Arc::new(SystemClock),
            redaction,
        );
        for (output, bytes) in writes {
            logs.write(*output, bytes).unwrap();
        }
        for _ in 0..2 {
            logs.end().unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = text
            .lines()
            .map(|line| serde_json::from_str::<LogLine>(line).unwrap());
        lines.map(|line| (line.output, line.text)).collect()
    }

    #[tokio::test]
    async fn lines_of_both_outputs_are_kept_apart() {
        let lines = lines_of(
            1_000,
            &[
                (Output::Stdout, b"a"),
                (Output::Stderr, b"x\n"),
                (Output::Stdout, b"b\nc"),
            ],
        );
        let expected = [
            (Output::Stderr, "x"),
            (Output::Stdout, "ab"),
            (Output::Stdout, "c"),
        ];
        assert_eq!(
            lines,
            expected.map(|(output, text)| (output, text.to_owned()))
        );
    }

    #[tokio::test]
    async fn what_is_too_much_is_counted() {
        let lines = lines_of(
            4,
            &[(Output::Stdout, b"abc\n"), (Output::Stdout, b"defg\n")],
        );
        assert_eq!(lines[0].1, "abc");
        assert_eq!(lines[1].1, "[aod: 5 more bytes of output were dropped]");
    }

    #[tokio::test]
    async fn a_line_without_end_is_cut() {
        let long = vec![b'x'; LINE_LENGTH_BYTES_MAX * 2 + 1];
        let lengths: Vec<usize> = lines_of(1 << 20, &[(Output::Stdout, &long)])
            .iter()
            .map(|(_, text)| text.len())
            .collect();
        assert_eq!(lengths, [LINE_LENGTH_BYTES_MAX, LINE_LENGTH_BYTES_MAX, 1]);
    }

    #[tokio::test]
    async fn a_secret_is_in_no_line_wherever_it_was_cut() {
        let redaction = Redaction::default();
        redaction.begin(&[SecretValue::new("opensesame".to_owned())]);
        let mut long = vec![b'x'; LINE_LENGTH_BYTES_MAX - 4];
        long.extend_from_slice(b"opensesame\n");
        let lines = lines_without(
            redaction,
            1 << 20,
            &[
                (Output::Stdout, b"say open"),
                (Output::Stderr, b"opense"),
                (Output::Stdout, b"sesame\n"),
                (Output::Stdout, &long),
                (Output::Stderr, b"same"),
                (Output::Stdout, b"opens"),
            ],
        );
        let texts: Vec<&str> = lines.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts[0], "say ***");
        assert_eq!(texts[1].trim_start_matches('x'), "***");
        assert_eq!(texts[2..], ["opens", "***"]);
    }

    #[test]
    fn control_characters_do_not_reach_a_terminal() {
        assert_eq!(escaped(b"a\x1b[31m\tb\xff\r"), "a\\x1b[31m\tb\\xff");
    }
}
