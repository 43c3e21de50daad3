//! All routes that people use, for OpenAPI.

use utoipa::openapi::OpenApi as Document;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

use super::{
    audit, capsules, dead_letters, events, files, history, log, logs, nodes, operations, original,
    reruns, results, retention, rules, runs,
};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Agent on Demand",
        description = "Capsules call capsules across hosts. Every refusal is problem+json (RFC 9457) with a `code`.",
    ),
    paths(
        runs::create, runs::list, runs::show, runs::cancel, runs::tree,
        results::result, results::output_file, results::input_file,
        events::events, logs::logs,
        reruns::create, history::at, history::replay, history::difference,
        log::select,
        audit::bundle, audit::seal_key,
        files::upload, files::download,
        capsules::register, capsules::list, capsules::show,
        rules::list, rules::set, rules::remove,
        retention::list, retention::set, retention::remove,
        retention::holds, retention::hold, retention::release, retention::collect,
        nodes::list, nodes::drain, nodes::resume,
        dead_letters::list, dead_letters::show, dead_letters::requeue, dead_letters::purge,
        operations::health, operations::ready, operations::metrics,
        original::execute, original::handoff, original::capsules, original::schema, original::visualizer,
    ),
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

/// The whole description.
pub(crate) fn description() -> Document {
    Description::openapi()
}
