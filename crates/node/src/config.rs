//! What an operator decides about a node.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aod_domain::admission::Capacity;
use aod_domain::egress::Permission;
use aod_domain::placement::{Devices, Equipment};
use aod_domain::subject::Label;

use crate::models::ModelSettings;

/// The settings of a node.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the node keeps its id and the directories of its runs; the same path inside and
    /// outside when the node itself runs in a container. Short: sockets below it must fit the 108
    /// bytes of a socket's path.
    pub data: PathBuf,
    /// What runs may ask for. [`Label::any`] is not added by itself.
    pub labels: Vec<Label>,
    pub capacity: Capacity,
    /// What runs may require of this node.
    pub equipment: Equipment,
    /// The devices of its equipment, which runs get one by one.
    pub devices: Devices,
    /// How long a lease lasts without progress; the same in the whole cluster.
    pub lease: Duration,
    /// Between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// Output of one container that is kept, in bytes; the rest is counted.
    pub log_bytes_max: u64,
    /// Time between two looks at how much a capsule has written.
    pub disk_look: Duration,
    /// Room on each of its disks that is kept for trees under way, in bytes; a part of the disk unless given.
    pub disk_reserve: Option<u64>,
    /// How long an image stays that no capsule is registered with any more, after its last use here.
    pub image_keep: Duration,
    /// Who answers for models, and what they cost.
    pub models: Arc<ModelSettings>,
    /// Whether what goes to models and what they answer is kept, for whoever may read artifacts.
    pub keep_model_contents: bool,
    /// Where capsules may connect to, of what they list; nowhere if it is empty.
    pub egress: Vec<Permission>,
    /// The name that people know this host by.
    pub host: String,
}

/// Default of [`Config::log_bytes_max`]: a day of a talkative program, 64 MiB.
pub const LOG_BYTES_MAX_DEFAULT: u64 = 64 << 20;

/// Default of [`Config::disk_look`]. Source: the settled points of the design.
pub const DISK_LOOK_DEFAULT: Duration = Duration::from_millis(200);

/// Default of [`Config::image_keep`]: runs that began with the image before have mostly ended, and
/// one that has not gets it from the artifact store.
pub const IMAGE_KEEP_DEFAULT: Duration = Duration::from_secs(24 * 3_600);

/// Default of [`Config::lease`]. Source: the settled points of the design.
pub const LEASE_DEFAULT: Duration = Duration::from_secs(30);

/// Default of [`Config::grace`]. Source: what `docker stop` grants.
pub const GRACE_DEFAULT: Duration = Duration::from_secs(10);
