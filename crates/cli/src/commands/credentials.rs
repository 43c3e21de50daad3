//! `aod credentials`: the secrets of a cluster, made once.

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
            "warning: the users of {} are of an earlier version: each may do everything. Stop nats-server, then: \
             aod credentials {} --upgrade --store ITS_STORE_DIR",
            files.users.configuration().display(),
            arguments.directory.display()
        ));
    }
    let is_configured_anew = made.contains(&files.users.configuration());
    console.show(&serde_json::json!({ "made": made }), || {
        if made.is_empty() {
            return "all credentials are there already".to_owned();
        }
        let mut lines: Vec<_> = made
            .iter()
            .map(|path| format!("made {}", path.display()))
            .collect();
        if is_configured_anew {
            lines.push(
                "a nats-server that runs takes it with `nats-server --signal reload`".to_owned(),
            );
        }
        lines.join("\n")
    })?;
    Ok(Exit::Ok)
}
