//! The catalogue, invocations and answers.

use proptest::prelude::*;

use super::*;
use crate::run::Exit;
use crate::spending::{Cost, Tokens};

const NAMES: [&str; 7] = [
    "claude", "codex", "copilot", "cursor", "gemini", "opencode", "qwen",
];

const SUCCESS: Exit = Exit {
    code: Some(0),
    signal: None,
};

fn tool(name: &str) -> Tool {
    let catalogue = Catalogue::default();
    catalogue.get(name).expect("a tool").clone()
}

/// A tool of a user: `rest` are its fields without the image.
fn own(rest: &str) -> Tool {
    let yaml = format!("tools: {{own: {{image: debian, {rest}}}}}");
    let outcome = Catalogue::read("tools.yaml", yaml.as_bytes());
    let catalogue = outcome
        .value
        .unwrap_or_else(|| panic!("{:?}", outcome.problems));
    catalogue.get("own").expect("a tool").clone()
}

fn answer(name: &str, stdout: &str) -> Answer {
    tool(name).answer(stdout.as_bytes(), b"", SUCCESS)
}

#[test]
fn built_in_catalogue_reads_without_a_warning() {
    let outcome = Catalogue::read("catalogue.yaml", include_bytes!("catalogue.yaml"));
    assert_eq!(outcome.problems, []);
    assert_eq!(outcome.warnings, []);
    let catalogue = outcome.value.expect("a catalogue");
    let names: Vec<&str> = catalogue.tools().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, NAMES);
}

#[test]
fn problems_of_a_catalogue_have_their_places() {
    let outcome = Catalogue::read(
        "tools.yaml",
        br#"tools:
  "A b": {image: a, command: [a], prompt: stdin, output: {format: text}}
  one:
    image: " "
    command: []
    model: --model
    prompt: "{{prompt}} {{prompt}}"
    environment: {1A: x}
    credential: {proxy: [mistral], egress: [a.example]}
    colour: red
    output: {format: xml}
  two:
    image: a
    command: [a]
    prompt: stdin
    credential: {secret: KEY, egress: [localhost]}
    output:
      format: json
      events:
        - when: {type: {a: 1}, "": 1}
          text: a..b
"#,
    );
    let problems: Vec<String> = outcome.problems.iter().map(ToString::to_string).collect();
    let expected = [
        ("tools.yaml:2:10", "invalid name \"A b\""),
        ("tools.yaml:4:12", "an empty text"),
        ("tools.yaml:5:14", "expected a program"),
        ("tools.yaml:6:12", "contains {{model}} once"),
        ("tools.yaml:7:13", "contains {{prompt}} once, or stdin"),
        ("tools.yaml:8:18", "invalid variable name"),
        ("tools.yaml:9:17", "either proxy with models, or secret"),
        (
            "tools.yaml:9:26",
            "expected one of openai, anthropic, google",
        ),
        ("tools.yaml:11:22", "expected one of text, json, json-lines"),
        ("tools.yaml:16:40", "the container itself"),
        ("tools.yaml:20:9", "no event has the key \"text\""),
        ("tools.yaml:20:9", "no event has the key \"completes\""),
        ("tools.yaml:20:17", "\"type\" has no simple value"),
        ("tools.yaml:20:17", "invalid field \"\""),
        ("tools.yaml:21:17", "invalid field \"a..b\""),
    ];
    let found: Vec<String> = problems.clone();
    for (place, words) in expected {
        assert!(
            found
                .iter()
                .any(|problem| problem.starts_with(place) && problem.contains(words)),
            "{place} {words}: {problems:#?}"
        );
    }
    assert_eq!(problems.len(), expected.len(), "{problems:#?}");
    assert!(
        outcome.warnings[0]
            .to_string()
            .contains("unknown key \"colour\"")
    );
}

#[test]
fn files_without_tools_have_none_or_one_problem() {
    let empty = Catalogue::read("tools.yaml", b"# none\n");
    assert_eq!(empty.value.expect("a catalogue").tools().count(), 0);
    for (yaml, words) in [("a: 1", "\"tools\" is missing"), ("tools: []", "a mapping")] {
        let problems = Catalogue::read("tools.yaml", yaml.as_bytes()).problems;
        assert!(
            problems.len() == 1 && problems[0].to_string().contains(words),
            "{problems:?}"
        );
    }
}

#[test]
fn own_tools_replace_and_extend_the_known_ones() {
    let yaml = "tools:\n  qwen: &own {image: mine, command: [q], prompt: stdin, output: {format: text}}\n  extra: *own\n";
    let own = Catalogue::read("tools.yaml", yaml.as_bytes())
        .value
        .expect("a catalogue");
    let all = Catalogue::default().with(own);
    assert_eq!(all.get("qwen").expect("a tool").image, "mine");
    assert_eq!(all.get("extra").expect("a tool").name, "extra");
    assert_eq!(all.tools().count(), 8);
    assert_eq!(all.get("rover"), None);
}

#[test]
fn known_tools_edit_without_asking_and_read_the_prompt_from_stdin() {
    for (name, flag) in [
        ("claude", "--dangerously-skip-permissions"),
        ("codex", "--dangerously-bypass-approvals-and-sandbox"),
        ("copilot", "--allow-all"),
        ("cursor", "--force"),
        ("gemini", "yolo"),
        ("opencode", "run"),
        ("qwen", "yolo"),
    ] {
        let invocation = tool(name)
            .invocation("-p --help", Some("small"))
            .expect("an invocation");
        assert_eq!(invocation.stdin.as_deref(), Some("-p --help"), "{name}");
        assert_eq!(
            invocation.argv.last().map(String::as_str),
            Some("--model=small"),
            "{name}"
        );
        assert!(
            invocation
                .argv
                .iter()
                .any(|argument| argument.contains(flag)),
            "{name}"
        );
        let invocation = tool(name).invocation("a", None).expect("an invocation");
        assert!(
            !invocation
                .argv
                .iter()
                .any(|argument| argument.contains("{{")),
            "{name}"
        );
        assert!(
            !invocation
                .argv
                .iter()
                .any(|argument| argument.contains("--model")),
            "{name}"
        );
    }
    let settings = &tool("opencode").environment["OPENCODE_CONFIG_CONTENT"];
    serde_json::from_str::<serde_json::Value>(settings).expect("JSON");
}

#[test]
fn prompt_in_an_argument_is_never_a_flag() {
    let bare = own("command: [tool, -x], prompt: '{{prompt}}', output: {format: text}");
    let invocation = bare
        .invocation("--help {{model}}", None)
        .expect("an invocation");
    assert_eq!(invocation.argv, ["tool", "-x", "--", "--help {{model}}"]);
    assert_eq!(invocation.stdin, None);
    let flag = own(
        "command: [tool], model: '-m{{model}}!', prompt: '--say={{prompt}}.', output: {format: text}",
    );
    let invocation = flag
        .invocation("-x", Some("{{prompt}}"))
        .expect("an invocation");
    assert_eq!(invocation.argv, ["tool", "-m{{prompt}}!", "--say=-x."]);
}

#[test]
fn prompts_that_cannot_be_handed_over_whole_are_errors() {
    let own = own("command: [tool], prompt: '--say={{prompt}}', output: {format: text}");
    let error = |tool: &Tool, prompt: &str, model| {
        tool.invocation(prompt, model)
            .expect_err("an error")
            .to_string()
    };
    let fits = "a".repeat(ARGUMENT_BYTES_MAX - 6);
    assert!(own.invocation(&fits, None).is_ok());
    assert!(error(&own, &format!("{fits}a"), None).contains("131072 bytes; Linux allows 131071"));
    assert!(error(&own, "a\0b", None).contains("zero byte"));
    assert!(error(&own, " \n", None).contains("the prompt is empty"));
    assert!(error(&own, "a", Some("small")).contains("own cannot select a model"));
    let claude = tool("claude");
    assert!(error(&claude, "a", Some(" ")).contains("the model is empty"));
    assert!(claude.invocation(&"a".repeat(10 << 20), None).is_ok());
    assert!(claude.invocation("a\0b", None).is_ok());
    let error = error(&tool("gemini"), &"a".repeat((8 << 20) + 1), None);
    assert!(
        error.contains("8388609 bytes; gemini reads at most 8388608"),
        "{error}"
    );
}

fn tokens(input: u64, cached_input: u64, output: u64) -> Tokens {
    Tokens {
        input,
        cached_input,
        output,
    }
}

/// What each tool prints after a turn that succeeded, and what it means.
fn successes() -> [(&'static str, &'static str, Answer); 7] {
    let expected = |usage, dollars, models: &[&str]| Answer {
        text: "Done.\n{\"a\": 1}".into(),
        usage,
        cost: Cost::from_dollars(dollars).filter(|_| dollars > 0.0),
        models: models.iter().map(|&model| model.into()).collect(),
        error: None,
    };
    [
        (
            "claude",
            r#"{"type":"result","subtype":"success","is_error":false,"duration_ms":4047,"num_turns":1,"result":"Done.\n{\"a\": 1}","stop_reason":"end_turn","session_id":"20dde46c","total_cost_usd":0.079,"usage":{"input_tokens":1,"output_tokens":13},"modelUsage":{"claude-sonnet-5":{"inputTokens":4,"outputTokens":13,"cacheReadInputTokens":100,"cacheCreationInputTokens":20,"costUSD":0.078},"claude-haiku-4-5":{"inputTokens":5,"outputTokens":2,"cacheReadInputTokens":0,"cacheCreationInputTokens":0,"costUSD":0.001}}}"#,
            expected(
                Some(tokens(129, 100, 15)),
                0.079,
                &["claude-haiku-4-5", "claude-sonnet-5"],
            ),
        ),
        (
            "codex",
            r#"{"type":"thread.started","thread_id":"t"}
{"type":"turn.started"}
{"type":"error","message":"Reconnecting... 1/5"}
{"type":"item.completed","item":{"id":"item_0","type":"agent_message","text":"I will look."}}
{"type":"item.completed","item":{"id":"item_1","type":"command_execution","command":"ls","aggregated_output":"","exit_code":0,"status":"completed"}}
{"type":"item.completed","item":{"id":"item_2","type":"agent_message","text":"Done.\n{\"a\": 1}"}}
{"type":"turn.completed","usage":{"input_tokens":26549,"cached_input_tokens":22272,"output_tokens":1590}}"#,
            expected(Some(tokens(26549, 22272, 1590)), 0.0, &[]),
        ),
        (
            "gemini",
            "Loaded cached credentials.\n{\n  \"session_id\": \"s\",\n  \"response\": \"Done.\\n{\\\"a\\\": 1}\",\n  \"stats\": {\"models\": {\"gemini-2.5-pro\": {\"tokens\": {\"prompt\": 10, \"candidates\": 3, \"total\": 15, \"cached\": 4, \"thoughts\": 2, \"tool\": 1}}, \"gemini-2.5-flash\": {\"tokens\": {\"prompt\": 100, \"candidates\": 30, \"total\": 130, \"cached\": 0, \"thoughts\": 0, \"tool\": 0}}}}\n}\n",
            expected(
                Some(tokens(111, 4, 35)),
                0.0,
                &["gemini-2.5-flash", "gemini-2.5-pro"],
            ),
        ),
        (
            "cursor",
            r#"{"type":"result","subtype":"success","is_error":false,"duration_ms":1234,"duration_api_ms":1234,"result":"Done.\n{\"a\": 1}","session_id":"s","request_id":"r"}"#,
            expected(None, 0.0, &[]),
        ),
        (
            "copilot",
            r#"{"type":"session.tools_updated","data":{"model":"claude-opus-4.6"},"id":"1","ephemeral":true}
{"type":"assistant.message","data":{"messageId":"m","content":"Done.\n{\"a\": 1}","toolRequests":[],"outputTokens":6},"id":"2"}
{"type":"assistant.message","data":{"messageId":"n","content":"","toolRequests":[{"name":"view"}],"outputTokens":6},"id":"3"}
{"type":"result","timestamp":"2026-03-30T22:19:28.097Z","sessionId":"s","exitCode":0,"usage":{"premiumRequests":6}}"#,
            expected(None, 0.0, &["claude-opus-4.6"]),
        ),
        (
            "opencode",
            r#"{"type":"step_start","timestamp":1,"sessionID":"s","part":{"type":"step-start"}}
{"type":"step_finish","timestamp":1,"sessionID":"s","part":{"type":"step-finish","reason":"tool-calls","cost":0.5,"tokens":{"total":17,"input":10,"output":3,"reasoning":1,"cache":{"read":2,"write":1}}}}
{"type":"text","timestamp":1,"sessionID":"s","part":{"type":"text","text":"Done.\n{\"a\": 1}"}}
{"type":"step_finish","timestamp":1,"sessionID":"s","part":{"type":"step-finish","reason":"stop","cost":0.25,"tokens":{"input":20,"output":5,"reasoning":0,"cache":{"read":0,"write":0}}}}"#,
            expected(Some(tokens(33, 2, 9)), 0.75, &[]),
        ),
        (
            "qwen",
            r#"{"type":"system","subtype":"session_start","session_id":"s","model":"qwen3-coder-plus"}
{"type":"assistant","message":{"id":"m","model":"qwen3-coder-plus","content":[{"type":"text","text":"x"}],"usage":{"input_tokens":7}}}
{"type":"result","subtype":"success","is_error":false,"result":"Done.\n{\"a\": 1}","usage":{"input_tokens":7,"output_tokens":2,"cache_read_input_tokens":3,"total_tokens":9},"permission_denials":[]}"#,
            expected(Some(tokens(7, 3, 2)), 0.0, &["qwen3-coder-plus"]),
        ),
    ]
}

#[test]
fn documented_outputs_of_the_tools_are_read() {
    for (name, stdout, expected) in successes() {
        assert_eq!(answer(name, stdout), expected, "{name}");
        assert_eq!(
            answer(name, &stdout.replace('\n', "\r\n")),
            expected,
            "{name}"
        );
    }
}

#[test]
fn turns_that_failed_or_ended_early_are_failures_despite_exit_code_0() {
    let reported = |text: &str| Some(ToolError::Reported(text.into()));
    let cut_short = |text: &str| Some(ToolError::CutShort(text.into()));
    for (name, stdout, expected) in [
        (
            "claude",
            r#"{"type":"result","subtype":"error_max_turns","is_error":false,"num_turns":3}"#,
            cut_short("error_max_turns"),
        ),
        (
            "claude",
            r#"{"type":"result","subtype":"error_during_execution","is_error":false,"errors":["interrupted"]}"#,
            reported("interrupted"),
        ),
        (
            "claude",
            r#"{"type":"result","subtype":"success","is_error":true,"result":"API Error: 529"}"#,
            reported("API Error: 529"),
        ),
        (
            "claude",
            r#"{"type":"result","subtype":"success","is_error":false,"result":"a","stop_reason":"max_tokens"}"#,
            cut_short("max_tokens"),
        ),
        (
            "codex",
            "{\"type\":\"turn.started\"}\n{\"type\":\"turn.failed\",\"error\":{\"message\":\"quota\"}}",
            reported("quota"),
        ),
        (
            "gemini",
            r#"{"error":{"type":"FatalTurnLimitedError","message":"Reached max session turns","code":53}}"#,
            reported("Reached max session turns"),
        ),
        (
            "cursor",
            r#"{"type":"result","subtype":"error","is_error":true}"#,
            reported("error"),
        ),
        (
            "copilot",
            r#"{"type":"abort","data":{"reason":"user initiated"}}"#,
            cut_short("user initiated"),
        ),
        (
            "copilot",
            "{\"type\":\"session.error\",\"data\":{\"errorType\":\"quota\",\"message\":\"no quota\"}}\n{\"type\":\"result\",\"exitCode\":1}",
            reported("no quota"),
        ),
        (
            "opencode",
            r#"{"type":"step_finish","part":{"reason":"length"}}"#,
            cut_short("length"),
        ),
        (
            "opencode",
            r#"{"type":"error","error":{"name":"UnknownError","data":{"message":"Unexpected server error"}}}"#,
            reported("Unexpected server error"),
        ),
        (
            "qwen",
            r#"{"type":"result","subtype":"error_during_execution","is_error":true,"error":{"message":"bad"}}"#,
            reported("bad"),
        ),
    ] {
        assert_eq!(answer(name, stdout).error, expected, "{name}: {stdout}");
    }
}

#[test]
fn completion_never_hides_a_failure_of_the_same_turn() {
    const BEGIN: &str = "{\"type\":\"step_start\",\"part\":{}}\n";
    const STOP: &str = "{\"type\":\"step_finish\",\"part\":{\"reason\":\"stop\"}}\n";
    const LENGTH: &str = "{\"type\":\"step_finish\",\"part\":{\"reason\":\"length\"}}\n";
    let error = |events: &[&str]| answer("opencode", &events.concat()).error;
    assert_eq!(error(&[BEGIN, STOP]), None);
    assert_eq!(error(&[BEGIN, LENGTH, BEGIN, STOP]), None);
    let cut_short = Some(ToolError::CutShort("length".into()));
    assert_eq!(error(&[BEGIN, LENGTH, STOP]), cut_short);
    assert_eq!(error(&[BEGIN, STOP, LENGTH]), cut_short);
    let stderr = String::new();
    assert_eq!(
        error(&[BEGIN, STOP, BEGIN]),
        Some(ToolError::NoResult { stderr })
    );
    let abort = "{\"type\":\"abort\",\"data\":{\"reason\":\"remote\"}}\n{\"type\":\"result\",\"exitCode\":0}";
    assert_eq!(
        answer("copilot", abort).error,
        Some(ToolError::CutShort("remote".into()))
    );
}

#[test]
fn turns_without_a_last_event_are_failures() {
    for (name, stdout, _) in successes() {
        let (without, _) = stdout.trim().rsplit_once('\n').unwrap_or_default();
        let error = answer(name, without).error;
        assert_eq!(
            error,
            Some(ToolError::NoResult {
                stderr: String::new()
            }),
            "{name}"
        );
        let cut = answer(name, &stdout.trim()[..stdout.trim().len() - 1]);
        assert!(
            matches!(cut.error, Some(ToolError::NoResult { .. })),
            "{name}"
        );
    }
    let codex = answer(
        "codex",
        "{\"type\":\"item.completed\",\"item\":{\"type\":\"agent_message\",\"text\":\"so far\"}}\n{\"type\"",
    );
    assert_eq!(codex.text, "so far");
    let plain = answer("claude", "Invalid API key");
    assert_eq!(plain.text, "Invalid API key");
}

#[test]
fn exit_codes_and_signals_are_failures_whatever_the_output_is() {
    let (name, stdout, _) = &successes()[0];
    let of = |code, signal| {
        tool(name).answer(stdout.as_bytes(), b" disk full \n", Exit { code, signal })
    };
    let error = |code, signal| of(code, signal).error.expect("an error").to_string();
    assert_eq!(
        error(Some(3), None),
        "the tool ended with exit code 3: disk full"
    );
    assert_eq!(error(None, Some(9)), "signal 9 ended the tool: disk full");
    assert!(error(None, None).contains("without a result"));
    assert_eq!(of(Some(3), None).text, "Done.\n{\"a\": 1}");
    let text = own("command: [tool], prompt: stdin, output: {format: text}");
    let answer = text.answer(b"caf\xc3\xa9 \xff", b"", SUCCESS);
    assert_eq!(
        (answer.text.as_str(), answer.error),
        ("café \u{fffd}", None)
    );
}

#[test]
fn garbage_between_the_events_is_ignored() {
    for (name, stdout, expected) in successes() {
        let garbage =
            "[WARN] {x}\n{\"type\":\"result\n{broken\n\u{1b}[0m\n{}\n[1]\nnull\n{\"type\": 1}\n";
        let lines: Vec<String> = stdout.lines().map(str::to_owned).collect();
        let between = if name == "gemini" {
            "\n"
        } else {
            &format!("\n{garbage}")
        };
        let noisy = format!("{garbage}{}\n{garbage}", lines.join(between));
        assert_eq!(answer(name, &noisy), expected, "{name}");
        let bytes = [b"\xff\xfe\n", noisy.as_bytes(), b"\xff"].concat();
        assert_eq!(tool(name).answer(&bytes, b"", SUCCESS), expected, "{name}");
    }
}

#[test]
fn numbers_beyond_64_bits_are_not_counted() {
    let line = |input: &str| {
        format!(
            "{{\"type\":\"turn.completed\",\"usage\":{{\"input_tokens\":{input},\"output_tokens\":1}}}}\n"
        )
    };
    for input in [
        "18446744073709551616",
        "-1",
        "1e3",
        "1.5",
        "\"7\"",
        "null",
        "[]",
    ] {
        assert_eq!(
            answer("codex", &line(input)).usage,
            Some(tokens(0, 0, 1)),
            "{input}"
        );
    }
    let most = line("18446744073709551615");
    assert_eq!(
        answer("codex", &most.repeat(2)).usage,
        Some(tokens(u64::MAX, 0, 2))
    );
    for cost in ["-1", "1e400", "\"1\"", "1e9"] {
        let stdout = format!("{{\"type\":\"result\",\"total_cost_usd\":{cost}}}");
        assert_eq!(answer("claude", &stdout).cost, None, "{cost}");
    }
}

#[test]
fn hostile_outputs_are_read_in_linear_time() {
    for piece in [
        "{",
        "{\n",
        "{\"a\":\n",
        "{\"a\":{",
        "[\n",
        "{}\n",
        "{\"type\":\"result\",\"modelUsage\":{\"\":{}}}\n",
        "\n",
        " ",
        "\u{7f}",
        "x",
    ] {
        let stdout = piece.repeat((512 << 10) / piece.len());
        for name in ["claude", "codex"] {
            let error = answer(name, &stdout).error;
            assert!(
                matches!(error, Some(ToolError::NoResult { .. })),
                "{name} {piece:?}"
            );
        }
    }
    let large = "x".repeat(100 << 20);
    let (name, stdout, expected) = &successes()[1];
    let item = format!(
        "{{\"type\":\"item.completed\",\"item\":{{\"type\":\"agent_message\",\"text\":\"{large}\"}}}}\n{stdout}"
    );
    assert_eq!(answer(name, &item), *expected);
}

proptest! {
    #[test]
    fn any_output_is_read(stdout in prop::collection::vec(any::<u8>(), 0..200), name in prop::sample::select(&NAMES[..])) {
        let answer = tool(name).answer(&stdout, &stdout, SUCCESS);
        prop_assert!(answer.error.is_some());
    }

    #[test]
    fn any_part_of_an_output_is_no_success(index in 0..7_usize, end in 0.0..1.0_f64) {
        let (name, stdout, _) = &successes()[index];
        let stdout = stdout.trim().as_bytes();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a small index")]
        let end = (end * stdout.len() as f64) as usize;
        prop_assert!(tool(name).answer(&stdout[..end], b"", SUCCESS).error.is_some());
    }
}
