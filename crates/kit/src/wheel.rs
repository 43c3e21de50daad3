//! The wheel of the Python SDK, which capsules install from `vendor/` in their directory.

/// Its name in the directory of a capsule.
pub(crate) const PATH: &str = concat!("vendor/", env!("AOD_WHEEL_NAME"));

pub(crate) const BYTES: &[u8] = include_bytes!(env!("AOD_WHEEL"));

/// The directory from which a `Dockerfile` copies it.
pub(crate) const DIRECTORY: &str = "vendor";

/// The beginning of its name, in every version.
const NAME_PREFIX: &str = "aod_capsule-";

/// Whether `dockerfile` copies the wheel into the image.
pub(crate) fn is_wanted(dockerfile: &str) -> bool {
    dockerfile.contains(&format!("{DIRECTORY}/{NAME_PREFIX}"))
}

/// Whether `name`, a file of a capsule's directory, is a version of the wheel.
pub(crate) fn is_one(name: &str) -> bool {
    name.strip_prefix(DIRECTORY)
        .and_then(|rest| rest.strip_prefix('/'))
        .is_some_and(|file| file.starts_with(NAME_PREFIX) && file.contains("-py3-"))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::io::{Cursor, Read as _};

    use base64::Engine as _;
    use base64::prelude::BASE64_URL_SAFE_NO_PAD;
    use sha2::{Digest as _, Sha256};

    use super::*;

    /// Source: "Binary distribution format" of the PyPA specifications, the `.dist-info` directory.
    #[test]
    fn wheel_record_lists_every_file_with_its_digest() {
        let mut archive = zip::ZipArchive::new(Cursor::new(BYTES)).unwrap();
        let mut texts = Vec::new();
        for index in 0..archive.len() {
            let mut entry = archive.by_index(index).unwrap();
            // Equal in every build: a fixed time, no compression, a fixed mode.
            assert_eq!(entry.last_modified(), Some(zip::DateTime::default()));
            assert_eq!(entry.compression(), zip::CompressionMethod::Stored);
            assert_eq!(entry.unix_mode().map(|mode| mode & 0o777), Some(0o644));
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            texts.push((entry.name().unwrap().into_owned(), bytes));
        }
        let (record, files) = texts.split_last().unwrap();
        let mut expected = String::new();
        for (name, bytes) in files {
            let digest = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(bytes));
            writeln!(expected, "{name},sha256={digest},{}", bytes.len()).unwrap();
        }
        writeln!(expected, "{},,", record.0).unwrap();
        assert_eq!(String::from_utf8_lossy(&record.1), expected);
        let names: Vec<&String> = files.iter().map(|(name, _)| name).collect();
        let own = names.iter().filter(|name| !name.contains(".dist-info/"));
        assert!(own.is_sorted() && names.iter().any(|name| *name == "aod/__init__.py"));
    }

    #[test]
    fn bundled_wheel_is_recognized_by_its_name() {
        assert!(is_one(PATH));
        assert!(!is_one("vendor/other-1-py3-none-any.whl") && !is_one(env!("AOD_WHEEL_NAME")));
        assert!(is_wanted("COPY vendor/aod_capsule-*.whl /wheels/"));
    }
}
