//! Runs a step that an AI tool performs.

use std::fs::{self, Permissions};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use aod_domain::error_code::ErrorCode;
use aod_domain::run::{Exit, RunError};
use aod_domain::task::tool::{Answer, Catalogue, Tool};
use aod_domain::task::{Agent, Output, OutputType, Outputs, PROMPT_BYTES_MAX, capture, prompt};
use aod_services::program::blocking;
use tracing::warn;

use super::step::{Done, Execution, failed, succeeded};
use crate::files::safe_dir::SafeDir;
use crate::work::capsule::processes::{End, Ended};
use crate::work::capsule::tail::Tail;

/// Bytes that are kept of each output of a tool: the answer is at its end.
const TOOL_OUTPUT_BYTES: usize = 16 << 20;

/// Bytes of the output that later steps see as `raw_output`. Source: the workflow contract.
const RAW_OUTPUT_BYTES: usize = 1 << 20;

/// What stands for an output without a value. Source: the workflow contract.
const NOT_FOUND: &str = "[Not found in response]";
const NO_FILE: &str = "[File not created]";
const NO_FILE_NAME: &str = "[Missing filename]";
const UNREADABLE_FILE: &str = "[Could not read file]";

impl Execution<'_> {
    pub(super) async fn agent(&self, agent: &Agent) -> Result<Done, RunError> {
        let workflow = self.progress.workflow();
        let name = workflow.tool_of(agent);
        let catalogue = Catalogue::default();
        let Some(tool) = catalogue.get(name) else {
            let text = format!("no tool has the name {name:?}");
            return Ok(failed(Outputs::new(), None, text));
        };
        let filled = match self.progress.prompt(&agent.prompt, self.run) {
            Ok(filled) => filled,
            Err(unfilled) => return Ok(failed(Outputs::new(), None, unfilled.to_string())),
        };
        let prompt = prompt::with_outputs(&filled.text, &agent.outputs);
        let mut outputs = Outputs::new();
        if prompt.len() > PROMPT_BYTES_MAX {
            let size = prompt.len();
            let text = format!("the prompt has {size} bytes; expected at most {PROMPT_BYTES_MAX}");
            return Ok(failed(outputs, None, text));
        }
        let ended = self.turn(tool, workflow.model_of(agent), &prompt).await?;
        outputs.insert("input_prompt".to_owned(), prompt);
        let (ended, is_late) = match ended {
            Ok(ended) => ended,
            Err(text) => return Ok(with_error(outputs, None, text)),
        };
        let exit = match &ended.end {
            End::Exited { exit, .. } => *exit,
            End::Unusable(text) => return Ok(with_error(outputs, None, text.clone())),
        };
        let (answer, raw) = read(tool, ended, exit);
        outputs.insert("raw_output".to_owned(), raw);
        if let Some(text) = self.late(is_late) {
            return Ok(with_error(outputs, Some(exit), text));
        }
        if let Some(error) = answer.error {
            return Ok(with_error(outputs, Some(exit), error.to_string()));
        }
        self.captured(agent, &answer.text, outputs, exit).await
    }

    /// Starts the tool with a prompt and waits for its end; an inner error says why it cannot start.
    async fn turn(
        &self,
        tool: &Tool,
        model: Option<&str>,
        prompt: &str,
    ) -> Result<Result<(Ended, bool), String>, RunError> {
        let invocation = match tool.invocation(prompt, model) {
            Ok(invocation) => invocation,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let stdin = invocation.stdin.map(|text| self.write_stdin(&text));
        let stdin = stdin.transpose()?;
        let environment = tool.environment.clone().into_iter().collect();
        let ended = self
            .process(
                invocation.argv,
                environment,
                stdin.as_ref().map(|stdin| stdin.name.clone()),
                TOOL_OUTPUT_BYTES,
            )
            .await;
        drop(stdin);
        ended
    }

    /// Writes the standard input of the process into the channel directory, which the sandbox can only read.
    fn write_stdin(&self, text: &str) -> Result<Stdin, RunError> {
        let name = format!("stdin-{}", self.process);
        let path = self.sandbox.paths.channel.join(&name);
        let stdin = Stdin { name, path };
        // Into the page cache, and without a wait: the file exists only while the step runs.
        let written = fs::write(&stdin.path, text);
        let mode = Permissions::from_mode(0o644);
        let written = written.and_then(|()| fs::set_permissions(&stdin.path, mode));
        written.map_err(|error| {
            let text = format!("the node cannot write the prompt: {error}");
            RunError::new(ErrorCode::RuntimeFailed, text)
        })?;
        Ok(stdin)
    }

    /// Adds the declared outputs.
    async fn captured(
        &self,
        agent: &Agent,
        answer: &str,
        mut outputs: Outputs,
        exit: Exit,
    ) -> Result<Done, RunError> {
        let captured = capture(answer, &agent.outputs);
        outputs.extend(captured.values);
        let mut missing = captured.missing;
        for name in &missing {
            outputs.insert(name.clone(), NOT_FOUND.to_owned());
        }
        for (name, content) in self.files(&agent.outputs).await? {
            let text = match content {
                Content::Text(text) => text,
                Content::Sentinel(text) => {
                    missing.push(name.clone());
                    text.to_owned()
                }
            };
            outputs.insert(name, text);
        }
        let is_required = |output: &&Output| output.is_required && missing.contains(&output.name);
        let required = agent.outputs.iter().filter(is_required);
        let required: Vec<String> = required
            .map(|output| format!("{:?}", output.name))
            .collect();
        if !required.is_empty() {
            let text = format!("no value for the required outputs {}", required.join(", "));
            return Ok(with_error(outputs, Some(exit), text));
        }
        Ok(succeeded(outputs, Some(exit)))
    }

    /// The texts of the declared files, by the names of the outputs.
    async fn files(&self, declared: &[Output]) -> Result<Vec<(String, Content)>, RunError> {
        let mut wanted = Vec::new();
        for output in declared {
            if let OutputType::File(path) = &output.kind {
                wanted.push((output.name.clone(), path.clone()));
            }
        }
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let workspace = self.sandbox.paths.workspace.clone();
        let read = blocking(move || {
            let workspace = SafeDir::open(&workspace)?;
            let files = wanted.into_iter();
            let files = files.map(|(name, path)| (name, content(&workspace, path.as_deref())));
            Ok::<_, std::io::Error>(files.collect())
        });
        read.await.map_err(|error| {
            let text = format!("the node cannot read the workspace: {error}");
            RunError::new(ErrorCode::RuntimeFailed, text)
        })
    }
}

/// The standard input of a process, removed on drop: the next run of the node uses the same directory.
#[derive(Debug)]
struct Stdin {
    name: String,
    path: PathBuf,
}

impl Drop for Stdin {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            warn!(path = %self.path.display(), %error, "a prompt was not removed");
        }
    }
}

/// The value of an output of the type file.
#[derive(Debug)]
enum Content {
    Text(String),
    /// What stands for a file without a text.
    Sentinel(&'static str),
}

/// The text of a file of the workspace, else of the file with its base name in the workspace.
fn content(workspace: &SafeDir, path: Option<&str>) -> Content {
    let Some(path) = path else {
        return Content::Sentinel(NO_FILE_NAME);
    };
    let path = path.trim_start_matches("./");
    let base = path.rsplit('/').next().unwrap_or(path);
    let mut names = [path, base].into_iter();
    let Some(name) = names.find(|name| workspace.kind(name).is_some()) else {
        return Content::Sentinel(NO_FILE);
    };
    let mut text = String::new();
    let opened = workspace.open_file(name, PROMPT_BYTES_MAX as u64).ok();
    match opened.and_then(|mut file| file.read_to_string(&mut text).ok()) {
        Some(_) => Content::Text(text),
        None => Content::Sentinel(UNREADABLE_FILE),
    }
}

/// The answer, and the end of the output as later steps see it.
fn read(tool: &Tool, ended: Ended, exit: Exit) -> (Answer, String) {
    let (stdout, _) = ended.stdout.into_bytes();
    let (stderr, _) = ended.stderr.into_bytes();
    let answer = tool.answer(&stdout, &stderr, exit);
    let mut raw = Tail::new(RAW_OUTPUT_BYTES);
    raw.push(&stdout);
    (answer, raw.into_text())
}

fn with_error(mut outputs: Outputs, exit: Option<Exit>, text: String) -> Done {
    outputs.insert("error".to_owned(), text.clone());
    failed(outputs, exit, text)
}
