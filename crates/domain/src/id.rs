//! Ids whose text shows their kind: `run_01J9ZK…`, `node_01J9ZM…`.
//!
//! An id has 128 bits; its text has 26 digits of Crockford's base32 in upper case, so that the text of a UUIDv7 sorts
//! by time. Callers draw the ids.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use data_encoding::{Encoding, Specification};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;
use uuid::Uuid;

use crate::digest::{Digest, Hasher};
use crate::text;

/// Without I, L, O and U.
const DIGITS: &str = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

static CROCKFORD: LazyLock<Encoding> = LazyLock::new(|| {
    let mut specification = Specification::new();
    specification.symbols.push_str(DIGITS);
    specification.encoding().expect("32 different digits")
});

/// A text that is not an id of the kind expected.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("expected {expected}, not {text:?}")]
pub struct MalformedId {
    text: String,
    expected: &'static str,
}

fn encode(bytes: [u8; 16]) -> String {
    CROCKFORD.encode(&bytes)
}

/// Strict: accepts only the output of [`encode`], so that an id has one spelling.
fn decode(token: &str) -> Option<[u8; 16]> {
    text::decode(&CROCKFORD, token)
}

/// Implements serde for a type by its text.
macro_rules! text_form {
    ($name:ident) => {
        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, formatter)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                text::deserialize(deserializer)
            }
        }
    };
}

macro_rules! plain_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 16]);

        impl $name {
            pub const fn new(uuid: Uuid) -> Self {
                Self(uuid.into_bytes())
            }

            /// The text without its prefix, for a subject.
            pub fn token(&self) -> String {
                encode(self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, concat!($prefix, "_{}"), encode(self.0))
            }
        }

        impl FromStr for $name {
            type Err = MalformedId;

            fn from_str(text: &str) -> Result<Self, MalformedId> {
                text.strip_prefix(concat!($prefix, "_")).and_then(decode).map(Self).ok_or_else(|| {
                    MalformedId {
                        text: text.chars().take(80).collect(),
                        expected: concat!($prefix, "_ and 26 digits of base32"),
                    }
                })
            }
        }

        text_form!($name);
    };
}

plain_id!(
    /// A node, as long as its data directory exists.
    NodeId, "node"
);
plain_id!(
    /// One start of a program: each start of a node or gateway is a new incarnation.
    IncarnationId, "incarnation"
);
plain_id!(
    /// One gateway process.
    GatewayId, "gateway"
);
plain_id!(
    /// A bearer token, without its secret.
    TokenId, "token"
);
plain_id!(
    /// One event, stored at most once.
    EventId, "event"
);

/// One run of a capsule. A child's id begins with its root's: `run_<root>-<child>`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId {
    root: [u8; 16],
    child: Option<[u8; 16]>,
}

impl RunId {
    /// The id of a root run.
    pub const fn root_of(uuid: Uuid) -> Self {
        Self {
            root: uuid.into_bytes(),
            child: None,
        }
    }

    /// The id of the root run for `key`: the same key gives the same run.
    pub fn root_of_key(key: &Digest) -> Self {
        Self {
            root: key.prefix(),
            child: None,
        }
    }

    /// The id of the child for `call_key`: the same call gives the same child.
    pub fn child(&self, call_key: &Digest) -> Self {
        let mut hasher = Hasher::new();
        hasher.field(self.token().as_bytes());
        hasher.field(call_key.as_bytes());
        Self {
            root: self.root,
            child: Some(hasher.finish().prefix()),
        }
    }

    pub const fn root(&self) -> Self {
        Self {
            root: self.root,
            child: None,
        }
    }

    pub const fn is_root(&self) -> bool {
        self.child.is_none()
    }

    /// The text without its prefix, for a subject or a container's name.
    pub fn token(&self) -> String {
        match self.child {
            None => encode(self.root),
            Some(child) => format!("{}-{}", encode(self.root), encode(child)),
        }
    }

    /// Parses the output of [`RunId::token`].
    pub fn from_token(token: &str) -> Option<Self> {
        match token.split_once('-') {
            None => Some(Self {
                root: decode(token)?,
                child: None,
            }),
            Some((root, child)) => Some(Self {
                root: decode(root)?,
                child: Some(decode(child)?),
            }),
        }
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "run_{}", self.token())
    }
}

impl FromStr for RunId {
    type Err = MalformedId;

    fn from_str(text: &str) -> Result<Self, MalformedId> {
        text.strip_prefix("run_")
            .and_then(Self::from_token)
            .ok_or_else(|| MalformedId {
                text: text.chars().take(80).collect(),
                expected: "run_ and 26 digits of base32, or for a child two such groups with a dash between",
            })
    }
}

text_form!(RunId);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn run_id_round_trips(root: u128, key: [u8; 8]) {
            let root = RunId::root_of(Uuid::from_u128(root));
            let child = root.child(&Digest::of(key));
            for id in [root, child] {
                prop_assert_eq!(id.to_string().parse::<RunId>(), Ok(id));
                prop_assert_eq!(id.root(), root);
            }
            prop_assert!(child.to_string().starts_with(&root.to_string()));
        }

        #[test]
        fn ids_sort_as_their_uuids(one: u128, other: u128) {
            let text = |bits| NodeId::new(Uuid::from_u128(bits)).to_string();
            prop_assert_eq!(one.cmp(&other), text(one).cmp(&text(other)));
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = text.parse::<RunId>();
        }
    }

    #[test]
    fn an_id_has_one_spelling() {
        let id = NodeId::new(Uuid::from_u128(7)).to_string();
        assert!(id.to_lowercase().parse::<NodeId>().is_err());
        assert!(id.replace('0', "O").parse::<NodeId>().is_err());
        assert!(id.replace("node", "run").parse::<NodeId>().is_err());
    }
}
