//! Fields that both manifests, or several of their parts, share.

use crate::yaml::{Mapping, Reader};

/// Maximum `timeout_s` of any kind, in seconds: a day, the default lifetime of a run.
pub(super) const TIMEOUT_SECONDS_MAX: i64 = 24 * 60 * 60;

/// Maximum of all counts.
const COUNT_MAX: i64 = 1_000_000_000;

/// Only format 1 exists.
pub(super) fn version(reader: &mut Reader, mapping: &mut Mapping) {
    reader.field(mapping, "version", |reader, node| {
        reader.integer::<u32>(node, 1..=1)
    });
}

pub(super) fn part<T: Default>(
    reader: &mut Reader,
    mapping: &mut Mapping,
    key: &'static str,
    read: impl FnOnce(&mut Reader, &mut Mapping) -> T,
) -> T {
    reader
        .field(mapping, key, |reader, node| reader.mapping(node, read))
        .unwrap_or_default()
}

pub(super) fn texts(reader: &mut Reader, mapping: &mut Mapping, key: &'static str) -> Vec<String> {
    reader
        .field(mapping, key, |reader, node| reader.list(node, Reader::text))
        .unwrap_or_default()
}

pub(super) fn count<T: TryFrom<i64>>(
    reader: &mut Reader,
    mapping: &mut Mapping,
    key: &'static str,
) -> Option<T> {
    reader.field(mapping, key, |reader, node| {
        reader.integer(node, 0..=COUNT_MAX)
    })
}

pub(super) fn timeout(reader: &mut Reader, mapping: &mut Mapping) -> Option<u32> {
    reader.field(mapping, "timeout_s", |reader, node| {
        reader.integer(node, 1..=TIMEOUT_SECONDS_MAX)
    })
}
