//! Types of `/v1/files`.

use aod_domain::digest::Digest;
use aod_domain::file_name::FileName;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Prefix of a reference to an uploaded file; its digest follows.
pub const FILE_REFERENCE_PREFIX: &str = "aod:file/";

/// A file of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileView {
    #[schema(value_type = String)]
    pub name: FileName,
    /// SHA-256 of the content, also the ETag.
    #[schema(value_type = String)]
    pub digest: Digest,
    pub size_bytes: u64,
    /// URL of the content, relative to the gateway.
    pub url: String,
}

/// The answer of `POST /v1/files`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UploadedFile {
    /// `aod:file/<digest>`, to use as `file` in the `files` of a request.
    pub file: String,
    #[schema(value_type = String)]
    pub digest: Digest,
    pub size_bytes: u64,
}
