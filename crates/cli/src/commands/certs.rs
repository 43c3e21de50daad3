//! `aod certs`: the private authority of a cluster, and certificates by it.

use crate::arguments::CertsArguments;
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::service::certificates::{Authority, has_key, is_issued, issue, issue_anew};

pub(super) fn certs(arguments: &CertsArguments, console: Console) -> Result<Exit, Failure> {
    let directory = &arguments.directory;
    let place = arguments.authority.as_ref().unwrap_or(directory);
    if !has_key(place) && is_issued(directory, &arguments.name, &arguments.hosts) {
        console.tell(&format!(
            "warning: nothing is issued anew, since ca.key is not in {}; --authority names where it is",
            place.display()
        ));
        return Ok(Exit::Ok);
    }
    let (authority, mut made) = Authority::ensure(place)?;
    made.extend(authority.copy_to(directory)?);
    if arguments.hosts.is_empty() {
        made.extend(issue_anew(&authority, directory, arguments.days)?);
    } else {
        let (name, hosts) = (&arguments.name, &arguments.hosts);
        made.extend(issue(&authority, directory, name, hosts, arguments.days)?);
    }
    console.show(&serde_json::json!({ "made": made }), || {
        let lines: Vec<String> = made
            .iter()
            .map(|path| format!("made {}", path.display()))
            .collect();
        if lines.is_empty() {
            return "the authority is there already; --host names what a certificate is for"
                .to_owned();
        }
        lines.join("\n")
    })?;
    Ok(Exit::Ok)
}
