//! SHA-256 digests of artifacts, of events in a chain, and of requests.

use std::fmt;
use std::str::FromStr;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::Digest as _;
use thiserror::Error;

use crate::text;

/// The SHA-256 of some bytes; as text 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

/// A text that is not a [`Digest`].
#[derive(Debug, Error, PartialEq, Eq)]
#[error("expected 64 lower-case hexadecimal digits, not {0:?}")]
pub struct MalformedDigest(String);

impl Digest {
    /// The digest of complete `bytes`.
    pub fn of(bytes: impl AsRef<[u8]>) -> Self {
        Self(sha2::Sha256::digest(bytes.as_ref()).into())
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Whether both are equal, in constant time: for hashes of secrets.
    pub fn is_same_secret(&self, other: &Self) -> bool {
        let pairs = self.0.iter().zip(other.0);
        let difference = pairs.fold(0, |sum, (one, other)| sum | (one ^ other));
        std::hint::black_box(difference) == 0
    }

    /// The first 16 bytes: enough to distinguish the children of one run.
    pub(crate) fn prefix(&self) -> [u8; 16] {
        let mut prefix = [0; 16];
        prefix.copy_from_slice(&self.0[..16]);
        prefix
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        HEXLOWER.encode_write(&self.0, formatter)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Digest({self})")
    }
}

impl FromStr for Digest {
    type Err = MalformedDigest;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let malformed = || MalformedDigest(text.chars().take(80).collect());
        text::from_hex(text).map(Self).ok_or_else(malformed)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text::deserialize(deserializer)
    }
}

/// Hashes bytes piece by piece.
#[derive(Clone, Default)]
pub struct Hasher(sha2::Sha256);

impl Hasher {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Adds `bytes` after their length, so that adjacent fields cannot be confused.
    pub fn field(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
    }

    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        let digest = Digest::of(b"abc");
        assert_eq!(
            digest.to_string(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(digest.to_string().parse(), Ok(digest));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "ba78",
            "BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD",
            "../x",
        ] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
    }

    #[test]
    fn fields_do_not_run_together() {
        let digest = |fields: &[&[u8]]| {
            let mut hasher = Hasher::new();
            for field in fields {
                hasher.field(field);
            }
            hasher.finish()
        };
        assert_ne!(digest(&[b"ab", b"c"]), digest(&[b"a", b"bc"]));
    }
}
