//! AI tools: how to install and start each of them, and how to read what it prints.
//!
//! A tool is data, not code. `catalogue.yaml` describes the tools that AOD knows; a `tools.yaml` in the same format adds
//! tools or replaces them.

mod answer;
mod catalogue;
mod output;
mod path;
mod read;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use thiserror::Error;

pub use self::answer::{Answer, ToolError};
pub use self::catalogue::{CATALOGUE_SIZE_BYTES_MAX, Catalogue};
use self::output::Format;
use crate::egress;

/// Longest argument of a program, in bytes. Source: Linux, `MAX_ARG_STRLEN`: 131,072 with the zero byte at the end.
pub const ARGUMENT_BYTES_MAX: usize = 128 * 1024 - 1;

/// An AI tool that performs steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool {
    /// 1 to 63 of `a-z`, `0-9` and `-`.
    pub name: String,
    /// The base image. It contains what `install` needs.
    pub image: String,
    /// A line for `sh -c`; none if the image contains the tool.
    pub install: Option<String>,
    pub environment: BTreeMap<String, String>,
    /// None for a tool that needs no credential.
    pub credential: Option<Credential>,
    command: Vec<String>,
    /// None if the tool cannot select a model.
    model: Option<Slot>,
    prompt: PromptBy,
    prompt_bytes_max: Option<usize>,
    output: Format,
}

/// What a tool pays its models with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// The placeholder of the model proxy.
    Proxy {
        /// The formats that the tool can speak.
        families: Vec<Family>,
        /// The models that the tool requests beside the step's: those of its background calls, and its default.
        /// `provider/*` stands for all models of a provider.
        models: Vec<String>,
    },
    /// A secret of a service of the tool's own.
    Secret {
        /// The environment variable with the secret.
        variable: String,
        /// The hosts of the service.
        egress: Vec<egress::Rule>,
    },
}

/// A format of requests to models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    OpenAi,
    Anthropic,
    Google,
}

/// How a tool gets its prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PromptBy {
    Stdin,
    /// The last argument. If it begins with the prompt, `--` is before it.
    Argument(Slot),
}

/// A text with a place for a value.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Slot {
    before: String,
    after: String,
}

impl Slot {
    fn fill(&self, value: &str) -> String {
        [&self.before, value, &self.after].concat()
    }
}

/// The start of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// Program and arguments; never empty.
    pub argv: Vec<String>,
    /// The whole standard input; none if it stays empty.
    pub stdin: Option<String>,
}

/// Why a tool cannot be started with a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvocationError {
    #[error("the prompt is empty; expected a text")]
    EmptyPrompt,
    #[error("the model is empty; expected a name")]
    EmptyModel,
    #[error("{tool} cannot select a model; expected a step without a model")]
    NoModelFlag { tool: String },
    #[error(
        "the prompt has {size_bytes} bytes; {tool} reads at most {size_bytes_max}: expected long contents in files of the workspace"
    )]
    PromptTooLarge {
        tool: String,
        size_bytes: usize,
        size_bytes_max: usize,
    },
    #[error(
        "{tool} takes its prompt as an argument, which would have {size_bytes} bytes; Linux allows {ARGUMENT_BYTES_MAX}: expected long contents in files of the workspace"
    )]
    ArgumentTooLong { tool: String, size_bytes: usize },
    #[error("an argument of {tool} would contain a zero byte; expected a text without")]
    ZeroByte { tool: String },
}

impl Tool {
    /// The name of its program. A tool that a shell starts is a program with the name of the tool.
    pub fn program(&self) -> &str {
        let first = self.command.first().map(String::as_str);
        first.filter(|name| *name != "sh").unwrap_or(&self.name)
    }

    /// How to start the tool in the directory of the workspace.
    ///
    /// # Errors
    /// [`InvocationError`]; a prompt is never cut.
    pub fn invocation(
        &self,
        prompt: &str,
        model: Option<&str>,
    ) -> Result<Invocation, InvocationError> {
        let tool = || self.name.clone();
        if prompt.trim().is_empty() {
            return Err(InvocationError::EmptyPrompt);
        }
        let size_bytes = prompt.len();
        if let Some(size_bytes_max) = self.prompt_bytes_max
            && size_bytes > size_bytes_max
        {
            return Err(InvocationError::PromptTooLarge {
                tool: tool(),
                size_bytes,
                size_bytes_max,
            });
        }
        let mut argv = self.command.clone();
        if let Some(model) = model {
            argv.push(self.model_argument(model)?);
        }
        let stdin = match &self.prompt {
            PromptBy::Stdin => Some(prompt.to_owned()),
            PromptBy::Argument(slot) => {
                if slot.before.is_empty() {
                    argv.push("--".to_owned());
                }
                argv.push(slot.fill(prompt));
                None
            }
        };
        for argument in &argv {
            let size_bytes = argument.len();
            if size_bytes > ARGUMENT_BYTES_MAX {
                return Err(InvocationError::ArgumentTooLong {
                    tool: tool(),
                    size_bytes,
                });
            }
            if argument.contains('\0') {
                return Err(InvocationError::ZeroByte { tool: tool() });
            }
        }
        Ok(Invocation { argv, stdin })
    }

    fn model_argument(&self, model: &str) -> Result<String, InvocationError> {
        if model.trim().is_empty() {
            return Err(InvocationError::EmptyModel);
        }
        let Some(slot) = &self.model else {
            let tool = self.name.clone();
            return Err(InvocationError::NoModelFlag { tool });
        };
        Ok(slot.fill(model))
    }
}
