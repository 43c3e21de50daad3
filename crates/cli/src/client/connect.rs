//! The choice of the gateway: the named one, otherwise the one that `aod up` started on this machine.

use super::Client;
use crate::arguments::ConnectArguments;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::service::connection::Connection;
use crate::service::credentials::read_token;
use crate::service::data;
use crate::service::local::{Holder, Lock};

impl Client {
    /// The gateway that `arguments` name.
    pub(crate) fn connect(arguments: &ConnectArguments) -> Result<Self, Failure> {
        let named = arguments.token_file.as_deref();
        let tenant = arguments.acting_for.as_deref();
        if let Some(url) = &arguments.url {
            check_url(url)?;
            let token = named.map(read_token).transpose()?;
            let hint = "check the address (--url or AOD_URL), and that a gateway runs there";
            let authority = arguments.certificate_authority.as_deref();
            return Self::new(url, token.as_deref(), tenant, hint.to_owned(), authority);
        }
        let data = data::directory(arguments.data.as_deref())?;
        let connection = Connection::read(&data).ok_or_else(|| not_running(&data))?;
        if Lock::holder(&data)? == Holder::Nobody {
            return Err(not_running(&data));
        }
        let token = read_token(named.unwrap_or(&connection.token_file))?;
        let hint = format!(
            "process {1} should be the `aod up` with the data directory {0}; check with `aod doctor`",
            data.display(),
            connection.pid
        );
        Self::new(&connection.url, Some(&token), tenant, hint, None)
    }
}

/// No gateway is named, and none runs on `data`.
pub(crate) fn not_running(data: &std::path::Path) -> Failure {
    Failure::new(Exit::Unreachable, format!("no `aod up` runs with the data directory {}, and no gateway address is set", data.display()))
        .with_hint("run `aod up --detach`, or set AOD_URL to the address of a gateway and AOD_TOKEN_FILE to its token file")
}

fn check_url(url: &str) -> Result<(), Failure> {
    let rest = url
        .strip_prefix("http://")
        .or_else(|| url.strip_prefix("https://"));
    match rest {
        Some(rest) if !rest.is_empty() && !rest.starts_with('/') => Ok(()),
        _ => Err(
            Failure::usage(format!("{url:?} is not an address of a gateway"))
                .with_hint("expected an address such as http://127.0.0.1:8080"),
        ),
    }
}
