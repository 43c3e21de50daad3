//! A capsule as its directory has it, checked.

use std::fs;
use std::path::{Path, PathBuf};

use aod_domain::manifest::{AgentManifest, CapsuleName, Registered, ToolsManifest, resolve, slug};

use super::validate::{refuse, validate};
use crate::failure::Failure;

/// A directory that follows the standard.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) directory: PathBuf,
    /// As `agent.yaml` says, else as the directory is called.
    pub(crate) name: CapsuleName,
    pub(crate) agent: AgentManifest,
    pub(crate) tools: ToolsManifest,
    pub(crate) schema_json: Vec<u8>,
    pub(crate) agent_yaml: Option<Vec<u8>>,
    pub(crate) tools_yaml: Option<Vec<u8>>,
}

impl Source {
    /// Reads `directory`.
    ///
    /// # Errors
    /// All that is wrong with it, each with its place.
    pub(crate) fn read(directory: &Path) -> Result<Self, Failure> {
        refuse(&validate(directory)?)?;
        let unreadable = |error: std::io::Error| {
            Failure::usage(format!("{} cannot be read", directory.display())).because(&error)
        };
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
            return Err(Failure::usage(format!(
                "{} has changed while it was read",
                directory.display()
            )));
        };
        let name = agent.name.clone().or_else(|| name_of(directory));
        let name = name.expect("validation asks for a name");
        Ok(Self {
            directory: directory.to_owned(),
            name,
            agent,
            tools,
            schema_json,
            agent_yaml,
            tools_yaml,
        })
    }

    /// Whom it may call, as its `tools.yaml` says it.
    pub(crate) fn targets(&self) -> impl Iterator<Item = &str> {
        self.tools
            .capsules
            .iter()
            .map(|grant| grant.target.as_str())
    }

    /// All that callers may call it by.
    fn words(&self) -> impl Iterator<Item = &str> {
        let agent = &self.agent;
        let others = agent.title.iter().chain(&agent.aliases);
        std::iter::once(self.name.as_str()).chain(others.map(String::as_str))
    }

    /// A word that means both: gateways refuse to register the second one, too.
    fn shared_word<'a>(&'a self, other: &Self) -> Option<&'a str> {
        self.words()
            .find(|word| other.words().any(|it| it == *word))
    }

    /// How it is called.
    pub(crate) fn called(&self) -> Registered<'_> {
        Registered {
            name: &self.name,
            title: self.agent.title.as_deref(),
            aliases: &self.agent.aliases,
        }
    }
}

/// The name that follows from a directory's, also of `.` and the like.
pub(crate) fn name_of(directory: &Path) -> Option<CapsuleName> {
    let path = directory.canonicalize().ok()?;
    slug(&path.file_name()?.to_string_lossy())
}

/// Capsules with those that they may call, as far as their directories are known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Family {
    /// Those that were asked for, then those that they lead to.
    pub(crate) members: Vec<Source>,
    /// Who may call whom of whom there is no directory.
    pub(crate) unknown: Vec<(CapsuleName, String)>,
}

impl Family {
    /// Reads `directories`, and all that may be called from there: found among them, among `with`,
    /// and beside the one that may call it.
    pub(crate) fn gather(directories: &[PathBuf], with: &[PathBuf]) -> Result<Self, Failure> {
        let mut family = Self::default();
        for directory in directories {
            family.add(Source::read(directory)?)?;
        }
        let mut others = Vec::new();
        for directory in with {
            others.push(Source::read(directory)?);
        }
        let mut index = 0;
        while let Some(caller) = family.members.get(index).cloned() {
            for target in caller.targets() {
                family.find(&caller, target, &others)?;
            }
            index += 1;
        }
        Ok(family)
    }

    /// The member that `target` means.
    pub(crate) fn get(&self, target: &str) -> Option<&Source> {
        let name = resolve(target, self.members.iter().map(Source::called)).ok()?;
        self.members.iter().find(|source| source.name == *name)
    }

    fn find(&mut self, caller: &Source, target: &str, others: &[Source]) -> Result<(), Failure> {
        if self.get(target).is_some() {
            return Ok(());
        }
        let named = resolve(target, others.iter().map(Source::called));
        if let Ok(name) = named {
            let found = others.iter().find(|source| source.name == *name);
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

    fn add(&mut self, source: Source) -> Result<(), Failure> {
        for other in &self.members {
            if let Some(word) = source.shared_word(other) {
                return Err(Failure::usage(format!(
                    "{} and {} are both called {word:?}",
                    other.directory.display(),
                    source.directory.display(),
                )));
            }
        }
        self.members.push(source);
        Ok(())
    }
}

/// The directory beside `directory` whose capsule `target` means.
pub(super) fn beside(directory: &Path, target: &str) -> Option<PathBuf> {
    let path = directory.canonicalize().ok()?;
    let mut found: Vec<(PathBuf, CapsuleName, AgentManifest)> = fs::read_dir(path.parent()?)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.join("schema.json").is_file() && path.join("Dockerfile").is_file())
        .filter_map(|path| {
            // One that cannot be read is another capsule's business, until it is meant.
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
mod tests {
    use super::*;

    fn write(root: &Path, name: &str, agent: &str, tools: &str) -> PathBuf {
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
    fn all_that_may_be_called_are_found_beside_or_where_it_is_said() {
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
    fn a_word_means_one_capsule() {
        let root = tempfile::tempdir().unwrap();
        let one = write(root.path(), "one", "aliases: [two]\n", "");
        let two = write(root.path(), "two", "", "");
        let failure = Family::gather(&[one, two], &[]).unwrap_err().render();
        assert!(failure.ends_with("are both called \"two\""), "{failure}");
    }
}
