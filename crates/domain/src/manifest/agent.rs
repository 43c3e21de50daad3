//! `agent.yaml`: the names of a capsule, the settings of its agent, and the needs of its container.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::MANIFEST_SIZE_BYTES_MAX;
use super::fields::{count, part, texts, timeout, version};
use super::model::{Model, Settings, all_settings, model};
use crate::egress;
use crate::file_name::FileName;
use crate::grant::ModelGrant;
use crate::name::CapsuleName;
use crate::placement::{DEVICE_KINDS_MAX, DEVICES_MAX, Name, REQUIREMENTS_MAX, Requirements};
use crate::resources::Resources;
use crate::spending::{Budget, Cost};
use crate::text::quoted;
use crate::yaml::{Mapping, Node, Problem, Reader};

/// Minimum memory of a container, in bytes. Source: dockerd rejects less than 6 MiB.
const MEMORY_BYTES_MIN: u64 = 6 << 20;

/// Minimum CPUs of a container. Source: dockerd rejects less than a hundredth.
const CPUS_MIN: f64 = 0.01;

/// Maximum CPUs: more than one machine has.
const CPUS_MAX: f64 = 1_024.0;

/// Maximum processes of a container. Source: `PID_MAX_LIMIT` of Linux on 64 bits.
const PIDS_MAX: i64 = 4_194_304;

/// Prefixes of well-known access keys; such a value in a manifest is a leaked secret.
const KEY_PREFIXES: [&str; 11] = [
    "AIza",
    "AKIA",
    "ghp_",
    "gho_",
    "github_pat_",
    "glpat-",
    "hf_",
    "sk-",
    "sk_",
    "xoxb-",
    "xoxp-",
];

/// `agent.yaml`; an absent or empty file is [`AgentManifest::default`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentManifest {
    /// None: the name of the directory, as a [`super::slug`].
    pub name: Option<CapsuleName>,
    pub title: Option<String>,
    pub description: Option<String>,
    pub aliases: Vec<String>,
    /// `provider/model`, `provider:model`, a key of `models`, or a bare name as in agent-on-demand; none for a capsule
    /// without a model.
    pub model: Option<String>,
    pub models: BTreeMap<String, Model>,
    /// Models to try in this order if `model` is unavailable.
    pub fallback: Vec<String>,
    pub settings: Settings,
    pub output_mode: OutputMode,
    pub retries: Retries,
    pub limits: Limits,
    pub prompts: Prompts,
    pub secrets: Vec<Secret>,
    /// Hosts that its container may connect to, if the operator permits them too.
    pub egress: Vec<egress::Rule>,
    /// Variables of its container in addition to those of the contract, which win.
    pub env: BTreeMap<String, String>,
    pub resources: Resources,
    /// Requirements for its nodes.
    pub placement: Requirements,
    pub network: Network,
    /// Whether the capsule's log contains the texts of prompts and answers.
    pub capture_content: bool,
}

/// How a model is made to answer in the form of the schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputMode {
    #[default]
    Tool,
    Native,
    Prompted,
}

/// Maximum retries for each kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    pub model: u32,
    pub tool: u32,
    pub output: u32,
}

impl Default for Retries {
    fn default() -> Self {
        Self {
            model: 5,
            tool: 1,
            output: 2,
        }
    }
}

/// Limits of the agent's loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    pub turns_max: u32,
    pub tool_calls_max: u32,
    pub total_tokens_max: Option<u64>,
    pub output_tokens_max: Option<u64>,
    pub cost_usd_max: Option<f64>,
    pub timeout_seconds: Option<u32>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            turns_max: 20,
            tool_calls_max: 50,
            total_tokens_max: None,
            output_tokens_max: None,
            cost_usd_max: None,
            timeout_seconds: None,
        }
    }
}

/// Files of the prompts, relative to the capsule's directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompts {
    /// None: `src/ai/system.md`.
    pub system: Option<FileName>,
    /// None: `src/ai/task.md`.
    pub task: Option<FileName>,
}

/// The name of a secret that the operator stores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret {
    pub name: String,
    /// The variable `<env>_FILE` contains the path of the secret's file; default: the name of the secret.
    pub env: String,
    /// Whether a run without the secret is refused.
    pub required: bool,
}

/// The network of a container besides its channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    #[default]
    None,
    Egress,
}

impl AgentManifest {
    /// Reads `agent.yaml`, at most [`super::MANIFEST_SIZE_BYTES_MAX`].
    ///
    /// # Errors
    /// All mistakes in the file; a YAML syntax error comes alone.
    pub fn parse(yaml: &[u8]) -> Result<Self, Vec<Problem>> {
        Reader::read(
            "agent.yaml",
            yaml,
            MANIFEST_SIZE_BYTES_MAX,
            |reader, root| {
                root.and_then(|root| reader.mapping(root, agent))
                    .unwrap_or_default()
            },
        )
    }
}

impl AgentManifest {
    /// The models and budget that the capsule registers: all models that the file names.
    pub fn model_grant(&self) -> Option<ModelGrant> {
        let named = self.models.values();
        let named = named.map(|model| format!("{}/{}", model.provider, model.model));
        let referred = self.model.iter().chain(&self.fallback);
        let referred = referred.filter(|reference| !self.models.contains_key(*reference));
        let referred = referred.map(|reference| match reference.find(['/', ':']) {
            Some(at) => format!("{}/{}", &reference[..at], &reference[at + 1..]),
            None => reference.clone(),
        });
        let names: BTreeSet<String> = named.chain(referred).collect();
        if names.is_empty() {
            return None;
        }
        Some(ModelGrant {
            names: names.into_iter().collect(),
            budget: Budget {
                tokens_max: self.limits.total_tokens_max,
                cost_max: self.limits.cost_usd_max.and_then(Cost::from_dollars),
            },
        })
    }
}

fn agent(reader: &mut Reader, mapping: &mut Mapping) -> AgentManifest {
    version(reader, mapping);
    let resources = reader.field(mapping, "resources", |reader, node| {
        reader.mapping(node, resources)
    });
    let (resources, network) = resources.unwrap_or_default();
    AgentManifest {
        name: reader.field(mapping, "name", |reader, node| {
            reader.parsed(node, CapsuleName::parse)
        }),
        title: reader.field(mapping, "title", Reader::text),
        description: reader.field(mapping, "description", Reader::text),
        aliases: texts(reader, mapping, "aliases"),
        model: reader
            .field(mapping, "model", Reader::text)
            .filter(|model| model != "none"),
        models: reader
            .field(mapping, "models", |reader, node| reader.table(node, model))
            .unwrap_or_default(),
        fallback: texts(reader, mapping, "fallback"),
        settings: all_settings(reader, mapping),
        output_mode: reader
            .field(mapping, "output_mode", |reader, node| {
                reader.choice(node, &OUTPUT_MODES)
            })
            .unwrap_or_default(),
        retries: part(reader, mapping, "retries", retries),
        limits: part(reader, mapping, "limits", limits),
        prompts: part(reader, mapping, "prompts", prompts),
        secrets: reader
            .field(mapping, "secrets", secrets)
            .unwrap_or_default(),
        egress: reader
            .field(mapping, "egress", egress_rules)
            .unwrap_or_default(),
        env: reader
            .field(mapping, "env", environment)
            .unwrap_or_default(),
        resources,
        placement: part(reader, mapping, "placement", placement),
        network,
        capture_content: part(reader, mapping, "telemetry", |reader, mapping| {
            reader
                .field(mapping, "capture_content", Reader::boolean)
                .unwrap_or_default()
        }),
    }
}

const OUTPUT_MODES: [(&str, OutputMode); 3] = [
    ("tool", OutputMode::Tool),
    ("native", OutputMode::Native),
    ("prompted", OutputMode::Prompted),
];

fn retries(reader: &mut Reader, mapping: &mut Mapping) -> Retries {
    let default = Retries::default();
    Retries {
        model: count(reader, mapping, "model").unwrap_or(default.model),
        tool: count(reader, mapping, "tool").unwrap_or(default.tool),
        output: count(reader, mapping, "output").unwrap_or(default.output),
    }
}

fn limits(reader: &mut Reader, mapping: &mut Mapping) -> Limits {
    let default = Limits::default();
    Limits {
        turns_max: count(reader, mapping, "max_turns").unwrap_or(default.turns_max),
        tool_calls_max: count(reader, mapping, "max_tool_calls").unwrap_or(default.tool_calls_max),
        total_tokens_max: count(reader, mapping, "max_total_tokens"),
        output_tokens_max: count(reader, mapping, "max_output_tokens"),
        cost_usd_max: reader.field(mapping, "max_cost_usd", |reader, node| {
            reader.number(node, 0.0..=1e6)
        }),
        timeout_seconds: timeout(reader, mapping),
    }
}

fn prompts(reader: &mut Reader, mapping: &mut Mapping) -> Prompts {
    let file = |reader: &mut Reader, node| reader.parsed(node, FileName::parse);
    Prompts {
        system: reader.field(mapping, "system", file),
        task: reader.field(mapping, "task", file),
    }
}

/// Maximum secrets of a capsule: one has a handful.
const SECRETS_MAX: usize = 32;

fn secrets(reader: &mut Reader, node: Node) -> Option<Vec<Secret>> {
    let mut taken = BTreeSet::new();
    bounded(reader, node, SECRETS_MAX, |reader, node| {
        let place = node.place;
        let secret = secret(reader, node)?;
        // Two secrets of one name would share a file; two of one variable would conflict.
        for (what, text) in [("name", &secret.name), ("env", &secret.env)] {
            if !taken.insert((what, text.clone())) {
                reader.problem_at(place, format!("the {what} {} is given twice", quoted(text)));
            }
        }
        Some(secret)
    })
}

fn egress_rules(reader: &mut Reader, node: Node) -> Option<Vec<egress::Rule>> {
    bounded(reader, node, egress::RULES_MAX, |reader, node| {
        reader.parsed(node, str::parse)
    })
}

fn bounded<T>(
    reader: &mut Reader,
    node: Node,
    items_max: usize,
    read: impl FnMut(&mut Reader, Node) -> Option<T>,
) -> Option<Vec<T>> {
    let place = node.place;
    let items = reader.list(node, read)?;
    if items.len() > items_max {
        let text = format!("{} items; expected at most {items_max}", items.len());
        reader.problem_at(place, text);
    }
    Some(items)
}

fn secret(reader: &mut Reader, node: Node) -> Option<Secret> {
    if node.is_text() {
        let name = reader.parsed(node, secret_name)?;
        return Some(Secret {
            env: name.clone(),
            name,
            required: true,
        });
    }
    reader.mapping(node, |reader, mapping| {
        let read_name = |reader: &mut Reader, node| reader.parsed(node, secret_name);
        let name = reader.required(mapping, "name", read_name);
        let env = reader.field(mapping, "env", read_name);
        let required = reader
            .field(mapping, "required", Reader::boolean)
            .unwrap_or(true);
        let name = name?;
        Some(Secret {
            env: env.unwrap_or_else(|| name.clone()),
            name,
            required,
        })
    })?
}

/// Whether `text` can name a secret: 1 to 64 letters, digits, `_`, `-` and `.`, a letter or `_` first.
pub fn is_secret_name(text: &str) -> bool {
    text.len() <= 64
        && text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
}

/// The name of a secret or of a variable. The message does not repeat a text that resembles a key.
pub(crate) fn secret_name(text: &str) -> Result<String, String> {
    if looks_like_key(text) {
        return Err(
            "this looks like a key; expected the name of a secret, whose value only the operator stores".to_owned(),
        );
    }
    if is_secret_name(text) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "invalid secret name {}; expected a name such as OPENAI_API_KEY",
            quoted(text)
        ))
    }
}

/// Maximum bytes of all names and values: the events of each run contain them.
const ENVIRONMENT_BYTES_MAX: usize = 4 * 1024;

/// Environment variables, none of them with a key as its value.
pub(crate) fn environment(reader: &mut Reader, node: Node) -> Option<BTreeMap<String, String>> {
    let place = node.place;
    let variables = reader.table(node, env_value)?;
    for name in variables.keys().filter(|name| !is_variable(name)) {
        let text = format!(
            "invalid variable name {}; expected letters, digits and _, not starting with a digit",
            quoted(name)
        );
        reader.problem_at(place, text);
    }
    let size_bytes: usize = variables
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    if size_bytes > ENVIRONMENT_BYTES_MAX {
        let text = format!("{size_bytes} bytes; expected at most {ENVIRONMENT_BYTES_MAX}");
        reader.problem_at(place, text);
    }
    Some(variables)
}

fn is_variable(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    name.bytes().next().is_some_and(is_letter)
        && name
            .bytes()
            .all(|byte| is_letter(byte) || byte.is_ascii_digit())
}

fn env_value(reader: &mut Reader, node: Node) -> Option<String> {
    if !node.is_text() {
        return reader.plain(node);
    }
    reader.parsed(node, |text| {
        if looks_like_key(text) {
            Err("this looks like a key; expected the name of a secret under \"secrets\"")
        } else {
            Ok(text.to_owned())
        }
    })
}

/// Whether `text` has the prefix and the length of a well-known access key.
pub fn looks_like_key(text: &str) -> bool {
    text.len() >= 16 && KEY_PREFIXES.iter().any(|prefix| text.starts_with(prefix))
}

fn resources(reader: &mut Reader, mapping: &mut Mapping) -> (Resources, Network) {
    let default = Resources::default();
    let networks = [("none", Network::None), ("egress", Network::Egress)];
    let resources = Resources {
        cpu_millis: reader
            .field(mapping, "cpus", cpu_millis)
            .unwrap_or(default.cpu_millis),
        memory_bytes: reader
            .field(mapping, "memory", memory)
            .unwrap_or(default.memory_bytes),
        pids: reader
            .field(mapping, "pids", |reader, node| {
                reader.integer(node, 1..=PIDS_MAX)
            })
            .unwrap_or(default.pids),
        timeout_seconds: timeout(reader, mapping).unwrap_or(default.timeout_seconds),
        ..default
    };
    let network = reader.field(mapping, "network", |reader, node| {
        reader.choice(node, &networks)
    });
    (resources, network.unwrap_or_default())
}

fn placement(reader: &mut Reader, mapping: &mut Mapping) -> Requirements {
    let require = reader.field(mapping, "require", |reader, node| {
        bounded(reader, node, REQUIREMENTS_MAX, |reader, node| {
            reader.parsed(node, str::parse)
        })
    });
    Requirements {
        attributes: require.unwrap_or_default().into_iter().collect(),
        devices: reader
            .field(mapping, "devices", devices)
            .unwrap_or_default(),
        size: None,
    }
}

fn devices(reader: &mut Reader, node: Node) -> Option<BTreeMap<Name, u16>> {
    let place = node.place;
    let counts = reader.table(node, |reader, node| {
        reader.integer(node, 1..=DEVICES_MAX.into())
    })?;
    if counts.len() > DEVICE_KINDS_MAX {
        let text = format!(
            "{} kinds; expected at most {DEVICE_KINDS_MAX}",
            counts.len()
        );
        reader.problem_at(place, text);
    }
    let mut devices = BTreeMap::new();
    for (name, count) in counts {
        match name.parse() {
            Ok(name) => drop(devices.insert(name, count)),
            Err(error) => reader.problem_at(place, format!("{error}")),
        }
    }
    Some(devices)
}

fn cpu_millis(reader: &mut Reader, node: Node) -> Option<u32> {
    let cpus = reader.number(node, CPUS_MIN..=CPUS_MAX)?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "from 10 to 1,024,000"
    )]
    let millis = (cpus * 1_000.0).round() as u32;
    Some(millis)
}

fn memory(reader: &mut Reader, node: Node) -> Option<u64> {
    // A bare number is a number of bytes, as in Docker.
    let bytes = |text: &str| {
        memory_bytes(text).ok_or_else(|| {
            format!(
                "invalid amount of memory {}; expected at least 6m, such as 512m or 2g",
                quoted(text)
            )
        })
    };
    if node.is_text() {
        return reader.parsed(node, bytes);
    }
    let minimum = i64::try_from(MEMORY_BYTES_MIN).unwrap_or(i64::MAX);
    reader.integer(node, minimum..=i64::MAX)
}

/// `2g`, `512M`, `2GiB`: units are powers of 1,024, as in Docker.
fn memory_bytes(text: &str) -> Option<u64> {
    let lower = text.trim().to_ascii_lowercase();
    let digits_end = lower.find(|character: char| !character.is_ascii_digit());
    let (digits, unit) = lower.split_at(digits_end.unwrap_or(lower.len()));
    let shift = match unit {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    let bytes = digits.parse::<u64>().ok()?.checked_mul(1 << shift)?;
    (bytes >= MEMORY_BYTES_MIN).then_some(bytes)
}
