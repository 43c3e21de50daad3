//! Files of runs on the host: the directories of an attempt (`workdir`, `leftovers`), files for a capsule (`deliver`,
//! `payload`), files from it (`stage`, `collect`, `quota`), and its whole workspace
//! (`snapshot`).
//!
//! A capsule can make any tree: `safe_dir` reads one beneath a handle, `descent` visits and removes one of any depth.

pub(crate) mod collect;
pub(crate) mod deliver;
pub(crate) mod descent;
pub(crate) mod leftovers;
pub(crate) mod payload;
pub(crate) mod quota;
pub(crate) mod safe_dir;
pub(crate) mod snapshot;
pub(crate) mod stage;
pub(crate) mod workdir;
