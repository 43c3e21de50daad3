//! Who may do what: roles in their order, whose things somebody sees, and what each route needs.

mod route;
#[cfg(test)]
mod tests;
mod token;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use self::route::{Need, ROUTES, Reach, Route, needed};
pub use self::token::{
    Command, DEVELOPMENT, Event, MalformedTokenName, OPERATOR, Rejection, TOKENS_MAX, Token,
    TokenName, Tokens, decide, secret_text,
};
use crate::tenant::Tenant;

/// What somebody may do; each may do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Looks at everything.
    Read,
    /// Asks for runs, and cancels them.
    Run,
    /// Registers capsules, and looks after what went wrong.
    Operate,
    /// Lays down rules, and gives others tokens.
    Admin,
}

impl Role {
    /// All of them, in their order.
    pub const ALL: [Self; 4] = [Self::Read, Self::Run, Self::Operate, Self::Admin];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Run => "run",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// A text that is no [`Role`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is none of read, run, operate, admin")]
pub struct UnknownRole(String);

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(text: &str) -> Result<Self, UnknownRole> {
        let found = Self::ALL.into_iter().find(|role| role.as_str() == text);
        found.ok_or_else(|| UnknownRole(text.chars().take(80).collect()))
    }
}

/// Whose things somebody sees and makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those of one tenant.
    Tenant(Tenant),
    /// Those of all tenants, and what is of the whole cluster.
    Cluster,
}

impl Scope {
    /// The one tenant; none for the cluster.
    pub const fn tenant(&self) -> Option<&Tenant> {
        match self {
            Self::Tenant(tenant) => Some(tenant),
            Self::Cluster => None,
        }
    }

    /// Whether all of `other` is seen from here.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Cluster, _) => true,
            (Self::Tenant(own), Self::Tenant(other)) => own == other,
            (Self::Tenant(_), Self::Cluster) => false,
        }
    }
}

impl From<Option<Tenant>> for Scope {
    fn from(tenant: Option<Tenant>) -> Self {
        tenant.map_or(Self::Cluster, Self::Tenant)
    }
}

/// Whoever asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// As runs and events name them: `name` for the whole cluster, `tenant/name` for one tenant.
    pub name: String,
    pub role: Role,
    pub scope: Scope,
}

/// Why somebody may not do what they ask for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("this needs the role {needed}, and the token has {found}")]
    Role { needed: Role, found: Role },
    #[error("this is of the whole cluster, and the token is of the tenant {0}")]
    Cluster(Tenant),
    #[error("the token is of the tenant {own}, and cannot act for another")]
    OtherTenant { own: Tenant },
}

impl Principal {
    /// Whoever may do everything, as runs name them.
    pub fn cluster_admin(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            role: Role::Admin,
            scope: Scope::Cluster,
        }
    }

    /// The tenant of what they make.
    pub fn tenant(&self) -> Tenant {
        self.scope.tenant().cloned().unwrap_or_default()
    }

    /// Whether they may know of what is `tenant`'s.
    pub fn sees(&self, tenant: &Tenant) -> bool {
        self.scope.tenant().is_none_or(|own| own == tenant)
    }

    /// Whether they may do what needs `need`.
    pub fn check(&self, need: Need) -> Result<(), Refusal> {
        if self.role < need.role {
            return Err(Refusal::Role {
                needed: need.role,
                found: self.role,
            });
        }
        match (&self.scope, need.reach) {
            (Scope::Tenant(own), Reach::Cluster) => Err(Refusal::Cluster(own.clone())),
            (Scope::Tenant(_) | Scope::Cluster, _) => Ok(()),
        }
    }

    /// The same, who sees and makes what is `tenant`'s only.
    pub fn acting_for(self, tenant: Tenant) -> Result<Self, Refusal> {
        match self.scope.tenant() {
            Some(own) if *own != tenant => Err(Refusal::OtherTenant { own: own.clone() }),
            _ => Ok(Self {
                scope: Scope::Tenant(tenant),
                ..self
            }),
        }
    }
}
