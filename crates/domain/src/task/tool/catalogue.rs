//! The tools by name.

use std::collections::BTreeMap;

use super::{Tool, read};
use crate::yaml::{Outcome, Reader};

/// Largest catalogue, in bytes: one tool takes about 2 KiB.
pub const CATALOGUE_SIZE_BYTES_MAX: usize = 64 * 1024;

/// The tools that AOD knows.
const BUILT_IN: &str = include_str!("catalogue.yaml");

/// The tools that a task can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalogue(BTreeMap<String, Tool>);

impl Default for Catalogue {
    /// The tools that AOD knows.
    fn default() -> Self {
        let outcome = Self::read("catalogue.yaml", BUILT_IN.as_bytes());
        outcome.value.expect("a test reads the catalogue")
    }
}

impl Catalogue {
    /// Reads a catalogue of at most [`CATALOGUE_SIZE_BYTES_MAX`]. `file` names it in problems.
    ///
    /// An unknown key is a warning; an empty file has no tools.
    pub fn read(file: &str, yaml: &[u8]) -> Outcome<Self> {
        let outcome = Reader::outcome(file, yaml, CATALOGUE_SIZE_BYTES_MAX, |reader, root| {
            root.map_or_else(|| Some(BTreeMap::new()), |root| read::tools(reader, root))
        });
        Outcome {
            value: outcome.value.flatten().map(Self),
            problems: outcome.problems,
            warnings: outcome.warnings,
        }
    }

    /// These tools, replaced and extended by `other`.
    #[must_use]
    pub fn with(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    pub fn get(&self, name: &str) -> Option<&Tool> {
        self.0.get(name)
    }

    /// The tools in the order of their names.
    pub fn tools(&self) -> impl Iterator<Item = &Tool> {
        self.0.values()
    }
}
