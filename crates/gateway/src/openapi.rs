//! The OpenAPI description, generated from the routes, and a page that shows it.

use std::fmt::Write as _;
use std::sync::LazyLock;

use serde_json::Value;

use crate::routes::description;

static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
    let mut text = description()
        .to_pretty_json()
        .expect("a description is plain data");
    text.push('\n');
    text
});

/// OpenAPI 3.1 in JSON, as in `docs/contracts/openapi.json` and at `/openapi.json`.
pub fn document() -> &'static str {
    &DOCUMENT
}

/// A page without scripts and without external resources.
pub(crate) fn page() -> String {
    let document: Value = serde_json::from_str(document()).expect("the document is JSON");
    let mut rows = String::new();
    let paths = document["paths"].as_object();
    for (path, methods) in paths.into_iter().flatten() {
        for (method, operation) in methods.as_object().into_iter().flatten() {
            let summary = operation["summary"].as_str().unwrap_or_default();
            let details = operation["description"].as_str().unwrap_or_default();
            writeln!(
                rows,
                "<tr><td><code>{}</code></td><td><code>{}</code></td><td>{}<br><small>{}</small></td></tr>",
                method.to_uppercase(),
                escaped(path),
                escaped(summary),
                escaped(details)
            )
            .expect("writing to memory does not fail");
        }
    }
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Agent on Demand: API</title>\
         <style>body{{font:16px/1.5 sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}}\
         table{{border-collapse:collapse}}td{{padding:.4rem .8rem;border-top:1px solid #ccc;vertical-align:top}}\
         small{{color:#555}}</style><h1>Agent on Demand: API</h1>\
         <p>Details: <a href=\"/openapi.json\">OpenAPI 3.1</a>. Errors are problem+json; \
         their <code>type</code> is a page of this gateway.</p><table>{rows}</table></html>"
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
