//! `aod certs`: the private certificate authority of a cluster, and its certificates.

use crate::arguments::CertsArguments;
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::service::certificates::{Authority, has_key, is_issued, issue, renew_all};

pub(super) fn certs(arguments: &CertsArguments, console: Console) -> Result<Exit, Failure> {
    let directory = &arguments.directory;
    let place = arguments.authority.as_ref().unwrap_or(directory);
    if !has_key(place) && is_issued(directory, &arguments.name, &arguments.hosts) {
        console.tell(&format!(
            "warning: no certificate was renewed, because {} has no ca.key; pass its directory with --authority",
            place.display()
        ));
        return Ok(Exit::Ok);
    }
    let (authority, mut made) = Authority::ensure(place)?;
    made.extend(authority.copy_to(directory)?);
    if arguments.hosts.is_empty() {
        made.extend(renew_all(&authority, directory, arguments.days)?);
    } else {
        let (name, hosts) = (&arguments.name, &arguments.hosts);
        made.extend(issue(&authority, directory, name, hosts, arguments.days)?);
    }
    console.show(&serde_json::json!({ "made": made }), || {
        let lines: Vec<String> = made
            .iter()
            .map(|path| format!("created {}", path.display()))
            .collect();
        if lines.is_empty() {
            return "the authority already exists; create a certificate with --host".to_owned();
        }
        lines.join("\n")
    })?;
    Ok(Exit::Ok)
}
