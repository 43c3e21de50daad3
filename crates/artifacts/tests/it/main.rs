//! The stores against a real disk and a real S3 server.

mod disk;
mod local;
mod s3;
