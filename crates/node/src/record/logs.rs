//! A container's output: redacted, split into lines, escaped, counted and bounded; live on the stream, complete in an
//! artifact.
//!
//! A capsule never waits for the broker: the file takes everything up to the limit, and the live stream drops lines
//! when it is too slow.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aod_domain::id::RunId;
use aod_domain::run::LogsSummary;
use aod_ports::artifact_store::{ArtifactStore, StoreError};
use aod_ports::clock::Clock;
use aod_ports::log_stream::{LogLine, LogStream, Output};
use aod_services::program::spawn;
use tokio::sync::mpsc;
use tracing::debug;

use crate::secrets::redaction::Redaction;

/// Maximum length of a line, in bytes of output; a longer line is split.
pub(crate) const LINE_LENGTH_BYTES_MAX: usize = 8 * 1024;

/// Last lines for the message of a failure. Source: the capsule contract.
const LAST_LINES: usize = 20;

/// Batches that wait for the live stream. Further batches are only in the artifact.
const LIVE_QUEUE_LENGTH: usize = 256;

/// The output of one attempt.
pub(crate) struct Logs {
    attempt: u32,
    clock: Arc<dyn Clock>,
    /// Created for the first line.
    file: Option<BufWriter<std::fs::File>>,
    path: PathBuf,
    live: mpsc::Sender<Vec<LogLine>>,
    streams: BTreeMap<Source, Stream>,
    number: u64,
    bytes_left: u64,
    dropped_bytes: u64,
    is_drop_marked: bool,
    last_lines: VecDeque<String>,
    redaction: Redaction,
}

/// A source of output.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Source {
    /// The step of a task that writes; none for the command of a capsule.
    pub(crate) step: Option<Arc<str>>,
    /// Whether it is the standard error.
    is_stderr: bool,
}

/// The output of a source that is not a line yet.
#[derive(Default)]
struct Stream {
    partial: Vec<u8>,
    /// Whether the last line ended without a newline that may follow.
    may_end_again: bool,
    /// Bytes that may be the beginning of a secret.
    held: Vec<u8>,
}

impl Source {
    pub(crate) fn of_step(step: Arc<str>, output: Output) -> Self {
        let step = Some(step);
        Self {
            step,
            ..output.into()
        }
    }

    const fn output(&self) -> Output {
        if self.is_stderr {
            Output::Stderr
        } else {
            Output::Stdout
        }
    }
}

impl From<Output> for Source {
    fn from(output: Output) -> Self {
        Self {
            step: None,
            is_stderr: output == Output::Stderr,
        }
    }
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
            streams: BTreeMap::new(),
            number: 0,
            bytes_left: bytes_max,
            dropped_bytes: 0,
            is_drop_marked: false,
            last_lines: VecDeque::new(),
            redaction,
        }
    }

    /// Takes output of the capsule, or of a step of a task.
    pub(crate) fn write(&mut self, source: impl Into<Source>, bytes: &[u8]) -> io::Result<()> {
        let source = source.into();
        let mut stream = self.streams.remove(&source).unwrap_or_default();
        let redacted = self.redaction.stream(&mut stream.held, bytes);
        let mut lines = Vec::new();
        let bytes = redacted.as_deref().unwrap_or(bytes);
        self.take_all(&source, &mut stream, bytes, &mut lines);
        self.streams.insert(source, stream);
        self.keep(lines)
    }

    fn take_all(
        &mut self,
        source: &Source,
        stream: &mut Stream,
        bytes: &[u8],
        lines: &mut Vec<LogLine>,
    ) {
        for piece in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            self.take(source, stream, piece, lines);
        }
    }

    /// Takes a part of a line. A carriage return ends a line too, so that progress bars are live; of an empty line, it is
    /// only the beginning.
    fn take(
        &mut self,
        source: &Source,
        stream: &mut Stream,
        mut piece: &[u8],
        lines: &mut Vec<LogLine>,
    ) {
        let may_end_again = std::mem::take(&mut stream.may_end_again);
        if may_end_again && piece == b"\n" {
            return;
        }
        while !piece.is_empty() {
            let partial = &mut stream.partial;
            let left = LINE_LENGTH_BYTES_MAX - partial.len();
            let (head, tail) = piece.split_at(piece.len().min(left));
            partial.extend_from_slice(head);
            piece = tail;
            let is_return = partial.last() == Some(&b'\r');
            if is_return || partial.last() == Some(&b'\n') {
                let line = std::mem::take(partial);
                stream.may_end_again = is_return;
                if line == b"\r" {
                    stream.may_end_again = may_end_again;
                } else {
                    self.end_line(source, &line, lines);
                }
            } else if partial.len() == LINE_LENGTH_BYTES_MAX {
                let rest = partial.split_off(partial.len() - unfinished(partial));
                let line = std::mem::replace(partial, rest);
                stream.may_end_again = stream.partial.is_empty();
                self.end_line(source, &line, lines);
            }
        }
    }

    fn end_line(&mut self, source: &Source, line: &[u8], lines: &mut Vec<LogLine>) {
        let length = line.len() as u64;
        if length > self.bytes_left {
            self.bytes_left = 0;
            self.dropped_bytes += length;
            return;
        }
        self.bytes_left -= length;
        let text = escaped(
            line.strip_suffix(b"\n")
                .or(line.strip_suffix(b"\r"))
                .unwrap_or(line),
        );
        if self.last_lines.len() == LAST_LINES {
            self.last_lines.pop_front();
        }
        self.last_lines.push_back(text.clone());
        lines.push(self.line(source, text));
    }

    fn line(&mut self, source: &Source, text: String) -> LogLine {
        self.number += 1;
        LogLine {
            attempt: self.attempt,
            number: self.number,
            at: self.clock.now(),
            step: source.step.as_deref().map(str::to_owned),
            output: source.output(),
            text,
        }
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

    /// The last lines, for the message of a failure; complete after [`Logs::end`].
    pub(crate) fn last_lines(&self) -> Vec<String> {
        self.last_lines.iter().cloned().collect()
    }

    /// Ends unfinished lines, and appends a line about dropped output. Idempotent.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        let mut lines = Vec::new();
        for (source, mut stream) in std::mem::take(&mut self.streams) {
            let rest = self.redaction.rest(&mut stream.held);
            self.take_all(&source, &mut stream, &rest, &mut lines);
            if !stream.partial.is_empty() {
                self.end_line(&source, &stream.partial, &mut lines);
            }
        }
        if self.dropped_bytes > 0 && !self.is_drop_marked {
            self.is_drop_marked = true;
            let bytes = self.dropped_bytes;
            let text = format!("[aod: {bytes} more bytes of output were dropped]");
            lines.push(self.line(&Output::Stderr.into(), text));
        }
        self.keep(lines)?;
        self.file.as_mut().map_or(Ok(()), io::Write::flush)
    }

    /// Stores the whole output; none if there was no output.
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

/// Length of the character at the end of `bytes` that is not complete yet.
fn unfinished(bytes: &[u8]) -> usize {
    let is_unfinished = |length: &usize| {
        let end = &bytes[bytes.len() - length..];
        std::str::from_utf8(end)
            .is_err_and(|error| error.error_len().is_none() && error.valid_up_to() == 0)
    };
    (1..=3.min(bytes.len()))
        .rev()
        .find(is_unfinished)
        .unwrap_or(0)
}

/// `line` as text; control characters other than tabs, and bytes that are not UTF-8, become `\x1b` and the like.
fn escaped(line: &[u8]) -> String {
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
    async fn partial_lines_of_stdout_and_stderr_are_not_mixed() {
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
    async fn output_beyond_the_limit_is_counted() {
        let lines = lines_of(
            4,
            &[(Output::Stdout, b"abc\n"), (Output::Stdout, b"defg\n")],
        );
        assert_eq!(lines[0].1, "abc");
        assert_eq!(lines[1].1, "[aod: 5 more bytes of output were dropped]");
    }

    #[tokio::test]
    async fn line_longer_than_the_limit_is_split() {
        let long = vec![b'x'; LINE_LENGTH_BYTES_MAX * 2 + 1];
        let lengths: Vec<usize> = lines_of(1 << 20, &[(Output::Stdout, &long)])
            .iter()
            .map(|(_, text)| text.len())
            .collect();
        assert_eq!(lengths, [LINE_LENGTH_BYTES_MAX, LINE_LENGTH_BYTES_MAX, 1]);
    }

    #[tokio::test]
    async fn split_line_keeps_its_characters_whole() {
        for start in 0..4 {
            let long = "x".repeat(start) + &"\u{1f600}".repeat(LINE_LENGTH_BYTES_MAX / 2);
            for piece in [1_000, long.len()] {
                let writes: Vec<_> = long
                    .as_bytes()
                    .chunks(piece)
                    .map(|piece| (Output::Stdout, piece))
                    .collect();
                let lines = lines_of(1 << 20, &writes);
                let texts: Vec<String> = lines.into_iter().map(|(_, text)| text).collect();
                assert!(
                    texts.len() > 1 && texts.iter().all(|text| text.len() <= LINE_LENGTH_BYTES_MAX)
                );
                assert_eq!(texts.concat(), long);
            }
        }
    }

    #[tokio::test]
    async fn bytes_that_are_not_utf8_stay_on_their_line() {
        let mut long = vec![0xff; LINE_LENGTH_BYTES_MAX];
        long.extend_from_slice(b"\xf0\x9f\x98\nend");
        let lines = lines_of(1 << 20, &[(Output::Stdout, &long)]);
        assert_eq!(lines[0].1, "\\xff".repeat(LINE_LENGTH_BYTES_MAX));
        assert_eq!([&lines[1].1, &lines[2].1], ["\\xf0\\x9f\\x98", "end"]);
    }

    #[tokio::test]
    async fn carriage_return_ends_a_line() {
        let writes: [(Output, &[u8]); 6] = [
            (Output::Stdout, b"one\r\n\r\ntwo\r\n"),
            (Output::Stdout, b"\r 10 %\r 20 %\r"),
            (Output::Stdout, b"\r 30 %\r\ndone\r"),
            (Output::Stderr, b"\nb\n"),
            (Output::Stdout, b"\n\nend\r\r\n"),
            (Output::Stdout, b"c"),
        ];
        let lines = lines_of(1_000, &writes);
        let of = |wanted| lines.iter().filter(move |(output, _)| *output == wanted);
        let stdout: Vec<&str> = of(Output::Stdout).map(|(_, text)| text.as_str()).collect();
        let expected = [
            "one", "", "two", " 10 %", " 20 %", " 30 %", "done", "", "end", "c",
        ];
        assert_eq!(stdout, expected);
        let stderr: Vec<&str> = of(Output::Stderr).map(|(_, text)| text.as_str()).collect();
        assert_eq!(stderr, ["", "b"]);
    }

    #[tokio::test]
    async fn secret_split_across_writes_and_lines_is_redacted() {
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
    fn control_characters_are_escaped() {
        assert_eq!(escaped(b"a\x1b[31m\tb\xff"), "a\\x1b[31m\tb\\xff");
    }
}
