//! The properties of a node that its operator sets, and its free devices.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::requirement::check_value;
use super::{MalformedRequirement, Name};

/// Maximum attributes of one node: all its announcements contain them.
pub const ATTRIBUTES_MAX: usize = 32;

/// The equipment of a node, regardless of its load. An older node does not announce it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Equipment {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<Name, String>,
    /// The number of devices of each kind.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<Name, usize>,
    /// Maximum CPU reservation of all runs, in thousandths; without it, CPUs are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_millis: Option<u32>,
    /// Memory of the whole machine; none if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

impl Equipment {
    pub fn count(&self, device: &Name) -> usize {
        self.devices.get(device).copied().unwrap_or_default()
    }

    /// Parses an attribute as operators write it: `name=value`, or a name alone for one without a value.
    pub fn read_attribute(text: &str) -> Result<(Name, String), MalformedRequirement> {
        let (name, value) = text.split_once('=').unwrap_or((text, "true"));
        check_value(value)?;
        Ok((name.parse()?, value.to_owned()))
    }
}

/// Devices by their kinds, of a node or of a run. A device is a file of the host, or only counted.
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

    /// Removes the wanted number of each kind; none if there are too few.
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

    /// Returns devices that were taken.
    pub fn give_back(&mut self, taken: Self) {
        for (name, devices) in taken.0 {
            self.0.entry(name).or_default().extend(devices);
        }
    }

    /// The device files of each kind.
    pub fn files(&self) -> impl Iterator<Item = (&Name, Vec<&str>)> {
        let kinds = self.0.iter();
        kinds.map(|(name, devices)| (name, devices.iter().filter_map(Option::as_deref).collect()))
    }
}
