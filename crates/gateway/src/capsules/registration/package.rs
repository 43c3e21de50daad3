//! Reads a packed capsule directory: a tar file, without unpacking it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::Path;

use aod_api::problem::ProblemItem;
use aod_domain::contract::{Contract, SCHEMA_SIZE_BYTES_MAX};
use aod_domain::file_name::FileName;
use aod_domain::manifest::{AgentManifest, MANIFEST_SIZE_BYTES_MAX, ToolsManifest};
use aod_domain::task::{self, WORKFLOW_SIZE_BYTES_MAX};
use aod_domain::yaml;
use bytes::Bytes;
use tar::{Archive, Entry, EntryType};

/// Maximum size of a package, in bytes: sources, prompts and wheels; data belongs in files of runs.
pub(crate) const PACKAGE_BYTES_MAX: u64 = 256 << 20;

/// Maximum number of entries in a package.
const ENTRIES_MAX: usize = 20_000;

/// Maximum size of the long name or the attributes of an entry, in bytes. Linux accepts paths of 4 KiB.
const EXTENSION_BYTES_MAX: u64 = 64 << 10;

/// Maximum number of problems in one answer.
const PROBLEMS_MAX: usize = 50;

const DOCKERFILE: &str = "Dockerfile";

/// The content of a package.
#[derive(Clone, Debug)]
pub(crate) struct Package {
    pub(crate) schema_json: Bytes,
    pub(crate) agent_yaml: Option<Bytes>,
    pub(crate) tools_yaml: Option<Bytes>,
    /// For a task.
    pub(crate) workflow_yaml: Option<Bytes>,
    pub(crate) agent: AgentManifest,
    pub(crate) tools: ToolsManifest,
}

/// The files that are read, with their maximum sizes; of other files, only the names are checked.
const READ: [(&str, usize); 4] = [
    ("schema.json", SCHEMA_SIZE_BYTES_MAX),
    ("agent.yaml", MANIFEST_SIZE_BYTES_MAX),
    ("tools.yaml", MANIFEST_SIZE_BYTES_MAX),
    ("workflow.yaml", WORKFLOW_SIZE_BYTES_MAX),
];

impl Package {
    /// Reads the tar file at `path`.
    ///
    /// # Errors
    /// All problems, each with its file.
    pub(crate) fn read(path: &Path) -> Result<Self, Vec<ProblemItem>> {
        let file = File::open(path).map_err(|error| unreadable(&error))?;
        Self::read_archive(BufReader::new(file))
    }

    /// As [`Package::read`], for an open tar file.
    pub(crate) fn read_archive(archive: impl Read + Seek) -> Result<Self, Vec<ProblemItem>> {
        let mut entries = Entries::default();
        entries.read(archive).map_err(|error| unreadable(&error))?;
        entries.finish()
    }
}

fn unreadable(error: &io::Error) -> Vec<ProblemItem> {
    let message = format!("cannot read the tar file: {error}");
    vec![ProblemItem::new("", message)]
}

/// The entries found so far.
#[derive(Debug, Default)]
struct Entries {
    files: BTreeMap<&'static str, Bytes>,
    has_dockerfile: bool,
    problems: Vec<ProblemItem>,
}

impl Entries {
    fn read(&mut self, mut archive: impl Read + Seek) -> io::Result<()> {
        self.check_headers(&mut archive)?;
        if !self.problems.is_empty() {
            return Ok(());
        }
        archive.rewind()?;
        for (number, entry) in Archive::new(archive).entries()?.enumerate() {
            if number >= ENTRIES_MAX {
                self.problem("", format!("more than {ENTRIES_MAX} entries, the maximum"));
                return Ok(());
            }
            self.entry(entry?)?;
        }
        Ok(())
    }

    /// Checks what the reader of entries holds in memory, without reading it: long names, attributes, maps of holes.
    fn check_headers(&mut self, archive: impl Read + Seek) -> io::Result<()> {
        let mut archive = Archive::new(archive);
        for entry in archive.entries_with_seek()?.raw(true) {
            let entry = entry?;
            let kind = entry.header().entry_type();
            if kind.is_gnu_sparse() {
                let text =
                    "a file with holes found; expected a plain file: pack it without --sparse";
                self.problem("", text.into());
            }
            let size_bytes = entry.size();
            if is_metadata(kind) && size_bytes > EXTENSION_BYTES_MAX {
                let text = format!(
                    "a name or attribute of {size_bytes} bytes found; expected at most {EXTENSION_BYTES_MAX}"
                );
                self.problem("", text);
            }
        }
        Ok(())
    }

    fn entry(&mut self, mut entry: Entry<'_, impl Read>) -> io::Result<()> {
        let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let path = path
            .strip_prefix("./")
            .unwrap_or(&path)
            .trim_end_matches('/')
            .to_owned();
        let kind = entry.header().entry_type();
        if path.is_empty() || path == "." || is_metadata(kind) {
            return Ok(());
        }
        if let Err(rejection) = FileName::parse(&path) {
            self.problem("", rejection.to_string());
            return Ok(());
        }
        match kind {
            EntryType::Regular | EntryType::Continuous => {
                self.has_dockerfile |= path == DOCKERFILE;
                if let Some(&(name, size_max)) = READ.iter().find(|(name, _)| *name == path) {
                    self.keep(name, size_max, &mut entry)?;
                }
            }
            EntryType::Directory => (),
            EntryType::Symlink if is_read(&path) => self.problem(
                &format!("/{path}"),
                "a symbolic link; expected a regular file".into(),
            ),
            EntryType::Symlink => self.check_link(&path, &entry),
            other => self.problem(
                &format!("/{path}"),
                format!("{other:?} found; expected a file, directory or link"),
            ),
        }
        Ok(())
    }

    fn keep(
        &mut self,
        name: &'static str,
        size_max: usize,
        entry: &mut impl Read,
    ) -> io::Result<()> {
        let mut bytes = Vec::new();
        entry.take(size_max as u64 + 1).read_to_end(&mut bytes)?;
        if bytes.len() > size_max {
            self.problem(
                &format!("/{name}"),
                format!("more than {size_max} bytes, the maximum"),
            );
        }
        self.files.insert(name, bytes.into());
        Ok(())
    }

    /// A link must point inside the directory.
    fn check_link(&mut self, path: &str, entry: &Entry<'_, impl Read>) {
        let target = entry.link_name_bytes().unwrap_or_default();
        let target = String::from_utf8_lossy(&target);
        let depth_max = path.split('/').count() - 1;
        let mut depth = depth_max;
        for part in target.split('/') {
            match part {
                "" if target.starts_with('/') => return self.outside(path),
                "" | "." => (),
                ".." if depth == 0 => return self.outside(path),
                ".." => depth -= 1,
                _ => depth += 1,
            }
        }
    }

    fn outside(&mut self, path: &str) {
        self.problem(
            &format!("/{path}"),
            "the link leads out of the directory; expected a target inside it".into(),
        );
    }

    fn problem(&mut self, pointer: &str, message: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(ProblemItem::new(pointer, message));
        }
    }

    fn finish(mut self) -> Result<Package, Vec<ProblemItem>> {
        if !self.has_dockerfile {
            self.problem(
                "/Dockerfile",
                "missing; expected the Dockerfile of the image".into(),
            );
        }
        let agent_yaml = self.files.remove("agent.yaml");
        let tools_yaml = self.files.remove("tools.yaml");
        let agent = AgentManifest::parse(agent_yaml.as_deref().unwrap_or_default());
        let agent = self.manifest(agent);
        let tools = ToolsManifest::parse(tools_yaml.as_deref().unwrap_or_default());
        let tools = self.manifest(tools);
        let workflow_yaml = self.files.remove("workflow.yaml");
        if let Some(yaml) = &workflow_yaml {
            self.manifest(task::read_runnable("workflow.yaml", yaml));
        }
        let schema_json = self.schema();
        match (schema_json, agent, tools) {
            (Some(schema_json), Some(agent), Some(tools)) if self.problems.is_empty() => {
                Ok(Package {
                    schema_json,
                    agent_yaml,
                    tools_yaml,
                    workflow_yaml,
                    agent,
                    tools,
                })
            }
            _ => Err(self.problems),
        }
    }

    fn schema(&mut self) -> Option<Bytes> {
        let Some(bytes) = self.files.remove("schema.json") else {
            self.problem(
                "/schema.json",
                "missing; expected the schemas of input and output".into(),
            );
            return None;
        };
        match Contract::parse(&bytes) {
            Ok(_) => Some(bytes),
            Err(problems) => {
                for problem in &problems {
                    self.problem(
                        &format!("/schema.json#{}", problem.pointer),
                        problem.message.clone(),
                    );
                }
                None
            }
        }
    }

    fn manifest<T>(&mut self, parsed: Result<T, Vec<yaml::Problem>>) -> Option<T> {
        match parsed {
            Ok(manifest) => Some(manifest),
            Err(problems) => {
                for yaml::Problem {
                    file,
                    line,
                    column,
                    message,
                } in problems
                {
                    let pointer = if line == 0 {
                        format!("/{file}")
                    } else {
                        format!("/{file}:{line}:{column}")
                    };
                    self.problem(&pointer, message);
                }
                None
            }
        }
    }
}

/// Whether AOD or Docker reads the file.
fn is_read(path: &str) -> bool {
    path == DOCKERFILE || READ.iter().any(|(name, _)| *name == path)
}

/// Headers of the tar format that name no file.
fn is_metadata(kind: EntryType) -> bool {
    kind.is_pax_global_extensions()
        || kind.is_pax_local_extensions()
        || kind.is_gnu_longname()
        || kind.is_gnu_longlink()
}
