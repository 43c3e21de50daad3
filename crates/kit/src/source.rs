//! A capsule, read and validated from its directory; and the capsules that it may call.

use std::fs;
use std::path::{Path, PathBuf};

use aod_domain::manifest::{AgentManifest, CapsuleName, Registered, ToolsManifest, resolve, slug};

use super::Error;
use super::validate::{refuse, validate};

/// A valid capsule directory.
#[derive(Clone, Debug)]
pub struct Source {
    /// As given.
    pub directory: PathBuf,
    /// From `agent.yaml`, else from the name of the directory.
    pub name: CapsuleName,
    /// A missing manifest counts as an empty one.
    pub agent: AgentManifest,
    pub tools: ToolsManifest,
    /// The bytes of its files; none for a missing file.
    pub schema_json: Vec<u8>,
    pub agent_yaml: Option<Vec<u8>>,
    pub tools_yaml: Option<Vec<u8>>,
    /// For a task.
    pub workflow_yaml: Option<Vec<u8>>,
}

impl Source {
    /// Reads `directory`.
    ///
    /// # Errors
    /// All errors in it, each with its place.
    pub fn read(directory: &Path) -> Result<Self, Error> {
        refuse(&validate(directory)?)?;
        let unreadable = |source| Error::unreadable(directory, source);
        let optional = |name: &str| match fs::read(directory.join(name)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unreadable(error)),
        };
        let schema_json = fs::read(directory.join("schema.json")).map_err(unreadable)?;
        let (agent_yaml, tools_yaml) = (optional("agent.yaml")?, optional("tools.yaml")?);
        let agent = AgentManifest::parse(agent_yaml.as_deref().unwrap_or_default());
        let tools = ToolsManifest::parse(tools_yaml.as_deref().unwrap_or_default());
        let (Ok(agent), Ok(tools)) = (agent, tools) else {
            return Err(Error::refused(format!(
                "{} changed while `aod` read it; run the command again",
                directory.display()
            )));
        };
        let name = agent.name.clone().or_else(|| name_of(directory));
        let name = name.expect("validation requires a name");
        Ok(Self {
            directory: directory.to_owned(),
            name,
            agent,
            tools,
            schema_json,
            agent_yaml,
            tools_yaml,
            workflow_yaml: optional("workflow.yaml")?,
        })
    }

    /// The callees that its `tools.yaml` names.
    pub fn targets(&self) -> impl Iterator<Item = &str> {
        let grants = self.tools.capsules.iter();
        grants.map(|grant| grant.target.as_str())
    }

    /// Its name, title and aliases: callers may use any of them.
    fn words(&self) -> impl Iterator<Item = &str> {
        let agent = &self.agent;
        let more = agent.title.iter().chain(&agent.aliases);
        std::iter::once(self.name.as_str()).chain(more.map(String::as_str))
    }

    /// A word that names both capsules. A gateway would reject the second registration.
    fn shared_word<'a>(&'a self, other: &Self) -> Option<&'a str> {
        self.words()
            .find(|word| other.words().any(|it| it == *word))
    }

    /// Name, title and aliases, for [`resolve`].
    pub(crate) fn called(&self) -> Registered<'_> {
        Registered {
            name: &self.name,
            title: self.agent.title.as_deref(),
            aliases: &self.agent.aliases,
        }
    }
}

/// The capsule name that follows from the name of a directory, also for `.` and `..`.
fn name_of(directory: &Path) -> Option<CapsuleName> {
    let path = directory.canonicalize().ok()?;
    slug(&path.file_name()?.to_string_lossy())
}

/// Capsules, and the capsules that they may call, directly or indirectly.
#[derive(Clone, Debug, Default)]
pub struct Family {
    /// The requested capsules, then the capsules that they may call.
    pub members: Vec<Source>,
    /// Caller and target, for each callee without a directory.
    pub unknown: Vec<(CapsuleName, String)>,
}

impl Family {
    /// Reads `directories` and all callees. Finds a callee in `directories`, in `with`, or in a directory beside
    /// its caller.
    pub fn gather(directories: &[PathBuf], with: &[PathBuf]) -> Result<Self, Error> {
        let mut family = Self::default();
        for directory in directories {
            family.add(Source::read(directory)?)?;
        }
        let mut given = Vec::new();
        for directory in with {
            given.push(Source::read(directory)?);
        }
        let mut index = 0;
        while let Some(caller) = family.members.get(index).cloned() {
            for target in caller.targets() {
                family.find(&caller, target, &given)?;
            }
            index += 1;
        }
        Ok(family)
    }

    /// The member that `target` names.
    pub fn get(&self, target: &str) -> Option<&Source> {
        let name = resolve(target, self.members.iter().map(Source::called)).ok()?;
        self.members.iter().find(|source| source.name == *name)
    }

    fn find(&mut self, caller: &Source, target: &str, given: &[Source]) -> Result<(), Error> {
        if self.get(target).is_some() {
            return Ok(());
        }
        let named = resolve(target, given.iter().map(Source::called));
        if let Ok(name) = named {
            let found = given.iter().find(|source| source.name == *name);
            return found.map_or(Ok(()), |source| self.add(source.clone()));
        }
        match beside(&caller.directory, target) {
            Some(directory) => self.add(Source::read(&directory)?),
            None => {
                self.unknown.push((caller.name.clone(), target.to_owned()));
                Ok(())
            }
        }
    }

    fn add(&mut self, source: Source) -> Result<(), Error> {
        for other in &self.members {
            if let Some(word) = source.shared_word(other) {
                return Err(Error::refused(format!(
                    "{} and {} both use the name {word:?}; rename one of them",
                    other.directory.display(),
                    source.directory.display(),
                )));
            }
        }
        self.members.push(source);
        Ok(())
    }
}

/// The directory beside `directory` that contains the capsule `target`.
pub(super) fn beside(directory: &Path, target: &str) -> Option<PathBuf> {
    let path = directory.canonicalize().ok()?;
    let mut found: Vec<(PathBuf, CapsuleName, AgentManifest)> = fs::read_dir(path.parent()?)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.join("schema.json").is_file() && path.join("Dockerfile").is_file())
        .filter_map(|path| {
            // An unreadable manifest only matters if it belongs to the target.
            let yaml = fs::read(path.join("agent.yaml")).unwrap_or_default();
            let agent = AgentManifest::parse(&yaml).unwrap_or_default();
            let name = agent.name.clone().or_else(|| name_of(&path))?;
            Some((path, name, agent))
        })
        .collect();
    found.sort_by(|one, other| one.0.cmp(&other.0));
    let called = found.iter().map(|(_, name, agent)| Registered {
        name,
        title: agent.title.as_deref(),
        aliases: &agent.aliases,
    });
    let name = resolve(target, called).ok()?.clone();
    found
        .into_iter()
        .find(|(_, other, _)| *other == name)
        .map(|(path, _, _)| path)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Writes a valid capsule; returns its directory.
    pub(crate) fn write(root: &Path, name: &str, agent: &str, tools: &str) -> PathBuf {
        let directory = root.join(name);
        fs::create_dir_all(&directory).unwrap();
        let files = [
            ("Dockerfile", "FROM scratch\nCMD x\n"),
            ("schema.json", r#"{"input": {}, "output": {}}"#),
            ("agent.yaml", agent),
            ("tools.yaml", tools),
        ];
        for (file, text) in files {
            fs::write(directory.join(file), text).unwrap();
        }
        directory
    }

    fn names(family: &Family) -> Vec<&str> {
        let members = family.members.iter();
        members.map(|source| source.name.as_str()).collect()
    }

    #[test]
    fn family_finds_callees_beside_callers_and_in_given_directories() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let survey = write(
            root,
            "survey",
            "",
            "capsules: [Chart Maker, report, nobody]\n",
        );
        write(root, "some-chart", "name: chart\ntitle: Chart Maker\n", "");
        write(root, "unrelated", "nme: broken\n", "");
        let report = write(root, "elsewhere/report", "", "capsules: [chart, fonts]\n");
        write(root, "elsewhere/fonts", "", "capsules: [report]\n");
        let family = Family::gather(std::slice::from_ref(&survey), &[report]).unwrap();
        assert_eq!(names(&family), ["survey", "chart", "report", "fonts"]);
        let unknown = family.unknown.iter().map(|(_, target)| target.as_str());
        assert_eq!(unknown.collect::<Vec<_>>(), ["nobody"]);
        assert_eq!(
            family.get("Chart Maker").map(|it| it.name.as_str()),
            Some("chart")
        );
    }

    #[test]
    fn family_rejects_two_capsules_with_the_same_name() {
        let root = tempfile::tempdir().unwrap();
        let one = write(root.path(), "one", "aliases: [two]\n", "");
        let two = write(root.path(), "two", "", "");
        let error = Family::gather(&[one, two], &[]).unwrap_err().to_string();
        assert!(error.contains("both use the name \"two\""), "{error}");
    }
}
