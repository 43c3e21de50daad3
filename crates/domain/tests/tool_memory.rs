//! The worst outputs of AI tools and the worst catalogues, and the most memory that reading them takes: the table in
//! `docs/guide/security.md`. The test runner gives each test a process of its own.

use std::fs;

use aod_domain::run::Exit;
use aod_domain::task::tool::{CATALOGUE_SIZE_BYTES_MAX, Catalogue};

/// Checks how much memory `read` takes beside its input.
fn check_memory(mebibytes_max: u64, read: impl FnOnce()) {
    // Sets the peak of this process to its memory of now. Source: `proc(5)`.
    fs::write("/proc/self/clear_refs", "5").expect("own process");
    let before = kibibytes("VmRSS:");
    read();
    let mebibytes = kibibytes("VmHWM:").saturating_sub(before) / 1024;
    eprintln!("{mebibytes} MiB of {mebibytes_max}");
    assert!(mebibytes <= mebibytes_max, "{mebibytes} MiB");
}

fn kibibytes(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("own process");
    let value = status.lines().find_map(|line| line.strip_prefix(field));
    let value = value.and_then(|value| value.split_whitespace().next());
    value.and_then(|value| value.parse().ok()).expect("a size")
}

#[test]
fn output_of_a_tool_of_smallest_members() {
    let members = |count: u32| {
        let members = (0..count).map(|number| format!("\"{number:x}\":0,"));
        members.collect::<Vec<_>>().concat()
    };
    // Both just below the largest event.
    let output = format!(
        "{{{}\"type\":\"result\"}}\n{{\"type\":\"result\",\"modelUsage\":{{{}\"a\":{{}}}}}}\n",
        members(800_000),
        members(700_000)
    );
    let success = Exit {
        code: Some(0),
        signal: None,
    };
    let tools = Catalogue::default();
    for name in ["claude", "codex"] {
        let tool = tools.get(name).expect("a tool");
        check_memory(256, || {
            assert!(tool.answer(output.as_bytes(), b"", success).error.is_some());
        });
    }
}

#[test]
fn catalogue_of_smallest_tools() {
    for piece in ["{},", "&a {},", "[],"] {
        let yaml = format!("tools: [{}]", piece.repeat(CATALOGUE_SIZE_BYTES_MAX / 8));
        check_memory(64, || {
            assert_eq!(Catalogue::read("tools.yaml", yaml.as_bytes()).value, None);
        });
    }
    let tools = (0..4_000).map(|number| format!("t{number}: {{}}, "));
    let yaml = format!("tools: {{{}}}", tools.collect::<Vec<_>>().concat());
    check_memory(64, || {
        let problems = Catalogue::read("tools.yaml", yaml.as_bytes()).problems;
        assert_eq!(problems.len(), 50);
    });
}
