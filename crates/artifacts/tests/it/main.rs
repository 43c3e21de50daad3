//! The stores against a real disk and a real S3 server.

mod local;
mod s3;
