//! A tenant: the owner of runs, files, capsules and secrets.

use std::sync::Arc;

use crate::text::token_text;

/// The tenant of data from before tenants existed, and of requests that name none.
pub const DEFAULT: &str = "default";

/// The name of a tenant: 1 to 63 of `a-z`, `0-9` and `-`, a token of subjects. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenant(Arc<str>);

impl Tenant {
    pub fn is_default(&self) -> bool {
        self.as_str() == DEFAULT
    }
}

impl Default for Tenant {
    fn default() -> Self {
        Self(DEFAULT.into())
    }
}

token_text!(
    Tenant,
    /// A text that is not the name of a [`Tenant`].
    MalformedTenant,
    "tenant"
);

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
