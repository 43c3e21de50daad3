//! The worst input of each parser of foreign bytes, and the most memory that it may take: the table in
//! `docs/guide/security.md`. The test runner gives each test a process of its own, and stops tests that take too long.

use std::fs;

use aod_domain::contract::{
    Contract, OUTPUT_SIZE_BYTES_MAX, PATTERNS_MAX, PAYLOAD_SIZE_BYTES_MAX, SCHEMA_SIZE_BYTES_MAX,
};
use aod_domain::event::EVENT_SIZE_BYTES_MAX;
use aod_domain::manifest::MANIFEST_SIZE_BYTES_MAX;
use aod_domain::task::WORKFLOW_SIZE_BYTES_MAX;
use aod_gate::protocol::PAYLOAD_SIZE_BYTES_MAX as FRAME_BYTES_MAX;
use aod_node::fuzzing::answer_of_model;
use aod_registry::labels::CapsuleLabels;
use aod_registry::manifest::{CONFIG_BYTES_MAX, MANIFEST_BYTES_MAX, Manifest};

use super::*;

/// Runs `target` over `input`, and checks how much memory it takes beside the input.
fn check_memory(target: Target, input: &[u8], mebibytes_max: u64) {
    // Sets the peak of this process to its memory of now. Source: `proc(5)`.
    fs::write("/proc/self/clear_refs", "5").expect("own process");
    let before = kibibytes("VmRSS:");
    target(input);
    let mebibytes = kibibytes("VmHWM:").saturating_sub(before) / 1024;
    println!(
        "{mebibytes} MiB of {mebibytes_max} for {} bytes",
        input.len()
    );
    assert!(mebibytes <= mebibytes_max, "{mebibytes} MiB");
}

fn kibibytes(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("own process");
    let value = status.lines().find_map(|line| line.strip_prefix(field));
    let value = value.and_then(|value| value.split_whitespace().next());
    value.and_then(|value| value.parse().ok()).expect("a size")
}

/// `start`, then `piece` as often as it fits, then `end`: `bytes` bytes or a little less.
fn filled(start: &str, piece: &str, end: &str, bytes: usize) -> Vec<u8> {
    let count = bytes.saturating_sub(start.len() + end.len()) / piece.len();
    [start, &piece.repeat(count), end].concat().into_bytes()
}

#[test]
fn output_of_smallest_values() {
    let schema = "{\"input\": {}, \"output\": {}}\n%%\n";
    let document = filled("{\"a\": [1", ",{}", "]}", OUTPUT_SIZE_BYTES_MAX);
    check_memory(output::check, &[schema.as_bytes(), &document].concat(), 64);
}

#[test]
fn request_of_escaped_text() {
    let start = "{\"capsule\": \"a\", \"arguments\": {\"text\": \"";
    let text = filled(start, "\\u0001", "\"}}", 6 * PAYLOAD_SIZE_BYTES_MAX / 2);
    check_memory(handoff::check, &text, 256);
}

#[test]
fn request_of_smallest_values() {
    let start = "{\"capsule\": \"a\", \"arguments\": {\"list\": [1";
    let text = filled(start, ",{}", "]}}", 2 << 20);
    check_memory(handoff::check, &text, 96);
}

#[test]
fn multipart_request_of_empty_parts() {
    let part = "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\n\r\n";
    let text = filled("", part, "--b--\r\n", 2 << 20);
    check_memory(handoff::check, &text, 64);
}

#[test]
fn manifest_of_aliases() {
    let level = |name: char, below: char| {
        format!("{name}: &{name} [*{below}, *{below}, *{below}, *{below}, *{below}, *{below}]\n")
    };
    let names: Vec<char> = ('a'..='z').collect();
    let levels = names.windows(2).map(|pair| level(pair[1], pair[0]));
    let text = format!("a: &a [1, 2, 3]\n{}", levels.collect::<String>());
    check_memory(manifests::check, text.as_bytes(), 64);
}

#[test]
fn manifest_of_smallest_values() {
    let text = filled("capsules: [", "{},", "]", MANIFEST_SIZE_BYTES_MAX);
    check_memory(manifests::check, &text, 32);
}

#[test]
fn dockerfile_of_growing_values_and_many_stages() {
    let lines = (0..15).map(|number| {
        let value = format!("$A{number}").repeat(10);
        format!("ARG A{}={value}\n", number + 1)
    });
    let start = format!("ARG A0=xxxxxxxxxx\n{}", lines.collect::<String>());
    let text = filled(&start, "FROM $A15\nFROM a\n", "", MANIFEST_SIZE_BYTES_MAX);
    check_memory(manifests::check, &text, 32);
}

#[test]
fn workflow_of_smallest_steps() {
    let text = filled("name: a\nsteps: [", "{},", "]", WORKFLOW_SIZE_BYTES_MAX);
    check_memory(workflows::check, &text, 256);
}

#[test]
fn workflow_of_braces() {
    let text = filled(
        "name: a\nsteps: [{id: a, prompt: '",
        "{{",
        "'}]",
        WORKFLOW_SIZE_BYTES_MAX,
    );
    check_memory(workflows::check, &text, 256);
    let text = filled(
        "name: a\nsteps: [{id: a, prompt: '",
        "{{inputs.a}}",
        "'}]",
        WORKFLOW_SIZE_BYTES_MAX,
    );
    check_memory(workflows::check, &text, 256);
}

#[test]
fn schema_of_large_patterns() {
    // Each slightly below the maximum of a compiled pattern, and no two equal.
    let pattern = |number| format!(",{{\"pattern\": \"\\\\w{{13}}{number}\"}}");
    let patterns: String = (0..PATTERNS_MAX).map(pattern).collect();
    let side = format!("{{\"properties\": {{\"a\": {{\"allOf\": [true{patterns}]}}}}}}");
    let schema = format!("{{\"input\": {side}, \"output\": {side}}}\n%%\n{{\"a\": \"aaaaaaaaa\"}}");
    check_memory(schema::check, schema.as_bytes(), 64);
    assert!(Contract::parse(parts::<2>(schema.as_bytes())[0]).is_ok());
}

#[test]
fn schema_of_references() {
    let start = "{\"input\": {\"$defs\": {\"a\": {}}, \"allOf\": [true";
    let reference = ",{\"$ref\": \"#/$defs/a\"}";
    let schema = filled(
        start,
        reference,
        "]}, \"output\": {}}",
        SCHEMA_SIZE_BYTES_MAX,
    );
    check_memory(schema::check, &[&schema, &b"\n%%\n{}"[..]].concat(), 96);
}

#[test]
fn frames_of_gate_that_are_short_or_claim_to_be_long() {
    let short = [b'O', 0, 0, 0, 1, b'\n'].repeat(FRAME_BYTES_MAX);
    check_memory(gate_protocol::check, &short, 64);
    check_memory(gate_protocol::check, &[b'O', 255, 255, 255, 255, b'a'], 1);
}

#[test]
fn log_of_empty_lines() {
    check_memory(logs::check, &vec![b'\n'; 1 << 20], 512);
}

#[test]
fn log_of_one_line() {
    check_memory(logs::check, &vec![b'a'; 16 << 20], 256);
}

#[test]
fn channel_with_endless_headers() {
    let text = filled("POST /handoff HTTP/1.1\r\n", "a: b\r\n", "", 1 << 20);
    check_memory(channel::check, &text, 32);
    let text = filled("POST /handoff HTTP/1.1\r\na: ", "b", "", 1 << 20);
    check_memory(channel::check, &text, 32);
}

#[test]
fn event_of_smallest_values() {
    let text = filled("{\"data\": [1", ",[]", "]}", EVENT_SIZE_BYTES_MAX);
    check_memory(events::check, &text, 16);
}

#[test]
fn answer_of_model_of_smallest_values() {
    let start = "{\"type\": \"message\", \"content\": [{\"type\": \"tool_use\", \"name\": \"a\"}";
    let text = filled(start, ",{}", "]}", 8 << 20);
    let read = |bytes: &[u8]| assert_eq!(answer_of_model(bytes), 1);
    check_memory(read, &text, 200);
}

#[test]
fn manifest_of_many_layers() {
    let start = "{\"schemaVersion\": 2, \"config\": {\"mediaType\": \"\", \"size\": 1, \"digest\": \"\"},\
        \"layers\": [{\"mediaType\": \"\", \"size\": 1, \"digest\": \"\"}";
    let layer = ",{\"mediaType\":\"\",\"size\":1,\"digest\":\"\"}";
    let text = filled(start, layer, "]}", MANIFEST_BYTES_MAX);
    check_memory(
        |input| assert!(Manifest::parse(input).is_err(), "thousands of layers"),
        &text,
        16,
    );
}

#[test]
fn index_of_many_images() {
    let digest = "0".repeat(64);
    let kind = "application/vnd.oci.image.index.v1+json";
    let entry = format!("{{\"mediaType\":\"{kind}\",\"size\":1,\"digest\":\"sha256:{digest}\"}}");
    let start = format!("{{\"schemaVersion\": 2, \"manifests\": [{entry}");
    let text = filled(&start, &format!(",{entry}"), "]}", MANIFEST_BYTES_MAX);
    check_memory(images::check, &text, 16);
}

#[test]
fn configuration_of_many_labels() {
    let start = "{\"config\": {\"Labels\": {\"dev.aod.name\": \"a\"";
    let size = usize::try_from(CONFIG_BYTES_MAX).expect("a size in memory");
    let text = filled(start, ",\"\":\"\"", "}}}", size);
    let read = |bytes: &[u8]| {
        let labels = CapsuleLabels::of(bytes).expect("labels");
        assert_eq!(labels.name.as_deref(), Some("a"));
    };
    check_memory(read, &text, 16);
}

#[test]
fn answer_of_registry_of_smallest_values() {
    let token = filled("{\"x\": [0", ",[]", "], \"token\": \"a\"}", 64 << 10);
    let header = filled("Bearer a=\"b\"", ",a=\"\\a\"", "", 64 << 10);
    check_memory(images::check, &token, 16);
    check_memory(images::check, &header, 16);
}
