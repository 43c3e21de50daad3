//! Which gateway to talk to: the one that was named, else the one that `aod up` started here.

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
            let hint =
                "see that the address is right (--url or AOD_URL), and that a gateway runs there";
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
            "`aod up` on {} should be there as process {}: `aod doctor` looks closer",
            data.display(),
            connection.pid
        );
        Self::new(&connection.url, Some(&token), tenant, hint, None)
    }
}

/// No gateway is named, and none runs on `data`.
pub(crate) fn not_running(data: &std::path::Path) -> Failure {
    Failure::new(Exit::Unreachable, format!("no `aod up` runs on {}, and no gateway is named", data.display()))
        .with_hint("start one with `aod up --detach`, or name a gateway in AOD_URL and its token in AOD_TOKEN_FILE")
}

fn check_url(url: &str) -> Result<(), Failure> {
    let rest = url
        .strip_prefix("http://")
        .or_else(|| url.strip_prefix("https://"));
    match rest {
        Some(rest) if !rest.is_empty() && !rest.starts_with('/') => Ok(()),
        _ => Err(
            Failure::usage(format!("{url:?} is no address of a gateway"))
                .with_hint("it looks like http://127.0.0.1:8080"),
        ),
    }
}
