//! `aod credentials`: creates the secrets of a cluster.

use crate::arguments::CredentialsArguments;
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::service::credentials::Credentials;

pub(super) fn credentials(
    arguments: &CredentialsArguments,
    console: Console,
) -> Result<Exit, Failure> {
    let (files, mut made) = Credentials::ensure(&arguments.directory)?;
    if let Some(store) = &arguments.store {
        made.extend(files.users.upgrade(store)?);
    }
    if let Some(name) = &arguments.node {
        made.extend(files.users.add_node(name)?);
    }
    made.sort();
    made.dedup();
    if files.users.are_unlimited() {
        console.tell(&format!(
            "warning: the users in {} are from an earlier version, and each has all rights. Stop nats-server, then \
             run: aod credentials {} --upgrade --store STORE_DIR",
            files.users.configuration().display(),
            arguments.directory.display()
        ));
    }
    let is_reconfigured = made.contains(&files.users.configuration());
    console.show(&serde_json::json!({ "made": made }), || {
        if made.is_empty() {
            return "all credentials already exist".to_owned();
        }
        let mut lines: Vec<_> = made
            .iter()
            .map(|path| format!("created {}", path.display()))
            .collect();
        if is_reconfigured {
            lines.push("reload a running nats-server: `nats-server --signal reload`".to_owned());
        }
        lines.join("\n")
    })?;
    Ok(Exit::Ok)
}
