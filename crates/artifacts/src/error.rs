//! Maps errors of disks and object stores to [`StoreError`].

use std::error::Error as _;
use std::io;

use aod_domain::digest::Digest;
use aod_ports::artifact_store::StoreError;
use object_store::Error;

/// Maps an error of an object store for `digest`. AOD's own store reports actionable causes as kinds of IO
/// errors.
pub(crate) fn from_object_store(place: &str, digest: Digest, source: Error) -> StoreError {
    let owned = place.to_owned();
    match source {
        Error::NotFound { .. } => StoreError::Missing { digest },
        Error::PermissionDenied { .. }
        | Error::Unauthenticated { .. }
        | Error::NotImplemented { .. }
        | Error::NotSupported { .. }
        | Error::InvalidPath { .. }
        | Error::UnknownConfigurationKey { .. } => StoreError::Refused {
            place: owned,
            source: source.into(),
        },
        _ => match io_kind(&source) {
            Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => StoreError::NoRoom {
                place: owned,
                source: source.into(),
            },
            Some(io::ErrorKind::InvalidData) => StoreError::Corrupt {
                digest,
                found: source.to_string(),
            },
            _ => StoreError::Unavailable {
                place: owned,
                source: source.into(),
            },
        },
    }
}

/// Maps an error of a put: "not found" then means the bucket.
pub(crate) fn from_put(place: &str, digest: Digest, source: Error) -> StoreError {
    match source {
        Error::NotFound { .. } => StoreError::Refused {
            place: place.to_owned(),
            source: source.into(),
        },
        other => from_object_store(place, digest, other),
    }
}

/// The kind of the innermost IO error among the sources.
fn io_kind(error: &Error) -> Option<io::ErrorKind> {
    let mut kind = None;
    let mut source = error.source();
    while let Some(cause) = source {
        kind = cause
            .downcast_ref::<io::Error>()
            .map(io::Error::kind)
            .or(kind);
        source = cause.source();
    }
    kind
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest() -> Digest {
        Digest::of("any")
    }

    fn generic(kind: io::ErrorKind) -> Error {
        let source = Box::new(io::Error::new(kind, "cause"));
        Error::Generic {
            store: "test",
            source,
        }
    }

    fn not_found() -> Error {
        Error::NotFound {
            path: "x".to_owned(),
            source: "cause".into(),
        }
    }

    #[test]
    fn io_kinds_of_object_store_are_mapped() {
        let sorted = |kind| from_object_store("place", digest(), generic(kind));
        assert!(matches!(
            sorted(io::ErrorKind::StorageFull),
            StoreError::NoRoom { .. }
        ));
        assert!(matches!(
            sorted(io::ErrorKind::InvalidData),
            StoreError::Corrupt { .. }
        ));
        assert!(matches!(
            sorted(io::ErrorKind::BrokenPipe),
            StoreError::Unavailable { .. }
        ));
    }

    #[test]
    fn not_found_means_artifact_for_get_and_bucket_for_put() {
        let got = from_object_store("place", digest(), not_found());
        assert!(matches!(got, StoreError::Missing { .. }), "{got}");
        let put = from_put("place", digest(), not_found());
        assert!(matches!(put, StoreError::Refused { .. }), "{put}");
    }

    #[test]
    fn errors_of_disks_are_mapped() {
        let sorted = |kind: io::ErrorKind| StoreError::from_io("place", kind.into());
        assert!(matches!(
            sorted(io::ErrorKind::QuotaExceeded),
            StoreError::NoRoom { .. }
        ));
        assert!(matches!(
            sorted(io::ErrorKind::ReadOnlyFilesystem),
            StoreError::Refused { .. }
        ));
        assert!(matches!(
            sorted(io::ErrorKind::Other),
            StoreError::Unavailable { .. }
        ));
    }
}
