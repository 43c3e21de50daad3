//! Gathers the secrets that the capsule of one run lists.

use std::collections::BTreeSet;

use aod_domain::error_code::ErrorCode;
use aod_domain::manifest::Secret;
use aod_domain::run::RunError;
use aod_domain::tenant::Tenant;
use aod_ports::container_runtime::{SECRETS_DIRECTORY, SecretFile};
use aod_ports::secrets::{SecretError, SecretStore};
use futures::future::join_all;
use serde_json::json;

use aod_services::error::chain;

/// Maximum size of all secrets of one run as JSON, in bytes: half of the gate's first message.
const SECRETS_BYTES_MAX: usize = 32 * 1024;

/// The secrets for one container.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) files: Vec<SecretFile>,
    /// `<env>_FILE` for each.
    pub(crate) variables: Vec<(String, String)>,
}

/// Reads all `wanted` secrets of `tenant` from `store` concurrently. No container gets a `withheld` secret: the keys of
/// model providers, which are in the same store. `host` is the host name that users see.
///
/// # Errors
/// One [`ErrorCode::SecretMissing`] about all required secrets that are absent, and all unusable ones.
pub(crate) async fn gather(
    tenant: &Tenant,
    wanted: &[Secret],
    store: &dyn SecretStore,
    withheld: &BTreeSet<String>,
    host: &str,
) -> Result<Gathered, RunError> {
    let values = wanted.iter().map(async |secret| {
        let name = secret.name.clone();
        if withheld.contains(&name) {
            let reason = "containers never get the key of a model provider".to_owned();
            return Err(SecretError::Unusable { name, reason });
        }
        store.get(tenant, &name).await
    });
    let values = join_all(values).await;
    let mut gathered = Gathered::default();
    let (mut missing, mut reasons) = (Vec::new(), Vec::new());
    for (secret, value) in wanted.iter().zip(values) {
        match value {
            Ok(value) => {
                let path = format!("{SECRETS_DIRECTORY}/{}", secret.name);
                let variable = format!("{}_FILE", secret.env);
                gathered.variables.push((variable, path));
                let name = secret.name.clone();
                gathered.files.push(SecretFile { name, value });
            }
            Err(error) if error.is_absent() && !secret.required => (),
            Err(error) => {
                missing.push(secret.name.clone());
                reasons.push(chain(&error));
            }
        }
    }
    let size_bytes: usize = gathered.files.iter().map(json_bytes).sum();
    if size_bytes > SECRETS_BYTES_MAX {
        missing = wanted.iter().map(|secret| secret.name.clone()).collect();
        reasons.push(format!(
            "the secrets have {size_bytes} bytes in total; expected at most {SECRETS_BYTES_MAX}"
        ));
    }
    if reasons.is_empty() {
        return Ok(gathered);
    }
    let reasons = reasons.join("; ");
    let text = format!("the operator of the node {host} can fix these secrets: {reasons}");
    let error = RunError::new(ErrorCode::SecretMissing, text);
    Err(error.with_detail(json!({ "secrets": missing })))
}

fn json_bytes(file: &SecretFile) -> usize {
    // A text is always valid JSON.
    serde_json::to_vec(file.value.expose()).map_or(usize::MAX, |json| json.len())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use aod_ports::secrets::{NoSecrets, SecretValue};
    use async_trait::async_trait;

    use super::*;

    #[derive(Debug)]
    struct Kept(BTreeMap<&'static str, String>);

    #[async_trait]
    impl SecretStore for Kept {
        async fn get(&self, tenant: &Tenant, name: &str) -> Result<SecretValue, SecretError> {
            match self.0.get(name) {
                Some(value) => Ok(SecretValue::new(value.clone())),
                None => NoSecrets.get(tenant, name).await,
            }
        }
    }

    fn secret(name: &str, required: bool) -> Secret {
        Secret {
            name: name.to_owned(),
            env: format!("MY_{name}"),
            required,
        }
    }

    /// Gathers for the tenant `default` on the node birch, which withholds nothing.
    async fn gathered(wanted: &[Secret], store: &dyn SecretStore) -> Result<Gathered, RunError> {
        gather(&Tenant::default(), wanted, store, &BTreeSet::new(), "birch").await
    }

    #[tokio::test]
    async fn existing_secret_becomes_a_file_and_a_variable() {
        let store = Kept(BTreeMap::from([("KEY", "opensesame".to_owned())]));
        let wanted = [secret("KEY", true), secret("OTHER", false)];
        let gathered = gathered(&wanted, &store).await.unwrap();
        let variable = ("MY_KEY_FILE".to_owned(), "/run/secrets/KEY".to_owned());
        assert_eq!(gathered.variables, [variable]);
        assert_eq!(gathered.files.len(), 1);
        assert_eq!(gathered.files[0].value.expose(), "opensesame");
        assert!(!format!("{gathered:?}").contains("opensesame"));
    }

    #[tokio::test]
    async fn error_names_all_missing_required_secrets() {
        let wanted = [secret("A", true), secret("B", false), secret("C", true)];
        let error = gathered(&wanted, &NoSecrets).await.unwrap_err();
        assert_eq!(error.code, "secret_missing");
        assert_eq!(error.detail, Some(json!({"secrets": ["A", "C"]})));
        assert!(
            error.message.contains("the node birch"),
            "{}",
            error.message
        );
        assert!(error.message.contains("A: ") && error.message.contains("C: "));
    }

    #[tokio::test]
    async fn key_of_model_provider_is_withheld() {
        let store = Kept(BTreeMap::from([("OPENAI_API_KEY", "sk-1".to_owned())]));
        let withheld = BTreeSet::from(["OPENAI_API_KEY".to_owned()]);
        for required in [true, false] {
            let wanted = [Secret {
                name: "OPENAI_API_KEY".into(),
                env: "KEY".into(),
                required,
            }];
            let error = gather(&Tenant::default(), &wanted, &store, &withheld, "birch")
                .await
                .unwrap_err();
            assert_eq!(error.code, "secret_missing");
            assert!(
                error.message.contains("containers never get the key"),
                "{}",
                error.message
            );
        }
    }

    #[tokio::test]
    async fn secrets_too_large_for_the_gate_are_rejected() {
        let large = |name| (name, "x".repeat(12 * 1024));
        let store = Kept(BTreeMap::from(["A", "B", "C"].map(large)));
        let wanted = ["A", "B", "C"].map(|name| secret(name, true));
        assert!(gathered(&wanted[..2], &store).await.is_ok());
        let error = gathered(&wanted, &store).await.unwrap_err();
        assert!(error.message.contains("at most 32768"), "{}", error.message);
    }
}
