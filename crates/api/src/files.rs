//! Files by their content.

use aod_domain::digest::Digest;
use aod_domain::file_name::FileName;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How an uploaded file is named in a request: this and its digest.
pub const FILE_REFERENCE_PREFIX: &str = "aod:file/";

/// A file of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileView {
    #[schema(value_type = String)]
    pub name: FileName,
    /// SHA-256 of its bytes; also its ETag.
    #[schema(value_type = String)]
    pub digest: Digest,
    pub size_bytes: u64,
    /// Where its bytes are, relative to the gateway.
    pub url: String,
}

/// The answer of `POST /v1/files`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UploadedFile {
    /// `aod:file/<digest>`, for the `file` of a request's files.
    pub file: String,
    #[schema(value_type = String)]
    pub digest: Digest,
    pub size_bytes: u64,
}
