//! Seals of trees of runs, and bundles that prove trees to an auditor without access to the cluster.
//!
//! ```text
//! sealer    signs each tree after its root has ended; pressure reports when to wait
//! export    a tree with its files, as the bytes of a bundle
//! archive   the tar file of a bundle, read as strictly as it is written
//! verify    checks a bundle in one pass
//! ```
//!
//! `aod_domain::audit` decides what must hold and what is signed.

mod archive;
mod export;
mod pressure;
mod sealer;
mod verify;

pub use self::export::{ExportError, export};
pub use self::sealer::Sealer;
pub use self::verify::verify;

/// The name under which all gateways of a cluster share the ended runs, to seal them.
pub const FEED: &str = "seals";
