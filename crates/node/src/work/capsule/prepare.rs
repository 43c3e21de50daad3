//! Fetches everything that a run needs before its container can start.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use aod_domain::capsule::Image;
use aod_domain::contract::Contract;
use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_domain::file_name::FileName;
use aod_domain::manifest::CapsuleName;
use aod_domain::run::{Launched, RunError};
use aod_ports::container_runtime::IoPaths;
use bytes::Bytes;
use futures::TryStreamExt;
use futures::future::try_join3;

use super::Capsule;
use crate::files::deliver::deliver;
use crate::files::payload::load_payload;
use crate::shared::Shared;
use crate::work::common::runtime_error;
use aod_services::error::chain;

/// Fetches image, files and payload of `launched` concurrently, and compiles its schema; counts the bytes from the
/// artifact store.
pub(super) async fn prepare(
    shared: &Shared,
    launched: &Launched,
    capsule: Capsule<'_>,
    paths: &IoPaths,
    fetched: &AtomicU64,
) -> Result<Contract, RunError> {
    let inputs = async {
        let (files, artifacts) = (&launched.files, shared.ports.artifacts.as_ref());
        let delivered = deliver(files, FileName::clone, &paths.inputs, artifacts, fetched);
        delivered.await.map_err(|error| unavailable(&error))?;
        write_payload(shared, launched, &paths.input_json).await
    };
    let ((), (), contract) = try_join3(
        ensure_image(shared, launched.work.name(), capsule.image, fetched),
        inputs,
        load_contract(shared, capsule.schema),
    )
    .await?;
    Ok(contract)
}

/// Brings the image from the artifact store unless the engine has it.
async fn ensure_image(
    shared: &Shared,
    name: &CapsuleName,
    image: &Image,
    fetched: &AtomicU64,
) -> Result<(), RunError> {
    let runtime = &shared.ports.runtime;
    shared.host.images.run(&image.config_digest, name);
    let is_here = runtime.has_image(&image.config_digest).await;
    if is_here.map_err(|error| runtime_error(&error))? {
        shared.host.images.found(&image.config_digest);
        return Ok(());
    }
    let unavailable = |error: &dyn std::error::Error| {
        let text = format!("{}: {}", image.config_digest, chain(error));
        RunError::new(ErrorCode::ImageUnavailable, text)
    };
    let bytes = runtime.fetch_image(image, &shared.ports.images).await;
    let bytes = bytes.map_err(|error| unavailable(&error))?;
    fetched.fetch_add(bytes, Ordering::Relaxed);
    shared.host.images.found(&image.config_digest);
    Ok(())
}

async fn write_payload(shared: &Shared, launched: &Launched, path: &Path) -> Result<(), RunError> {
    let payload = load_payload(&launched.payload, shared.ports.artifacts.as_ref())
        .await
        .map_err(|error| unavailable(&error))?;
    // Into the page cache, mostly less than 256 KiB: faster than a switch to another thread.
    overwrite(path, payload.to_string().as_bytes()).map_err(|error| {
        let text = format!("the node cannot write input.json: {error}");
        RunError::new(ErrorCode::RuntimeFailed, text)
    })
}

/// Replaces the content of a file without truncating it first: when a truncated and rewritten file is closed, ext4
/// waits for the disk.
fn overwrite(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.write_all(bytes)?;
    file.set_len(bytes.len() as u64)
}

async fn load_contract(shared: &Shared, schema: Digest) -> Result<Contract, RunError> {
    if let Some(contract) = shared.contracts.get(schema) {
        return Ok(contract);
    }
    let content = shared.ports.artifacts.get_stream(schema, None).await;
    let bytes = content.map_err(|error| unavailable(&error))?.bytes;
    let bytes: Result<Vec<Bytes>, _> = bytes.try_collect().await;
    let bytes = bytes.map_err(|error| unavailable(&error))?.concat();
    let contract = Contract::parse(&bytes).map_err(|problems| {
        let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
        let text = format!("schema.json: {}", problems.join("; "));
        RunError::new(ErrorCode::CapsuleInvalid, text)
    })?;
    shared.contracts.insert(schema, contract.clone());
    Ok(contract)
}

fn unavailable(error: &dyn std::error::Error) -> RunError {
    RunError::new(ErrorCode::InputUnavailable, chain(error))
}
