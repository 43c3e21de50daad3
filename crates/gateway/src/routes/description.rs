//! The OpenAPI description of all routes of the public API.

use aod_domain::access::{Need, Reach};
use utoipa::openapi::OpenApi as Document;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

use super::{Descriptions, ROUTES, Route, operations};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Agent on Demand",
        description = "Capsules call capsules across hosts. Every error is problem+json (RFC 9457) with a `code`. With a token for all tenants, the header `Aod-Tenant` selects the tenant of a request.",
    ),
    paths(operations::health, operations::ready),
    modifiers(&Bearer),
    security(("bearer" = [])),
)]
struct Description;

struct Bearer;

impl Modify for Bearer {
    fn modify(&self, document: &mut Document) {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("bearer", SecurityScheme::Http(scheme));
    }
}

/// Adds the required role to the description of each route.
fn add_needs(document: &mut Document) {
    for (path, item) in &mut document.paths.paths {
        let operations = [
            ("GET", &mut item.get),
            ("POST", &mut item.post),
            ("PUT", &mut item.put),
            ("DELETE", &mut item.delete),
        ];
        for (method, operation) in operations {
            let is_this = |route: &&Route| route.method == method && route.plain_path() == *path;
            let route = ROUTES.iter().find(is_this);
            if let (Some(operation), Some(route)) = (operation, route) {
                add_need(operation, route.need);
            }
        }
    }
}

fn add_need(operation: &mut Operation, need: Need) {
    let role = need.role;
    let sentence = match need.reach {
        Reach::Tenant => format!("Requires the role `{role}`."),
        Reach::Cluster => format!("Requires the role `{role}` for all tenants."),
    };
    let exception = if need.compatibility {
        " Needs no token if the gateway is open to agent-on-demand."
    } else {
        ""
    };
    let description = operation.description.take().unwrap_or_default();
    let text = format!("{description}\n\n{sentence}{exception}");
    operation.description = Some(text.trim().to_owned());
}

/// The OpenAPI document.
pub(crate) fn description() -> Document {
    let mut document = Description::openapi();
    document.merge(Descriptions::openapi());
    add_needs(&mut document);
    document
}
