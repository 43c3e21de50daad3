//! The archive of the log: closed segments in the artifact store. The broker can release old events, and readers see
//! no difference. `aod_domain::archive` decides what is closed and released, and when.
//!
//! ```text
//! segment    events as the bytes of an artifact, and their index
//! shelf      the existing segments, read on demand
//! log        the log, from the archive and the broker
//! follower   a subscription to both
//! archiver   closes segments, and releases events from the broker
//! ```

mod archiver;
mod follower;
mod log;
mod segment;
mod shelf;

pub use self::archiver::Archiver;
pub use self::log::ArchivedLog;
