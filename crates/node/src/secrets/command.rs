//! Secrets from a command of the operator, for any vault.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use aod_domain::manifest::is_secret_name;
use aod_domain::tenant::Tenant;
use aod_ports::secrets::{SECRET_BYTES_MAX, SecretError, SecretStore, SecretValue};
use async_trait::async_trait;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::time::timeout;

/// How long the command may take: enough for two requests to a vault in another country.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum length of the quoted part of the command's stderr, in bytes.
const COMPLAINT_BYTES_MAX: u64 = 256;

/// A command that gets the name of a secret as its last argument and prints the value. For tenants other than
/// `default` the name is `tenant/NAME`.
#[derive(Clone, Debug)]
pub struct CommandSecrets {
    program: String,
    arguments: Vec<String>,
    limit: Duration,
}

/// Why a text is not a command.
#[derive(Debug, Error)]
#[error("{text:?} is not a command; expected a program and its arguments, quoted as for a shell")]
pub struct MalformedCommand {
    text: String,
}

impl CommandSecrets {
    /// Splits `text` into words as a shell does, without running a shell.
    pub fn parse(text: &str) -> Result<Self, MalformedCommand> {
        let mut words = shlex::split(text).unwrap_or_default().into_iter();
        let program = words.next().ok_or_else(|| MalformedCommand {
            text: text.to_owned(),
        })?;
        Ok(Self {
            program,
            arguments: words.collect(),
            limit: COMMAND_TIMEOUT,
        })
    }

    async fn run(&self, name: &str) -> std::io::Result<(ExitStatus, Vec<u8>, Vec<u8>)> {
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .arg(name)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let (printed, complaint) = tokio::try_join!(
            beginning(child.stdout.take(), SECRET_BYTES_MAX as u64 + 1),
            beginning(child.stderr.take(), COMPLAINT_BYTES_MAX),
        )?;
        Ok((child.wait().await?, printed, complaint))
    }
}

fn asked(tenant: &Tenant, name: &str) -> String {
    if tenant.is_default() {
        name.to_owned()
    } else {
        format!("{tenant}/{name}")
    }
}

#[async_trait]
impl SecretStore for CommandSecrets {
    async fn get(&self, tenant: &Tenant, name: &str) -> Result<SecretValue, SecretError> {
        let absent = |reason| SecretError::Absent {
            name: name.to_owned(),
            reason,
        };
        if !is_secret_name(name) {
            let reason = "invalid name; expected a name such as OPENAI_API_KEY";
            return Err(absent(reason.to_owned()));
        }
        let ran = timeout(self.limit, self.run(&asked(tenant, name))).await;
        let ran = ran.map_err(|_| SecretError::TimedOut {
            name: name.to_owned(),
            limit: self.limit,
        })?;
        let (status, printed, complaint) = ran.map_err(|source| SecretError::Store {
            name: name.to_owned(),
            place: format!("the secret command {}", self.program),
            source,
        })?;
        if status.success() {
            return SecretValue::read(name, printed);
        }
        let complaint = String::from_utf8_lossy(&complaint);
        let complaint = complaint.lines().next().unwrap_or_default();
        Err(absent(format!(
            "the secret command {} ended with {status} and printed {complaint:?}",
            self.program
        )))
    }
}

/// The first `bytes_max` bytes of an output; reads and drops the rest, so that the command does not block.
async fn beginning(
    output: Option<impl AsyncRead + Unpin>,
    bytes_max: u64,
) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(output) = output {
        let mut bounded = output.take(bytes_max);
        bounded.read_to_end(&mut bytes).await?;
        tokio::io::copy(&mut bounded.into_inner(), &mut tokio::io::sink()).await?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn store(text: &str) -> CommandSecrets {
        CommandSecrets::parse(text).unwrap()
    }

    #[tokio::test]
    async fn command_gets_tenant_and_name_for_other_tenants() {
        let acme = "acme".parse().unwrap();
        let value = store("printf 'the value of %s\\n'")
            .get(&acme, "API_KEY")
            .await;
        assert_eq!(value.unwrap().expose(), "the value of acme/API_KEY");
    }

    #[tokio::test]
    async fn command_gets_name_as_last_argument() {
        let value = store("printf 'the value of %s\\n'")
            .get(&Tenant::default(), "API_KEY")
            .await;
        assert_eq!(value.unwrap().expose(), "the value of API_KEY");
    }

    #[tokio::test]
    async fn invalid_name_is_absent_without_running_the_command() {
        for name in ["--help", "$(id)", "a b", ""] {
            let error = store("printf %s")
                .get(&Tenant::default(), name)
                .await
                .unwrap_err();
            assert!(error.is_absent(), "{name}: {error}");
        }
    }

    #[tokio::test]
    async fn secret_is_absent_if_the_command_fails() {
        let secrets = store("sh -c 'echo value; echo no such thing >&2; exit 3'");
        let error = secrets
            .get(&Tenant::default(), "API_KEY")
            .await
            .unwrap_err();
        assert!(error.is_absent());
        let text = error.to_string();
        assert!(
            text.contains("exit status: 3") && text.contains("no such thing"),
            "{text}"
        );
        assert!(!text.contains("value"), "{text}");
    }

    #[tokio::test]
    async fn command_beyond_its_time_limit_is_killed() {
        let secrets = CommandSecrets {
            limit: Duration::from_millis(100),
            ..store("sh -c 'exec sleep 60'")
        };
        let began = Instant::now();
        let error = secrets
            .get(&Tenant::default(), "API_KEY")
            .await
            .unwrap_err();
        assert!(matches!(error, SecretError::TimedOut { .. }), "{error}");
        assert!(began.elapsed() < Duration::from_secs(30));
    }

    #[tokio::test]
    async fn too_large_value_is_rejected_without_blocking() {
        let secrets = store("sh -c 'head -c 1000000 /dev/zero'");
        let error = secrets
            .get(&Tenant::default(), "API_KEY")
            .await
            .unwrap_err();
        assert!(error.to_string().contains("larger than"), "{error}");
    }

    #[tokio::test]
    async fn missing_program_is_named_in_the_error() {
        let error = store("/nowhere/vault read")
            .get(&Tenant::default(), "API_KEY")
            .await;
        assert!(error.unwrap_err().to_string().contains("/nowhere/vault"));
    }

    #[test]
    fn text_without_words_is_rejected() {
        for text in ["", "  ", "vault 'read"] {
            assert!(CommandSecrets::parse(text).is_err(), "{text}");
        }
    }
}
