//! What registries and image layouts of others contain: manifests, indexes, configurations, headers and references.

use aod_registry::index::Document;
use aod_registry::labels::CapsuleLabels;
use aod_registry::layout::check_marker;
use aod_registry::manifest::{CONFIG_BYTES_MAX, MANIFEST_BYTES_MAX};
use aod_registry::reference::Place;
use aod_registry::remote::authorization::{Challenge, bearer};

use crate::problems::check_message;

/// The same bytes as each document, and each line as a header and a reference.
pub fn check(bytes: &[u8]) {
    match Document::parse(bytes) {
        Ok(Document::Image(manifest)) => {
            assert!(bytes.len() <= MANIFEST_BYTES_MAX);
            assert!(manifest.config.size_bytes <= CONFIG_BYTES_MAX);
            assert!(manifest.blobs().count() <= manifest.layers.len() + 1);
        }
        Ok(Document::Index(index)) => match index.choose() {
            Ok(chosen) => assert!(index.entries.iter().any(|entry| entry.blob == chosen)),
            Err(error) => check_message(&error.to_string()),
        },
        Err(error) => check_message(&error.to_string()),
    }
    drop(CapsuleLabels::of(bytes));
    if let Err(problem) = check_marker(bytes) {
        check_message(&problem);
    }
    if let Some(header) = bearer(bytes) {
        assert!(header.is_sensitive());
    }
    for line in bytes.split(|&byte| byte == b'\n') {
        let Ok(line) = str::from_utf8(line) else {
            continue;
        };
        if let Some(Challenge::Bearer { realm, .. }) = Challenge::parse(line) {
            assert!(realm.has_host(), "{line}");
        }
        check_reference(line);
    }
}

/// A reference names one host and one repository, whatever its text: no other path, query or user.
fn check_reference(text: &str) {
    match Place::parse(text) {
        Ok(Place::Registry(reference)) => {
            let exact = reference.at(aod_domain::digest::Digest::of(text));
            let again = Place::parse(&exact).expect("an exact reference is a reference");
            let Place::Registry(again) = again else {
                panic!("{exact}");
            };
            assert_eq!(again.registry(), reference.registry(), "{text}");
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
            assert!(reference.registry().bytes().all(is_plain), "{text}");
            assert!(!exact.contains([' ', '\n', '\\', '"', '?', '#']), "{text}");
        }
        Ok(Place::Layout { path, .. }) => assert!(!path.as_os_str().is_empty()),
        Err(error) => check_message(&error.to_string()),
    }
}
