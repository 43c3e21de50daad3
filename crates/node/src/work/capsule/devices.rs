//! The devices of one run: the device files for its container, and the variables that name them.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::PathBuf;

use aod_domain::error_code::ErrorCode;
use aod_domain::placement::Devices;
use aod_domain::run::RunError;
use aod_ports::container_runtime::Device;

/// `AOD_DEVICE_GPU=/dev/dri/renderD128,/dev/dri/renderD129` for each kind that has device files.
pub(crate) fn device_environment(devices: &Devices) -> impl Iterator<Item = (String, String)> {
    let with_files = devices.files().filter(|(_, files)| !files.is_empty());
    with_files.map(|(name, files)| {
        let name = name.as_str().to_ascii_uppercase().replace('-', "_");
        (format!("AOD_DEVICE_{name}"), files.join(","))
    })
}

/// The current files.
///
/// # Errors
/// Lists all files that are not devices.
pub(crate) fn device_files(devices: &Devices) -> Result<Vec<Device>, RunError> {
    let (mut found, mut gone) = (Vec::new(), Vec::new());
    for file in devices.files().flat_map(|(_, files)| files) {
        match std::fs::metadata(file) {
            Ok(metadata) => {
                let kind = metadata.file_type();
                if kind.is_char_device() || kind.is_block_device() {
                    found.push(Device {
                        path: PathBuf::from(file),
                        group: metadata.gid(),
                    });
                } else {
                    gone.push(format!("{file} is not a device"));
                }
            }
            Err(error) => gone.push(format!("{file}: {error}")),
        }
    }
    if gone.is_empty() {
        return Ok(found);
    }
    Err(RunError::new(ErrorCode::NodeUnfit, gone.join("; ")))
}
