//! What a node is, as its operator says, and which of its devices are free.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::requirement::check_value;
use super::{MalformedRequirement, Name};

/// Attributes of one node, which all its announcements hold.
pub const ATTRIBUTES_MAX: usize = 32;

/// What a node has, whatever it is busy with. An older node says nothing of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Equipment {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<Name, String>,
    /// The devices of each kind.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<Name, usize>,
    /// Thousandths of processors that runs may be promised together; without it they are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_millis: Option<u32>,
    /// Memory of the whole machine; without it, it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

impl Equipment {
    pub fn count(&self, device: &Name) -> usize {
        self.devices.get(device).copied().unwrap_or_default()
    }

    /// Reads an attribute as an operator writes it, `name=value`, or a name alone for one that is just there.
    pub fn read_attribute(text: &str) -> Result<(Name, String), MalformedRequirement> {
        let (name, value) = text.split_once('=').unwrap_or((text, "true"));
        check_value(value)?;
        Ok((name.parse()?, value.to_owned()))
    }
}

/// Devices by their kinds: those of a node, or those that a run has. Each is a file of the host, or only counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Devices(BTreeMap<Name, Vec<Option<String>>>);

impl Devices {
    pub fn new(devices: BTreeMap<Name, Vec<Option<String>>>) -> Self {
        Self(devices)
    }

    pub fn counts(&self) -> BTreeMap<Name, usize> {
        let counts = self.0.iter();
        counts
            .map(|(name, devices)| (name.clone(), devices.len()))
            .collect()
    }

    pub fn has(&self, wanted: &BTreeMap<Name, u16>) -> bool {
        wanted.iter().all(|(name, count)| {
            let free = self.0.get(name).map_or(0, Vec::len);
            free >= usize::from(*count)
        })
    }

    /// Takes so many of each kind out; none if there are not as many.
    pub fn take(&mut self, wanted: &BTreeMap<Name, u16>) -> Option<Self> {
        if !self.has(wanted) {
            return None;
        }
        let mut taken = BTreeMap::new();
        for (name, count) in wanted {
            let free = self.0.get_mut(name)?;
            let rest = free.split_off(usize::from(*count));
            taken.insert(name.clone(), std::mem::replace(free, rest));
        }
        Some(Self(taken))
    }

    /// Puts back what was taken.
    pub fn give_back(&mut self, taken: Self) {
        for (name, devices) in taken.0 {
            self.0.entry(name).or_default().extend(devices);
        }
    }

    /// The files of each kind.
    pub fn files(&self) -> impl Iterator<Item = (&Name, Vec<&str>)> {
        let kinds = self.0.iter();
        kinds.map(|(name, devices)| (name, devices.iter().filter_map(Option::as_deref).collect()))
    }
}
