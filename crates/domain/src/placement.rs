//! Where a run may start: what it requires of a node, what a node is, and why the two do not go together.
//!
//! Runs that require nothing wait in the queue of their label, as ever. Runs that require something wait in a queue
//! of their own, named by all that they require: only nodes that have it take from there, so that no launch travels
//! from node to node until it finds one.

mod event;
mod facts;
mod locality;
mod refusal;
mod requirement;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

pub use self::event::Event;
pub use self::facts::{ATTRIBUTES_MAX, Devices, Equipment};
pub use self::locality::{LOCALITY_BYTES_MIN, Near, Spot, preferred};
pub use self::refusal::Refusal;
pub use self::requirement::{MalformedName, MalformedRequirement, Name, Requirement};
use crate::capsule::Resources;
use crate::contract::canonical;
use crate::digest::Digest;
use crate::subject::Label;

/// How long it is taken for granted that nodes take from a queue after they were asked to, in seconds. Then gateways ask
/// again before they store another launch; nodes go on for twice as long.
pub const ASK_AGAIN_SECONDS: u64 = 300;

/// Requirements of one run, and kinds of devices: a capsule has a handful, and each launch holds them.
pub const REQUIREMENTS_MAX: usize = 16;
pub const DEVICE_KINDS_MAX: usize = 8;

/// Devices of one kind that a run can ask for: more than one machine has.
pub const DEVICES_MAX: u16 = 64;

/// How the names of queues begin that are for more than a label. Operators give no such labels.
const QUEUE_PREFIX: &str = "needs-";

/// Hexadecimal digits of the hash in such a name: 128 bits.
const QUEUE_DIGITS: usize = 32;

/// What a run requires of its node beside a label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Requirements {
    /// All of these.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub attributes: BTreeSet<Requirement>,
    /// So many devices of a kind, which it has alone as long as it lives.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<Name, u16>,
    /// Its container's size; only there where some nodes of its label can hold it and others cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
}

/// How large a container may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Size {
    pub cpu_millis: u32,
    pub memory_bytes: u64,
}

impl From<&Resources> for Size {
    fn from(resources: &Resources) -> Self {
        Self {
            cpu_millis: resources.cpu_millis,
            memory_bytes: resources.memory_bytes,
        }
    }
}

impl Requirements {
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// These and `others`; of devices the larger number.
    #[must_use]
    pub fn and(mut self, others: &Self) -> Self {
        self.attributes.extend(others.attributes.iter().cloned());
        for (name, count) in &others.devices {
            let own = self.devices.entry(name.clone()).or_default();
            *own = (*own).max(*count);
        }
        self.size = self.size.or(others.size);
        self
    }

    /// Whether there are no more of them than a run may have.
    pub fn are_few(&self) -> bool {
        self.attributes.len() <= REQUIREMENTS_MAX && self.devices.len() <= DEVICE_KINDS_MAX
    }

    /// The queue in which a run waits that requires this and `label`: the label's own if it requires nothing else.
    pub fn queue(&self, label: &Label) -> Label {
        if self.is_nothing() {
            return label.clone();
        }
        let all = serde_json::json!({"label": label, "requirements": self});
        let hash = Digest::of(canonical(&all)).to_string();
        let digits: String = hash.chars().take(QUEUE_DIGITS).collect();
        let name = format!("{QUEUE_PREFIX}{digits}");
        name.parse().expect("a prefix and digits are a label")
    }
}

/// What was said of `queue`, as a filter of the log.
pub fn said_of(queue: &Label) -> String {
    crate::subject::placement_event(queue, "asked").to_string()
}

/// Whether `queue` is for more than a label.
pub fn is_for_requirements(queue: &Label) -> bool {
    let digits = queue.as_str().strip_prefix(QUEUE_PREFIX);
    digits.is_some_and(|digits| {
        digits.len() == QUEUE_DIGITS && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}

impl fmt::Display for Requirements {
    /// `zone=eu, gpu_memory>=24, 2 gpu, 8 processors, 64 GiB memory`
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let attributes = self.attributes.iter().map(ToString::to_string);
        let devices = self.devices.iter();
        let devices = devices.map(|(name, count)| format!("{count} {name}"));
        let size = self.size.map(|size| {
            let (cpus, memory) = (cpus(size.cpu_millis), gibibytes(size.memory_bytes));
            format!("{cpus} processors, {memory} memory")
        });
        let all: Vec<String> = attributes.chain(devices).chain(size).collect();
        formatter.write_str(&all.join(", "))
    }
}

/// Thousandths of a processor as people say it.
pub(crate) fn cpus(millis: u32) -> String {
    (f64::from(millis) / 1_000.0).to_string()
}

/// Bytes as people say it, to a tenth.
#[expect(clippy::cast_precision_loss, reason = "shown to a tenth")]
pub(crate) fn gibibytes(bytes: u64) -> String {
    let tenths = (bytes as f64 / f64::from(1 << 30) * 10.0).round() / 10.0;
    format!("{tenths} GiB")
}

/// Whether a node with `labels` and `equipment` can take a run that asks for `label` and `requirements` at all, whatever
/// it is busy with now.
///
/// # Errors
/// Everything that stands against it.
pub fn fits(
    label: &Label,
    requirements: &Requirements,
    labels: &[Label],
    equipment: &Equipment,
) -> Result<(), Vec<Refusal>> {
    let missing = (!labels.contains(label)).then(|| Refusal::NoLabel(label.clone()));
    let attributes = requirements.attributes.iter();
    let attributes = attributes.filter_map(|wanted| {
        let found = equipment.attributes.get(wanted.name());
        let refusal = || Refusal::Attribute {
            wanted: wanted.clone(),
            found: found.cloned(),
        };
        (!wanted.is_met(found.map(String::as_str))).then(refusal)
    });
    let devices = requirements.devices.iter().filter_map(|(name, wanted)| {
        let found = equipment.count(name);
        let refusal = || Refusal::Devices {
            name: name.clone(),
            wanted: *wanted,
            found,
        };
        (found < usize::from(*wanted)).then(refusal)
    });
    let size = requirements.size.iter().flat_map(|size| {
        let cpus = equipment.cpu_millis.filter(|has| *has < size.cpu_millis);
        let memory = equipment
            .memory_bytes
            .filter(|has| *has < size.memory_bytes);
        let cpus = cpus.map(|found| Refusal::Processors {
            wanted_millis: size.cpu_millis,
            found_millis: found,
        });
        let memory = memory.map(|found| Refusal::Memory {
            wanted_bytes: size.memory_bytes,
            found_bytes: found,
        });
        cpus.into_iter().chain(memory)
    });
    let refusals = missing.into_iter().chain(attributes).chain(devices);
    let refusals: Vec<Refusal> = refusals.chain(size).collect();
    if refusals.is_empty() {
        Ok(())
    } else {
        Err(refusals)
    }
}

/// The size that a run of `resources` requires of a node of `label`: none where all `nodes` of the label could hold it,
/// or none could, for then it changes nothing but the queue.
pub fn size_that_matters<'a>(
    label: &Label,
    resources: &Resources,
    nodes: impl IntoIterator<Item = (&'a [Label], &'a Equipment)>,
) -> Option<Size> {
    let size = Size::from(resources);
    let sized = Requirements {
        size: Some(size),
        ..Requirements::default()
    };
    // A node of an earlier version says nothing, and takes from the queues of labels only.
    let of_label = nodes
        .into_iter()
        .filter(|(labels, equipment)| labels.contains(label) && equipment.memory_bytes.is_some());
    let held: Vec<bool> = of_label
        .map(|(labels, equipment)| fits(label, &sized, labels, equipment).is_ok())
        .collect();
    (held.contains(&true) && held.contains(&false)).then_some(size)
}
