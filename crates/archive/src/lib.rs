//! The archive of the log: closed segments in the artifact store, so that the broker can let old events go and
//! nobody who reads need know. What is closed and let go of when is decided in `aod_domain::archive`.
//!
//! ```text
//! segment    events as the bytes of an artifact, and their index
//! shelf      the segments that there are, read as they are asked for
//! log        the log wherever its events are
//! follower   a place in it that moves on
//! archiver   closes segments, and has the broker let go
//! ```

mod archiver;
mod follower;
mod log;
mod segment;
mod shelf;

pub use self::archiver::Archiver;
pub use self::log::ArchivedLog;
