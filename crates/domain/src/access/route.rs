//! What each route needs: the one table that gateways go by, and that the description of the API shows.

use super::Role;

/// Whether a route is about things of one tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// About what the asker's tenant has; whoever is of no tenant sees what all have.
    Tenant,
    /// About what is of the whole cluster: a tenant's token is not enough.
    Cluster,
}

/// What somebody must have to use a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    pub role: Role,
    pub reach: Reach,
}

/// A route that people use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    pub method: &'static str,
    /// With the names of its parameters in braces.
    pub path: &'static str,
    pub need: Need,
}

macro_rules! routes {
    ($($method:ident $path:literal $role:ident $reach:ident;)*) => {
        /// All routes that need a token.
        pub const ROUTES: &[Route] = &[$(Route {
            method: stringify!($method),
            path: $path,
            need: Need { role: Role::$role, reach: Reach::$reach },
        },)*];
    };
}

routes! {
    POST "/v1/runs" Run Tenant;
    GET "/v1/runs" Read Tenant;
    GET "/v1/runs/{run}" Read Tenant;
    GET "/v1/runs/{run}/result" Read Tenant;
    POST "/v1/runs/{run}/cancel" Run Tenant;
    POST "/v1/runs/{run}/rerun" Run Tenant;
    GET "/v1/runs/{run}/tree" Read Tenant;
    GET "/v1/runs/{run}/at/{event}" Read Tenant;
    GET "/v1/runs/{run}/replay" Read Tenant;
    GET "/v1/runs/{run}/diff/{other}" Read Tenant;
    GET "/v1/runs/{run}/files/{name}" Read Tenant;
    GET "/v1/runs/{run}/inputs/{name}" Read Tenant;
    GET "/v1/runs/{run}/events" Read Tenant;
    GET "/v1/runs/{run}/logs" Read Tenant;
    GET "/v1/runs/{run}/bundle" Read Tenant;
    GET "/v1/events" Read Tenant;
    GET "/v1/seal-key" Read Tenant;
    POST "/v1/files" Run Tenant;
    GET "/v1/files/{digest}" Read Tenant;
    POST "/v1/capsules" Operate Tenant;
    GET "/v1/capsules" Read Tenant;
    GET "/v1/capsules/{name}" Read Tenant;
    GET "/v1/deadletters" Read Tenant;
    GET "/v1/deadletters/{run}" Read Tenant;
    POST "/v1/deadletters/{run}/requeue" Operate Tenant;
    POST "/v1/deadletters/{run}/purge" Operate Tenant;
    GET "/v1/tokens" Admin Tenant;
    POST "/v1/tokens" Admin Tenant;
    DELETE "/v1/tokens/{token}" Admin Tenant;
    GET "/v1/rules" Read Cluster;
    PUT "/v1/rules/{name}" Admin Cluster;
    DELETE "/v1/rules/{name}" Admin Cluster;
    GET "/v1/retention" Read Cluster;
    PUT "/v1/retention/{name}" Admin Cluster;
    DELETE "/v1/retention/{name}" Admin Cluster;
    GET "/v1/holds" Read Cluster;
    PUT "/v1/holds/{run}" Admin Cluster;
    DELETE "/v1/holds/{run}" Admin Cluster;
    POST "/v1/gc" Operate Cluster;
    GET "/v1/nodes" Read Cluster;
    POST "/v1/nodes/{node}/drain" Operate Cluster;
    POST "/v1/nodes/{node}/resume" Operate Cluster;
    GET "/metrics" Read Cluster;
    POST "/execute" Run Tenant;
    POST "/handoff" Run Tenant;
    GET "/capsules" Read Tenant;
    GET "/capsules/{name}/schema" Read Tenant;
    GET "/visualizer/state" Read Tenant;
}

/// What the route `path` needs for `method`; none for a route that is not in the table: nobody may use that.
/// To ask for the headers alone is as to ask for all.
pub fn needed(method: &str, path: &str) -> Option<Need> {
    let method = if method == "HEAD" { "GET" } else { method };
    let mut routes = ROUTES.iter();
    let found = routes.find(|route| route.method == method && route.path == path);
    found.map(|route| route.need)
}
