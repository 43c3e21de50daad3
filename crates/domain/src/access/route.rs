//! The rights that routes need.

use super::Role;

/// Whether a route concerns one tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Concerns objects of the principal's tenant; a principal of all tenants sees the objects of all.
    Tenant,
    /// Concerns the whole cluster: a token of one tenant is not enough.
    Cluster,
}

/// The rights that a route requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    pub role: Role,
    pub reach: Reach,
    /// Whether clients of agent-on-demand use the route.
    pub compatibility: bool,
}

impl Need {
    /// The same rights, for a route of agent-on-demand compatibility.
    #[must_use]
    pub const fn of_compatibility(self) -> Self {
        Self {
            compatibility: true,
            ..self
        }
    }
}
