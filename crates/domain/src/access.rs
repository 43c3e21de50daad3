//! Access control: roles in their order, tenants, and the needs of each route.

mod route;
#[cfg(test)]
mod tests;
mod token;
mod without_token;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use self::route::{Need, Reach};
pub use self::token::{
    Command, DEVELOPMENT, Event, MalformedTokenName, OPERATOR, Rejection, TOKENS_MAX, Token,
    TokenName, Tokens, decide, secret_text,
};
pub use self::without_token::{AGENT_ON_DEMAND, Sender, TokenNeeded, WithoutToken};
use crate::tenant::Tenant;

/// Maximum lifetime of a token, in days: ten years. Without a lifetime, a token never expires.
pub const EXPIRES_DAYS_MAX: u32 = 3_650;

/// The rights of a token; each role includes the rights of the roles before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Reads everything.
    Read,
    /// Starts and cancels runs.
    Run,
    /// Registers capsules, and handles dead letters and nodes.
    Operate,
    /// Configures rules, and issues tokens.
    Admin,
}

impl Role {
    /// All roles, in their order.
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

/// A text that is not a [`Role`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("unknown role {0:?}; expected read, run, operate or admin")]
pub struct UnknownRole(String);

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(text: &str) -> Result<Self, UnknownRole> {
        let found = Self::ALL.into_iter().find(|role| role.as_str() == text);
        found.ok_or_else(|| UnknownRole(text.chars().take(80).collect()))
    }
}

/// The tenants that a principal sees and acts for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One tenant.
    Tenant(Tenant),
    /// All tenants, and the whole cluster.
    Cluster,
}

impl Scope {
    /// The tenant; none for the cluster.
    pub const fn tenant(&self) -> Option<&Tenant> {
        match self {
            Self::Tenant(tenant) => Some(tenant),
            Self::Cluster => None,
        }
    }

    /// Whether this scope includes all of `other`.
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

/// The sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The name in runs and events: `name` for the whole cluster, `tenant/name` for one tenant.
    pub name: String,
    pub role: Role,
    pub scope: Scope,
}

/// Why a principal is not permitted to do something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("this request needs the role {needed}; the token has the role {found}")]
    Role { needed: Role, found: Role },
    #[error("this request concerns the whole cluster; the token is only valid for the tenant {0}")]
    Cluster(Tenant),
    #[error("the token is only valid for the tenant {own}")]
    OtherTenant { own: Tenant },
}

impl Principal {
    /// A principal with all rights, by its name in runs.
    pub fn cluster_admin(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            role: Role::Admin,
            scope: Scope::Cluster,
        }
    }

    /// The tenant of objects that the principal creates.
    pub fn tenant(&self) -> Tenant {
        self.scope.tenant().cloned().unwrap_or_default()
    }

    /// Whether the principal may know about objects of `tenant`.
    pub fn sees(&self, tenant: &Tenant) -> bool {
        self.scope.tenant().is_none_or(|own| own == tenant)
    }

    /// Whether the principal has what `need` requires.
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

    /// The same principal, limited to `tenant`.
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
