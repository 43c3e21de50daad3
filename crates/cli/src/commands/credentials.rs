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
    let (_, made) = Credentials::ensure(&arguments.directory)?;
    console.show(&serde_json::json!({ "made": made }), || {
        if made.is_empty() {
            return "all credentials are there already".to_owned();
        }
        let lines: Vec<_> = made
            .iter()
            .map(|path| format!("made {}", path.display()))
            .collect();
        lines.join(
            "
",
        )
    })?;
    Ok(Exit::Ok)
}
