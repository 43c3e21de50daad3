//! Placement: the requirements of a run, the properties of a node, and why a node cannot run it.
//!
//! Runs without requirements wait in the queue of their pool. Runs with requirements wait in a queue named by all their
//! requirements; only nodes that meet them take launches from there, so no launch travels from node to node.

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
use crate::contract::canonical;
use crate::digest::Digest;
use crate::resources::Resources;
use crate::subject::Pool;

/// How long gateways assume that nodes take from a queue after a request to do so, in seconds. Then gateways repeat the
/// request before they store another launch; nodes continue for twice that time.
pub const ASK_AGAIN_SECONDS: u64 = 300;

/// Maximum requirements of one run, and maximum kinds of devices: a capsule has a handful, and each launch contains
/// them.
pub const REQUIREMENTS_MAX: usize = 16;
pub const DEVICE_KINDS_MAX: usize = 8;

/// Maximum devices of one kind: more than one machine has.
pub const DEVICES_MAX: u16 = 64;

/// Prefix of the names of queues for requirements; pools of operators cannot start with it.
const QUEUE_PREFIX: &str = "needs-";

/// Hexadecimal digits of the hash in such a name: 128 bits.
const QUEUE_DIGITS: usize = 32;

/// The requirements of a run for its node in addition to the pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Requirements {
    /// The node must have all of them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub attributes: BTreeSet<Requirement>,
    /// The number of devices of each kind; the run holds them exclusively until it ends.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<Name, u16>,
    /// The size of its container; only set if some nodes of its pool are large enough and some are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
}

/// The maximum size of a container.
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

    /// Combines both sets of requirements; of devices, the larger number.
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

    /// Whether the number of requirements is within the limit of a run.
    pub fn are_few(&self) -> bool {
        self.attributes.len() <= REQUIREMENTS_MAX && self.devices.len() <= DEVICE_KINDS_MAX
    }

    /// The queue of a run that requires this and `pool`: the pool's own queue without other requirements.
    pub fn queue(&self, pool: &Pool) -> Pool {
        if self.is_nothing() {
            return pool.clone();
        }
        let all = serde_json::json!({"pool": pool, "requirements": self});
        let hash = Digest::of(canonical(&all)).to_string();
        let digits: String = hash.chars().take(QUEUE_DIGITS).collect();
        let name = format!("{QUEUE_PREFIX}{digits}");
        name.parse().expect("a prefix and digits are a pool")
    }
}

/// The events about `queue`, as a filter of the log.
pub fn said_of(queue: &Pool) -> String {
    crate::subject::placement_event(queue, "queue_opened").to_string()
}

/// Whether `queue` is the queue of a set of requirements.
pub fn is_for_requirements(queue: &Pool) -> bool {
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

/// Thousandths of a processor as a decimal number.
pub(crate) fn cpus(millis: u32) -> String {
    (f64::from(millis) / 1_000.0).to_string()
}

/// Bytes in GiB, to a tenth.
#[expect(clippy::cast_precision_loss, reason = "shown to a tenth")]
pub(crate) fn gibibytes(bytes: u64) -> String {
    let tenths = (bytes as f64 / f64::from(1 << 30) * 10.0).round() / 10.0;
    format!("{tenths} GiB")
}

/// Whether a node with `pools` and `equipment` can take a run that requires `pool` and `requirements`, regardless of
/// its current load.
///
/// # Errors
/// Every reason why it cannot.
pub fn fits(
    pool: &Pool,
    requirements: &Requirements,
    pools: &[Pool],
    equipment: &Equipment,
) -> Result<(), Vec<Refusal>> {
    let missing = (!pools.contains(pool)).then(|| Refusal::NoPool(pool.clone()));
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

/// The size that a run of `resources` requires of a node of `pool`: none if all `nodes` of the pool are large enough,
/// or none is, because the size would then only change the queue.
pub fn size_that_matters<'a>(
    pool: &Pool,
    resources: &Resources,
    nodes: impl IntoIterator<Item = (&'a [Pool], &'a Equipment)>,
) -> Option<Size> {
    let size = Size::from(resources);
    let sized = Requirements {
        size: Some(size),
        ..Requirements::default()
    };
    // A node of an earlier version does not announce its size, and takes only from the queues of pools.
    let of_pool = nodes
        .into_iter()
        .filter(|(pools, equipment)| pools.contains(pool) && equipment.memory_bytes.is_some());
    let held: Vec<bool> = of_pool
        .map(|(pools, equipment)| fits(pool, &sized, pools, equipment).is_ok())
        .collect();
    (held.contains(&true) && held.contains(&false)).then_some(size)
}
