//! A capsule's output: the gate's frames, split into lines, written as JSON.

use std::fmt::Write as _;
use std::sync::Arc;

use aod_gate::protocol::{Decoder, FromGate};
use aod_node::fuzzing;
use aod_ports::log_stream::{LogLine, Output};

use crate::doubles::Deaf;
use crate::run;

/// Maximum length of a line, in bytes of output.
const LINE_LENGTH_BYTES_MAX: usize = 8 * 1024;

/// Last lines that are stored for a failure.
const LAST_LINES: usize = 20;

/// The frames of a gate, or other bytes as stdout; stored completely, then with half the limit.
pub fn check(bytes: &[u8]) {
    let writes = writes(bytes);
    let total: usize = writes.iter().map(|(_, bytes)| bytes.len()).sum();
    let all = lines(&writes, total as u64);
    for output in [Output::Stdout, Output::Stderr] {
        check_whole(&writes, &all, output);
    }
    let half = lines(&writes, total as u64 / 2);
    assert!(half.len() <= all.len() + 1);
    // A mark states the missing part; everything before it is unchanged.
    let kept = half.len().min(all.len()).saturating_sub(1);
    let texts = |lines: &[LogLine]| -> Vec<_> {
        lines
            .iter()
            .map(|line| (line.output, line.text.clone()))
            .collect()
    };
    assert_eq!(texts(&half[..kept]), texts(&all[..kept]));
}

fn writes(bytes: &[u8]) -> Vec<(Output, Vec<u8>)> {
    let mut decoder = Decoder::<FromGate>::new();
    decoder.push(bytes);
    let mut writes = Vec::new();
    while let Ok(Some(message)) = decoder.next_message() {
        match message {
            FromGate::Stdout(bytes) => writes.push((Output::Stdout, bytes)),
            FromGate::Stderr(bytes) => writes.push((Output::Stderr, bytes)),
            _ => (),
        }
    }
    if writes.is_empty() {
        writes.push((Output::Stdout, bytes.to_vec()));
    }
    writes
}

/// The lines of `writes`, read back from the file.
fn lines(writes: &[(Output, Vec<u8>)], bytes_max: u64) -> Vec<LogLine> {
    let directory = tempfile::tempdir().expect("a directory for the file");
    let path = directory.path().join("log");
    let writes = writes.iter().map(|(output, bytes)| (*output, &bytes[..]));
    let last_lines = run(async { fuzzing::logs(&path, bytes_max, Arc::new(Deaf), writes) })
        .expect("the file is written");
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let lines: Vec<LogLine> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line is JSON"))
        .collect();
    assert!(last_lines.len() <= LAST_LINES);
    for (number, line) in lines.iter().enumerate() {
        assert_eq!((line.attempt, line.number), (1, number as u64 + 1));
        let is_plain = |character: char| character == '\t' || !character.is_control();
        assert!(line.text.chars().all(is_plain), "{line:?}");
        // A byte becomes at most `\xff`.
        assert!(line.text.len() <= 4 * LINE_LENGTH_BYTES_MAX);
    }
    lines
}

/// The lines contain the whole output, without the line ends; no line contains parts of two.
fn check_whole(writes: &[(Output, Vec<u8>)], lines: &[LogLine], output: Output) {
    let mut whole = Vec::new();
    for (_, bytes) in writes.iter().filter(|(of, _)| *of == output) {
        whole.extend_from_slice(bytes);
    }
    let mut written = whole
        .split(|byte| matches!(byte, b'\n' | b'\r'))
        .map(escaped)
        .filter(|line| !line.is_empty());
    let mut left = String::new();
    for line in lines
        .iter()
        .filter(|line| line.output == output && !line.text.is_empty())
    {
        if left.is_empty() {
            left = written.next().expect("a line of the capsule");
        }
        left = left
            .strip_prefix(&line.text)
            .expect("the text of the capsule")
            .to_owned();
    }
    assert_eq!((left.as_str(), written.next()), ("", None));
}

fn escaped(line: &[u8]) -> String {
    let mut text = String::new();
    for chunk in line.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\t' => text.push('\t'),
                control if control.is_control() => {
                    write!(text, "\\x{:02x}", u32::from(control)).expect("memory");
                }
                plain => text.push(plain),
            }
        }
        for byte in chunk.invalid() {
            write!(text, "\\x{byte:02x}").expect("memory");
        }
    }
    text
}
