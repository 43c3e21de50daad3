//! A tenant: whose a run is, and everything about it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

use crate::text;

/// The tenant of all that was stored before there were others, and of whoever does not say.
pub const DEFAULT: &str = "default";

/// The name of a tenant: 1 to 63 of `a-z`, `0-9` and `-`, a token of subjects. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenant(Arc<str>);

impl Tenant {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn is_default(&self) -> bool {
        self.as_str() == DEFAULT
    }
}

impl Default for Tenant {
    fn default() -> Self {
        Self(DEFAULT.into())
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A text that cannot be the name of a [`Tenant`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the tenant {0:?} is not 1 to 63 of a-z, 0-9 and -")]
pub struct MalformedTenant(String);

impl FromStr for Tenant {
    type Err = MalformedTenant;

    fn from_str(text: &str) -> Result<Self, MalformedTenant> {
        if text::is_token(text) {
            Ok(Self(text.into()))
        } else {
            Err(MalformedTenant(text.chars().take(80).collect()))
        }
    }
}

impl Serialize for Tenant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Tenant {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text::deserialize(deserializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_is_one_token() {
        assert_eq!("default".parse(), Ok(Tenant::default()));
        assert!("team-7".parse::<Tenant>().is_ok());
        for text in ["", "*", ">", "a.b", "A", "a b", "a/b", &"x".repeat(64)] {
            assert!(text.parse::<Tenant>().is_err(), "{text}");
        }
    }
}
