//! The capsule of a task: a directory with the workflow, and a Dockerfile for the sandbox of its steps.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use aod_domain::digest::Hasher;
use aod_domain::manifest::{CapsuleName, slug};
use aod_domain::task::tool::{Catalogue, Credential, Tool};
use aod_domain::task::{Kind, Workflow, schema};
use serde_json::{Value, json};

use crate::Error;

/// The image of a workflow without AI tools.
const IMAGE_DEFAULT: &str = "debian:bookworm-slim";

/// Longest part of the workflow's name in the name of its capsule.
const NAME_LENGTH_MAX: usize = 40;

/// Longest task without a time limit, in seconds. Source: the workflow contract.
const SECONDS_MAX: u32 = 24 * 60 * 60;

/// A task that is to be registered.
#[derive(Clone, Copy, Debug)]
pub struct TaskSource<'a> {
    pub workflow: &'a Workflow,
    /// The file of the workflow.
    pub yaml: &'a [u8],
    pub catalogue: &'a Catalogue,
    /// The base image; none for that of the first tool.
    pub image: Option<&'a str>,
}

impl TaskSource<'_> {
    /// Writes the capsule into an empty directory; returns its name, which follows from its content.
    pub fn write(&self, directory: &Path) -> Result<CapsuleName, Error> {
        let tools = self.tools();
        let dockerfile = self.dockerfile(&tools);
        let schema = text(&schema(self.workflow));
        let mut agent = self.agent(&tools);
        let mut hasher = Hasher::new();
        for part in [&dockerfile, &schema, &text(&agent)] {
            hasher.field(part.as_bytes());
        }
        hasher.field(self.yaml);
        let name = self.name(&hasher.finish().to_string());
        agent["name"] = json!(name.as_str());
        let files = [
            ("Dockerfile", dockerfile.as_bytes()),
            ("agent.yaml", text(&agent).as_bytes()),
            ("schema.json", schema.as_bytes()),
            ("workflow.yaml", self.yaml),
        ]
        .map(|(file, bytes)| (file, bytes.to_vec()));
        for (file, bytes) in files {
            let path = directory.join(file);
            fs::write(&path, bytes).map_err(|source| Error::NotCreated { path, source })?;
        }
        Ok(name)
    }

    /// The tools of the workflow in the order of their first steps.
    fn tools(&self) -> Vec<&Tool> {
        let mut tools: Vec<&Tool> = Vec::new();
        for step in self.workflow.all_steps() {
            let Kind::Agent(agent) = &step.kind else {
                continue;
            };
            let tool = self.catalogue.get(self.workflow.tool_of(agent));
            if let Some(tool) = tool.filter(|tool| !tools.contains(tool)) {
                tools.push(tool);
            }
        }
        tools
    }

    fn name(&self, digest: &str) -> CapsuleName {
        let name = slug(&self.workflow.name);
        let name = name.as_ref().map_or("workflow", CapsuleName::as_str);
        let name = &name[..name.len().min(NAME_LENGTH_MAX)];
        let name = format!("task-{}-{}", name.trim_end_matches('-'), &digest[..8]);
        CapsuleName::parse(&name).expect("parts of names, and a digest")
    }

    fn dockerfile(&self, tools: &[&Tool]) -> String {
        let image = self.image.or(tools.first().map(|tool| tool.image.as_str()));
        let mut text = format!("FROM {}\n", image.unwrap_or(IMAGE_DEFAULT));
        for tool in tools {
            if let Some(install) = &tool.install {
                let program = tool.program();
                let _ = writeln!(
                    text,
                    "RUN command -v {program} >/dev/null || {{ {install}; }}"
                );
            }
        }
        text
    }

    fn agent(&self, tools: &[&Tool]) -> Value {
        let mut models = BTreeSet::new();
        let mut egress = BTreeSet::new();
        let mut secrets = BTreeMap::new();
        for tool in tools {
            match &tool.credential {
                Some(Credential::Proxy { models: named, .. }) => {
                    models.extend(named.iter().map(String::as_str));
                }
                Some(Credential::Secret {
                    variable,
                    egress: hosts,
                }) => {
                    secrets.insert(variable.as_str(), tool.name.as_str());
                    egress.extend(hosts.iter().map(ToString::to_string));
                }
                None => (),
            }
        }
        let mut agent = json!({
            "version": 1,
            "title": self.workflow.name,
            // A home that is not part of the workspace.
            "env": {"HOME": "/tmp", "TMPDIR": "/tmp"},
            "resources": {
                "cpus": 2,
                "memory": "4g",
                "pids": 1024,
                "timeout_s": self.workflow.settings.timeout_seconds.unwrap_or(SECONDS_MAX).min(SECONDS_MAX),
            },
        });
        if let Some(description) = &self.workflow.description {
            agent["description"] = json!(description);
        }
        let mut models = models.into_iter();
        if let Some(first) = models.next() {
            agent["model"] = json!(first);
            agent["fallback"] = json!(models.collect::<Vec<_>>());
        }
        if !egress.is_empty() {
            agent["resources"]["network"] = json!("egress");
            agent["egress"] = json!(egress);
        }
        if !secrets.is_empty() {
            let secrets = secrets.into_keys();
            agent["secrets"] = secrets.map(|name| json!({"name": name})).collect();
        }
        agent
    }
}

fn text(value: &Value) -> String {
    format!("{value:#}\n")
}

#[cfg(test)]
mod tests {
    use aod_domain::task::read;

    use super::*;
    use crate::Source;

    /// The files of the capsule of a workflow.
    fn written(yaml: &str) -> (CapsuleName, String, Source) {
        let directory = tempfile::tempdir().expect("a directory");
        let outcome = read("w.yaml", yaml.as_bytes(), false);
        let workflow = outcome.value.expect("a workflow");
        let catalogue = Catalogue::default();
        let source = TaskSource {
            workflow: &workflow,
            yaml: yaml.as_bytes(),
            catalogue: &catalogue,
            image: None,
        };
        let name = source.write(directory.path()).expect("files");
        let dockerfile = fs::read_to_string(directory.path().join("Dockerfile"));
        let read = Source::read(directory.path()).expect("a valid capsule");
        (name, dockerfile.expect("a text"), read)
    }

    #[test]
    fn capsule_of_a_task_is_valid_and_its_name_follows_from_its_content() {
        let yaml = "name: Fix a Bug!\nsteps: [{id: one, type: command, command: 'true'}]\n";
        let (name, dockerfile, source) = written(yaml);
        assert!(name.as_str().starts_with("task-fix-a-bug-"), "{name}");
        assert_eq!(source.name, name);
        assert!(dockerfile.starts_with("FROM debian:bookworm-slim\n"));
        let other = written(&yaml.replace("'true'", "'false'")).0;
        assert_ne!(name, other);
        assert_eq!(name, written(yaml).0);
    }

    #[test]
    fn tools_are_installed_and_get_what_they_need() {
        let yaml = "
name: w
steps:
  - {id: one, prompt: do it}
  - {id: two, prompt: do it, tool: codex}
";
        let (_, dockerfile, source) = written(yaml);
        let expected = "FROM node:22-slim\nRUN command -v claude >/dev/null || { ";
        assert!(dockerfile.starts_with(expected), "{dockerfile}");
        assert!(dockerfile.contains("RUN command -v codex"), "{dockerfile}");
        let grant = source.agent.model_grant().expect("models");
        assert!(grant.allows("anthropic", "claude-x"), "{grant:?}");
    }
}
