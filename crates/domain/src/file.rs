//! Uploaded files and their tenants.
//!
//! The artifact store knows contents, not owners. A tenant may use a digest if the tenant uploaded the file, or if a
//! run or a capsule of the tenant names it.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::subject::{self, Subject};
use crate::tenant::Tenant;

/// A change of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data")]
pub enum Event {
    /// A tenant uploaded the bytes; stored once for each tenant, as long as gateways remember the event.
    #[serde(rename = "dev.aod.file.uploaded.v1")]
    Uploaded {
        digest: Digest,
        size_bytes: u64,
        requested_by: String,
    },
}

impl Event {
    pub const fn digest(&self) -> Digest {
        let Self::Uploaded { digest, .. } = self;
        *digest
    }

    /// The subject of the event if `tenant` owns the file.
    pub fn subject(&self, tenant: &Tenant) -> Subject {
        subject::file_event(tenant, &self.digest(), "uploaded")
    }
}
