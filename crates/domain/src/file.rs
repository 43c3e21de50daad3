//! Files that people hand over ahead of a run: whose they are.
//!
//! The artifact store knows contents, not owners. A digest opens a file to the tenant that uploaded it, and to
//! the one whose runs or capsules have it.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::subject::{self, Subject};
use crate::tenant::Tenant;

/// What happens to a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data")]
pub enum Event {
    /// A tenant has sent its bytes; stored once for each tenant, as long as that is known.
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

    /// Where it is stored if the file is `tenant`'s.
    pub fn subject(&self, tenant: &Tenant) -> Subject {
        subject::file_event(tenant, &self.digest(), "uploaded")
    }
}
