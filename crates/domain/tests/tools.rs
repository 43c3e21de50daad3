//! The tools of the catalogue, with the stand-ins of `tests/capsules/tools` in place of the real programs.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use aod_domain::run::Exit;
use aod_domain::spending::{Cost, Tokens};
use aod_domain::task::tool::{Answer, Catalogue, Credential, Tool, ToolError};

/// Variables of a step with a model: the addresses of the model proxy, and the placeholders of its keys.
const OF_MODELS: [(&str, &str); 6] = [
    ("OPENAI_BASE_URL", "http://127.0.0.1:8700/llm/openai/v1"),
    ("ANTHROPIC_BASE_URL", "http://127.0.0.1:8700/llm/anthropic"),
    ("GOOGLE_GEMINI_BASE_URL", "http://127.0.0.1:8700/llm/google"),
    ("OPENAI_API_KEY", "aod"),
    ("ANTHROPIC_API_KEY", "aod"),
    ("GEMINI_API_KEY", "aod"),
];

/// A new directory for a workspace.
fn workspace(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("a directory");
    path
}

/// The command for a turn, with the credential of the tool.
fn command(tool: &Tool, prompt: &str, workspace: &Path) -> Command {
    let stand_ins = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/capsules/tools");
    let stand_ins = stand_ins.canonicalize().expect("the stand-ins");
    let path = std::env::var("PATH").expect("a PATH");
    let invocation = tool
        .invocation(prompt, Some("small"))
        .expect("an invocation");
    let stdin = workspace.join("prompt");
    fs::write(&stdin, invocation.stdin.unwrap_or_default()).expect("a prompt");
    let mut command = Command::new(&invocation.argv[0]);
    command
        .args(&invocation.argv[1..])
        .current_dir(workspace)
        .env("PATH", format!("{}:{path}", stand_ins.display()))
        .envs(&tool.environment)
        .stdin(File::open(stdin).expect("a prompt"));
    match tool.credential.as_ref().expect("a credential") {
        Credential::Proxy { .. } => command.envs(OF_MODELS),
        Credential::Secret { variable, .. } => command.env(variable, "secret"),
    };
    command
}

fn answer(tool: &Tool, mut command: Command) -> Answer {
    let output = command.output().expect("a shell and Python 3");
    let exit = Exit {
        code: output.status.code(),
        signal: output.status.signal(),
    };
    tool.answer(&output.stdout, &output.stderr, exit)
}

/// Runs each tool with `prompt`, and checks its answer.
fn check_all(test: &str, prompt: &str, check: impl Fn(&Tool, &Path, Answer)) {
    for tool in Catalogue::default().tools() {
        let workspace = workspace(&format!("{test}-{}", tool.name));
        let answer = answer(tool, command(tool, prompt, &workspace));
        check(tool, &workspace, answer);
    }
}

#[test]
fn stand_ins_answer_and_write_files() {
    let prompt = "Do it.\nAOD-STAND-IN: answer Döne.\nAOD-STAND-IN: answer {\"a\": 1}\nAOD-STAND-IN: write out/a.md some text\n";
    check_all("success", prompt, |tool, workspace, answer| {
        let name = tool.name.as_str();
        let has_usage = !["copilot", "cursor"].contains(&name);
        let has_cost = ["claude", "opencode"].contains(&name);
        let has_model = ["claude", "copilot", "gemini", "qwen"].contains(&name);
        let tokens = Tokens {
            input: 100,
            cached_input: 40,
            output: 10,
        };
        let expected = Answer {
            text: "Döne.\n{\"a\": 1}".into(),
            usage: has_usage.then_some(tokens),
            cost: has_cost.then(|| Cost::from_dollars(0.0125)).flatten(),
            models: has_model.then(|| "small".into()).into_iter().collect(),
            error: None,
        };
        assert_eq!(answer, expected, "{name}");
        let file = fs::read_to_string(workspace.join("out/a.md")).expect("a file");
        assert_eq!(file, "some text\n", "{name}");
    });
}

#[test]
fn stand_ins_read_large_prompts_that_begin_with_a_dash() {
    let prompt = format!("--help\n{}", "x".repeat(1_000_000));
    check_all("large", &prompt, |tool, _, answer| {
        let expected = format!("stand-in for {}: prompt of 1000007 bytes", tool.name);
        assert_eq!((answer.text, answer.error), (expected, None));
    });
}

#[test]
fn stand_ins_fail_as_their_prompt_says() {
    let words = "the stand-in failed as the prompt says";
    check_all("failure", "AOD-STAND-IN: fail", |tool, _, answer| {
        let name = tool.name.as_str();
        let error = answer.error.expect("an error");
        assert!(error.to_string().contains(words), "{name}: {error}");
        // These two report the error on stderr.
        let is_exit = matches!(error, ToolError::Exited { .. });
        assert_eq!(is_exit, ["cursor", "gemini"].contains(&name), "{name}");
    });
}

#[test]
fn stand_ins_cut_their_turn_short() {
    check_all("short", "AOD-STAND-IN: cut short", |tool, _, answer| {
        let error = answer.error.expect("an error").to_string();
        let expected = match tool.name.as_str() {
            "claude" => "the tool stopped before the end of its turn: error_max_turns",
            "codex" => "the tool ended with exit code 1",
            "copilot" => "the tool stopped before the end of its turn: user_initiated",
            "cursor" => "the tool ended with exit code 130: Aborting operation...",
            "gemini" => "the tool ended with exit code 53: {",
            "opencode" => "the tool stopped before the end of its turn: length",
            _ => "the tool stopped before the end of its turn: Reached max session turns",
        };
        assert!(error.starts_with(expected), "{}: {error}", tool.name);
    });
}

#[test]
fn stand_ins_reject_flags_that_the_real_tools_do_not_have() {
    for tool in Catalogue::default().tools() {
        let workspace = workspace(&format!("flag-{}", tool.name));
        let mut command = command(tool, "a", &workspace);
        command.arg("--no-such-flag");
        let error = answer(tool, command).error.expect("an error").to_string();
        let code = if tool.name == "codex" { 2 } else { 1 };
        let start = format!("the tool ended with exit code {code}: ");
        let has_name = error.contains("no-such-flag");
        assert!(
            error.starts_with(&start) && has_name,
            "{}: {error}",
            tool.name
        );
    }
}

#[test]
fn stand_ins_without_their_credential_fail() {
    for tool in Catalogue::default().tools() {
        let workspace = workspace(&format!("credential-{}", tool.name));
        let mut command = command(tool, "a", &workspace);
        for (name, _) in OF_MODELS {
            command.env_remove(name);
        }
        command
            .env_remove("CURSOR_API_KEY")
            .env_remove("COPILOT_GITHUB_TOKEN");
        let error = answer(tool, command).error;
        assert!(
            matches!(error, Some(ToolError::Exited { code: 1, .. })),
            "{}: {error:?}",
            tool.name
        );
    }
}
