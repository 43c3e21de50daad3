//! Seals: signed content, key and verification.

use std::fmt;
use std::str::FromStr;

use data_encoding::HEXLOWER;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use crate::digest::{Digest, Hasher};
use crate::event::Header;
use crate::id::RunId;
use crate::run::{Sealed, SealedTree};
use crate::text;

/// Prefix of all signed bytes, so that no seal can be confused with a signature over something else.
const DOMAIN: &[u8] = b"aod.run.sealed.v1\n";

/// The bytes that a seal signs: `aod.run.sealed.v1` and a newline, then these fields, each after its length as eight
/// big-endian bytes: the root's id, the seal's own event id, its source and its time as texts, the hash of the root's
/// result, and of the tree the number of events, the last sequence (eight bytes each) and the digest.
pub fn signed_bytes(root: RunId, header: &Header, result: Digest, tree: SealedTree) -> Vec<u8> {
    let (root, id, time) = (
        root.to_string(),
        header.id.to_string(),
        header.time.to_string(),
    );
    let (events, last) = (tree.events.to_be_bytes(), tree.last.to_be_bytes());
    let fields: [&[u8]; 8] = [
        root.as_bytes(),
        id.as_bytes(),
        header.source.as_bytes(),
        time.as_bytes(),
        result.as_bytes(),
        &events,
        &last,
        tree.digest.as_bytes(),
    ];
    let mut bytes = DOMAIN.to_vec();
    for field in fields {
        bytes.extend((field.len() as u64).to_be_bytes());
        bytes.extend(field);
    }
    bytes
}

/// Hashes the events of a tree, in the order of the log.
#[derive(Clone, Default)]
pub struct TreeHasher {
    hasher: Hasher,
    events: u64,
    last: u64,
}

impl fmt::Debug for TreeHasher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("TreeHasher")
            .field("events", &self.events)
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}

impl TreeHasher {
    /// `hash` is the hash of the event's stored bytes.
    pub fn add(&mut self, sequence: u64, subject: &str, hash: Digest) {
        self.hasher.field(&sequence.to_be_bytes());
        self.hasher.field(subject.as_bytes());
        self.hasher.field(hash.as_bytes());
        self.events += 1;
        self.last = sequence;
    }

    /// The content of a seal over these events.
    pub fn finish(&self) -> SealedTree {
        SealedTree {
            events: self.events,
            last: self.last,
            digest: self.hasher.clone().finish(),
        }
    }
}

/// The private key of a gateway for seals.
pub struct SealKey(SigningKey);

impl SealKey {
    /// The key from 32 random bytes.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }

    pub fn public_key(&self) -> PublicKey {
        PublicKey(self.0.verifying_key().to_bytes())
    }

    /// The seal of `root`; it is only valid with this `header`.
    pub fn seal(&self, root: RunId, header: &Header, result: Digest, tree: SealedTree) -> Sealed {
        let signature = self.0.sign(&signed_bytes(root, header, result, tree));
        Sealed {
            result,
            tree: Some(tree),
            public_key: self.public_key().to_string(),
            signature: HEXLOWER.encode(&signature.to_bytes()),
        }
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SealKey of {}", self.public_key())
    }
}

/// The public key of seals; as text 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey([u8; 32]);

/// A text that is not a [`PublicKey`].
#[derive(Debug, Error, PartialEq, Eq)]
#[error("expected a public key, 64 lower-case hexadecimal digits, not {0:?}")]
pub struct MalformedKey(String);

impl fmt::Display for PublicKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        HEXLOWER.encode_write(&self.0, formatter)
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "PublicKey({self})")
    }
}

impl FromStr for PublicKey {
    type Err = MalformedKey;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let malformed = || MalformedKey(text.chars().take(80).collect());
        let bytes = text::from_hex(text).ok_or_else(malformed)?;
        VerifyingKey::from_bytes(&bytes).map_err(|_| malformed())?;
        Ok(Self(bytes))
    }
}

impl Serialize for PublicKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PublicKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text::deserialize(deserializer)
    }
}

/// Why a seal is invalid.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum BrokenSeal {
    #[error("the seal names no tree, so it does not cover callees, notes and spending")]
    NoTree,
    #[error(transparent)]
    Key(#[from] MalformedKey),
    #[error("the signature is not 128 lower-case hexadecimal digits")]
    MalformedSignature,
    #[error("the signature does not match the key {0} and the content of the seal")]
    Forged(PublicKey),
}

/// Verifies the signature of the seal of `root` that is stored with `header`, and returns its key and the signed tree.
///
/// # Errors
/// [`BrokenSeal`].
pub fn check_seal(
    root: RunId,
    header: &Header,
    sealed: &Sealed,
) -> Result<(PublicKey, SealedTree), BrokenSeal> {
    let tree = sealed.tree.ok_or(BrokenSeal::NoTree)?;
    let key: PublicKey = sealed.public_key.parse()?;
    let signature = text::from_hex(&sealed.signature).ok_or(BrokenSeal::MalformedSignature)?;
    let bytes = signed_bytes(root, header, sealed.result, tree);
    VerifyingKey::from_bytes(&key.0)
        .and_then(|verifier| verifier.verify_strict(&bytes, &Signature::from_bytes(&signature)))
        .map_err(|_| BrokenSeal::Forged(key))?;
    Ok((key, tree))
}
