//! Seals of trees of runs, and bundles that prove them to whoever never saw the cluster.
//!
//! ```text
//! sealer    signs each tree once its root has ended; pressure says when it had better wait
//! export    a tree with its files, as the bytes of a bundle
//! archive   the tar file of a bundle, read as strictly as it was written
//! verify    a bundle, read once from its first byte to its last
//! ```
//!
//! What must hold, and what is signed, is decided in `aod_domain::audit`.

mod archive;
mod export;
mod pages;
mod pressure;
mod sealer;
mod verify;

pub use self::export::{ExportError, export};
pub use self::sealer::Sealer;
pub use self::verify::verify;

/// The name under which all gateways of a cluster share the ends of runs, to seal them.
pub const FEED: &str = "seals";
