//! `tools.yaml`: the capsules that a capsule may call, and the tools of its agent.

use std::collections::BTreeMap;

use serde_json::Value;

use super::MANIFEST_SIZE_BYTES_MAX;
use super::fields::{texts, timeout, version};
use crate::grant::{Grant, Handoffs};
use crate::yaml::{Mapping, Node, Problem, Reader};

/// Maximum calls of one target: the maximum number of runs in a tree.
const CALLS_MAX: i64 = 10_000;

/// `tools.yaml`; an absent or empty file allows nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolsManifest {
    /// The capsules that may be called.
    pub capsules: Vec<CapsuleGrant>,
    pub mcp_servers: BTreeMap<String, McpServer>,
    /// Local functions, `module:function`.
    pub python: Vec<String>,
    /// Tools that the capsule implements itself, in agent-on-demand's format; they allow no calls.
    pub functions: Vec<Function>,
}

/// A capsule that may be called.
#[derive(Clone, Debug, PartialEq)]
pub struct CapsuleGrant {
    /// As the author wrote the target: a title, an alias or a name; see [`super::resolve`].
    pub target: String,
    /// Name of the tool, `as` in the file.
    pub tool_name: Option<String>,
    pub description: Option<String>,
    pub calls_max: Option<u32>,
    pub timeout_seconds: Option<u32>,
    /// Whether the model sees the tool, or only the capsule's code may call it.
    pub visible_to_ai: bool,
    /// Fixed arguments, which the model does not see.
    pub args: BTreeMap<String, Value>,
}

impl CapsuleGrant {
    fn of(target: String) -> Self {
        Self {
            target,
            tool_name: None,
            description: None,
            calls_max: None,
            timeout_seconds: None,
            visible_to_ai: true,
            args: BTreeMap::new(),
        }
    }
}

/// An MCP server.
#[derive(Clone, Debug, PartialEq)]
pub struct McpServer {
    pub transport: Transport,
    pub allow: Allowed,
    pub timeout_seconds: Option<u32>,
}

/// The connection to a server.
#[derive(Clone, Debug, PartialEq)]
pub enum Transport {
    Command {
        command: String,
        args: Vec<String>,
        env: BTreeMap<String, String>,
    },
    Url {
        url: String,
        headers: BTreeMap<String, String>,
    },
}

/// The allowed tools of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowed {
    All,
    Listed(Vec<String>),
}

/// A tool that the capsule implements itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    pub name: String,
    pub description: Option<String>,
    /// JSON Schema of its arguments.
    pub parameters: Option<Value>,
}

impl ToolsManifest {
    /// Reads `tools.yaml`, at most [`super::MANIFEST_SIZE_BYTES_MAX`]: a mapping, a bare list of capsule names, or
    /// agent-on-demand's list of functions.
    ///
    /// # Errors
    /// All mistakes in the file; a YAML syntax error comes alone.
    pub fn parse(yaml: &[u8]) -> Result<Self, Vec<Problem>> {
        Reader::read(
            "tools.yaml",
            yaml,
            MANIFEST_SIZE_BYTES_MAX,
            |reader, root| match root {
                None => Self::default(),
                Some(root) if root.is_list() => bare_list(reader, root),
                Some(root) => reader.mapping(root, tools).unwrap_or_default(),
            },
        )
    }
}

impl ToolsManifest {
    /// The capsules that the capsule may call, for its registration.
    pub fn handoffs(&self) -> Handoffs {
        let grants = self.capsules.iter().map(|grant| Grant {
            target: grant.target.clone(),
            calls_max: grant.calls_max,
            timeout_seconds: grant.timeout_seconds,
        });
        Handoffs::Listed(grants.collect())
    }
}

fn bare_list(reader: &mut Reader, root: Node) -> ToolsManifest {
    let mut manifest = ToolsManifest::default();
    reader.list(root, |reader, item| {
        if item.is_text() {
            manifest.capsules.extend(grant(reader, item));
        } else {
            manifest.functions.extend(function(reader, item));
        }
        Some(())
    });
    manifest
}

fn tools(reader: &mut Reader, mapping: &mut Mapping) -> ToolsManifest {
    version(reader, mapping);
    let mut servers = |key| {
        reader
            .field(mapping, key, |reader, node| reader.table(node, server))
            .unwrap_or_default()
    };
    let mut mcp_servers = servers("mcp_servers");
    mcp_servers.extend(servers("mcpServers"));
    ToolsManifest {
        capsules: reader
            .field(mapping, "capsules", |reader, node| reader.list(node, grant))
            .unwrap_or_default(),
        mcp_servers,
        python: reader
            .field(mapping, "python", |reader, node| reader.list(node, python))
            .unwrap_or_default(),
        functions: Vec::new(),
    }
}

fn grant(reader: &mut Reader, node: Node) -> Option<CapsuleGrant> {
    if node.is_text() {
        return reader.parsed(node, target).map(CapsuleGrant::of);
    }
    reader.mapping(node, |reader, mapping| {
        let name = reader.required(mapping, "name", |reader, node| reader.parsed(node, target));
        let grant = CapsuleGrant {
            tool_name: reader.field(mapping, "as", Reader::text),
            description: reader.field(mapping, "description", Reader::text),
            calls_max: reader.field(mapping, "max_calls", |reader, node| {
                reader.integer(node, 1..=CALLS_MAX)
            }),
            timeout_seconds: timeout(reader, mapping),
            visible_to_ai: reader
                .field(mapping, "visible_to_ai", Reader::boolean)
                .unwrap_or(true),
            args: reader
                .field(mapping, "args", |reader, node| {
                    reader.table(node, |_, node| Some(node.into_json()))
                })
                .unwrap_or_default(),
            ..CapsuleGrant::of(String::new())
        };
        name.map(|target| CapsuleGrant { target, ..grant })
    })?
}

fn target(text: &str) -> Result<String, &'static str> {
    match text.trim() {
        "" => Err("an empty name found; expected the title, an alias or the name of a capsule"),
        "*" => Err("\"*\" found; expected each capsule by name"),
        name => Ok(name.to_owned()),
    }
}

fn server(reader: &mut Reader, node: Node) -> Option<McpServer> {
    reader.mapping(node, |reader, mapping| {
        let allow = reader.required(mapping, "allow", allowed);
        let timeout_seconds = timeout(reader, mapping);
        let url = reader.field(mapping, "url", Reader::text);
        let transport = match url {
            Some(url) => Some(Transport::Url {
                url,
                headers: plain_table(reader, mapping, "headers"),
            }),
            None => reader
                .required(mapping, "command", Reader::text)
                .map(|command| {
                    let args = texts(reader, mapping, "args");
                    Transport::Command {
                        command,
                        args,
                        env: plain_table(reader, mapping, "env"),
                    }
                }),
        };
        Some(McpServer {
            transport: transport?,
            allow: allow?,
            timeout_seconds,
        })
    })?
}

fn plain_table(
    reader: &mut Reader,
    mapping: &mut Mapping,
    key: &'static str,
) -> BTreeMap<String, String> {
    reader
        .field(mapping, key, |reader, node| {
            reader.table(node, Reader::plain)
        })
        .unwrap_or_default()
}

fn allowed(reader: &mut Reader, node: Node) -> Option<Allowed> {
    if node.is_list() {
        return reader.list(node, Reader::text).map(Allowed::Listed);
    }
    reader.parsed(node, |text| match text {
        "*" => Ok(Allowed::All),
        _ => Err("expected a list of tools, or \"*\" for all"),
    })
}

fn python(reader: &mut Reader, node: Node) -> Option<String> {
    reader.parsed(node, |text| match text.split_once(':') {
        Some((module, function)) if !module.is_empty() && !function.is_empty() => {
            Ok(text.to_owned())
        }
        _ => Err(format!(
            "{} found; expected module:function",
            crate::text::quoted(text)
        )),
    })
}

fn function(reader: &mut Reader, node: Node) -> Option<Function> {
    reader.mapping(node, |reader, mapping| {
        let name = reader.required(mapping, "name", Reader::text);
        let description = reader.field(mapping, "description", Reader::text);
        let parameters = reader.field(mapping, "parameters", |_, node| Some(node.into_json()));
        name.map(|name| Function {
            name,
            description,
            parameters,
        })
    })?
}
