//! The settings of a node.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aod_domain::admission::Capacity;
use aod_domain::egress::Permission;
use aod_domain::placement::{Devices, Equipment};
use aod_domain::subject::Pool;

use crate::models::ModelSettings;

#[derive(Clone, Debug)]
pub struct Config {
    /// Directory of the node's id and of its runs. If the node itself runs in a container, the path is the same
    /// inside and outside. Short: paths of sockets in it have at most 108 bytes.
    pub data: PathBuf,
    /// The pools that the node is in. [`Pool::any`] is not added by itself.
    pub pools: Vec<Pool>,
    pub capacity: Capacity,
    /// Properties of this node that runs may require.
    pub equipment: Equipment,
    /// The devices of the equipment, which runs hold exclusively.
    pub devices: Devices,
    /// How long a lease lasts without progress; the same in the whole cluster.
    pub lease: Duration,
    /// Between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// Maximum output of one container that the node stores, in bytes; the node counts the rest.
    pub log_bytes_max: u64,
    /// Time between two checks of a capsule's disk usage.
    pub disk_look: Duration,
    /// Space on each disk that is reserved for running trees, in bytes; a share of the disk by default.
    pub disk_reserve: Option<u64>,
    /// How long the node keeps an image after its last use if no capsule is registered with it any more.
    pub image_keep: Duration,
    /// Providers of models, and prices.
    pub models: Arc<ModelSettings>,
    /// Whether the node stores requests to models and their answers as artifacts.
    pub keep_model_contents: bool,
    /// External hosts that capsules may connect to if they list them; none if empty.
    pub egress: Vec<Permission>,
    /// The host name that users see.
    pub host: String,
}

/// Default of [`Config::log_bytes_max`]: 64 MiB, a day of a verbose program.
pub const LOG_BYTES_MAX_DEFAULT: u64 = 64 << 20;

/// Default of [`Config::disk_look`].
pub const DISK_LOOK_DEFAULT: Duration = Duration::from_millis(200);

/// Default of [`Config::image_keep`]: after this time, most runs that started with the image have ended. Other runs
/// get it from the artifact store.
pub const IMAGE_KEEP_DEFAULT: Duration = Duration::from_secs(24 * 3_600);

/// Default of [`Config::lease`].
pub const LEASE_DEFAULT: Duration = Duration::from_secs(30);

/// Default of [`Config::grace`]. Source: `docker stop`.
pub const GRACE_DEFAULT: Duration = Duration::from_secs(10);
