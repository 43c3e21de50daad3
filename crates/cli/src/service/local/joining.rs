//! How another node joins the cluster of `aod up`.

use std::path::Path;

use crate::arguments::UpArguments;
use crate::failure::Failure;
use crate::service::nats;
use crate::service::users::Users;

/// The command that starts another node, as a notice; none before the first start of the broker.
pub(crate) fn notice(arguments: &UpArguments, data: &Path) -> Result<Option<String>, Failure> {
    if !arguments.nats.is_empty() {
        let store = arguments.store.as_ref();
        let store = store
            .map(|url| format!(" --store {url}"))
            .unwrap_or_default();
        return Ok(Some(format!(
            "another node joins with: aod node --nats {} --nats-credentials nats-node.creds{store} --data DIR",
            arguments.nats.join(",")
        )));
    }
    let directory = data.join("nats");
    let Some(port) = nats::kept_port(&directory)? else {
        return Ok(None);
    };
    let store = arguments.store.clone();
    let store = store.unwrap_or_else(|| format!("file://{}", data.join("artifacts").display()));
    Ok(Some(format!(
        "another node on this host joins with: aod node --nats nats://127.0.0.1:{port} --nats-credentials {} --store {store} --data DIR",
        Users::of(&directory).node().display()
    )))
}
