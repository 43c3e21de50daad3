//! Brings everything to the node that a run needs before its container can start.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use aod_domain::capsule::Image;
use aod_domain::contract::Contract;
use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_domain::file_name::FileName;
use aod_domain::run::{Launched, RunError};
use aod_ports::artifact_store::StoreError;
use aod_ports::container_runtime::{IoPaths, RuntimeError};
use bytes::Bytes;
use futures::TryStreamExt;
use futures::future::try_join3;

use crate::calls::chain;
use crate::deliver::deliver;
use crate::payload::load_payload;
use crate::shared::Shared;

/// Fetches image, files and payload of `launched`, all at the same time, and compiles its schema; counts the bytes of
/// files and image that came from elsewhere.
pub(crate) async fn prepare(
    shared: &Shared,
    launched: &Launched,
    image: &Image,
    schema: Digest,
    paths: &IoPaths,
    fetched: &AtomicU64,
) -> Result<Contract, RunError> {
    let inputs = async {
        deliver(
            &launched.files,
            FileName::clone,
            &paths.inputs,
            shared.ports.artifacts.as_ref(),
            fetched,
        )
        .await
        .map_err(|error| RunError::new(ErrorCode::InputUnavailable, chain(&error)))?;
        write_payload(shared, launched, &paths.input_json).await
    };
    let ((), (), contract) = try_join3(
        ensure_image(shared, image, fetched),
        inputs,
        load_contract(shared, schema),
    )
    .await?;
    Ok(contract)
}

/// Loads the image from the artifact store unless the engine has it.
async fn ensure_image(shared: &Shared, image: &Image, fetched: &AtomicU64) -> Result<(), RunError> {
    let runtime = &shared.ports.runtime;
    shared.image_uses.touch(&image.config_digest);
    if runtime
        .has_image(&image.config_digest)
        .await
        .map_err(|error| runtime_error(&error))?
    {
        shared.image_uses.found(&image.config_digest);
        return Ok(());
    }
    let unavailable = |error: &dyn std::error::Error| {
        RunError::new(
            ErrorCode::ImageUnavailable,
            format!("{}: {}", image.config_digest, chain(error)),
        )
    };
    let archive = shared
        .ports
        .artifacts
        .get_file(image.archive, image.archive_size_bytes)
        .await
        .map_err(|error| unavailable(&error))?;
    fetched.fetch_add(archive.fetched_bytes(), Ordering::Relaxed);
    runtime
        .load_image(&image.config_digest, archive.path().to_path_buf())
        .await
        .map_err(|error| unavailable(&error))?;
    shared.image_uses.found(&image.config_digest);
    Ok(())
}

async fn write_payload(shared: &Shared, launched: &Launched, path: &Path) -> Result<(), RunError> {
    let payload = load_payload(&launched.payload, shared.ports.artifacts.as_ref())
        .await
        .map_err(|error| RunError::new(ErrorCode::InputUnavailable, chain(&error)))?;
    // At most 256 KiB into the page cache: sooner done than handed to another thread.
    overwrite(path, payload.to_string().as_bytes()).map_err(|error| {
        RunError::new(
            ErrorCode::RuntimeFailed,
            format!("input.json cannot be written: {error}"),
        )
    })
}

/// Replaces what is in a file. It is never empty in between: of a file that was emptied and written,
/// ext4 waits for the disk when it is closed.
fn overwrite(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.write_all(bytes)?;
    file.set_len(bytes.len() as u64)
}

async fn load_contract(shared: &Shared, schema: Digest) -> Result<Contract, RunError> {
    if let Some(contract) = shared.known_contract(schema) {
        return Ok(contract);
    }
    let unavailable = |error: StoreError| RunError::new(ErrorCode::InputUnavailable, chain(&error));
    let content = shared
        .ports
        .artifacts
        .get_stream(schema, None)
        .await
        .map_err(unavailable)?;
    let bytes: Vec<Bytes> = content.bytes.try_collect().await.map_err(unavailable)?;
    let contract = Contract::parse(&bytes.concat()).map_err(|problems| {
        let text = problems
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("; ");
        RunError::new(ErrorCode::CapsuleInvalid, format!("schema.json: {text}"))
    })?;
    shared.remember_contract(schema, contract.clone());
    Ok(contract)
}

/// What a failure of the runtime means for the run.
pub(crate) fn runtime_error(error: &RuntimeError) -> RunError {
    let code = match error {
        RuntimeError::ImageMissing { .. } => ErrorCode::ImageUnavailable,
        RuntimeError::BuildFailed { .. } => ErrorCode::BuildFailed,
        RuntimeError::ImageRefused { .. } => ErrorCode::ImageUserRefused,
        RuntimeError::Engine { .. } => ErrorCode::RuntimeFailed,
    };
    RunError::new(code, chain(error))
}
