//! The check of the operator's secrets by `aod doctor`: unusable values, and values too short to redact.

use std::path::Path;

use aod_domain::tenant::Tenant;
use aod_node::{DirectorySecrets, REDACTED_BYTES_MIN};
use aod_ports::secrets::SecretStore as _;

use super::{Check, Status};

/// Checks every file of the directory, without showing values.
pub(super) async fn check(directory: &Path) -> Check {
    const NAME: &str = "secrets";
    let shown = directory.display();
    let names = match names(directory) {
        Ok(names) => names,
        Err(error) => {
            return Check::new(NAME, Status::Failed, format!("{shown}: {error}"))
                .advise("pass the directory with the operator's secrets with --secrets");
        }
    };
    let store = DirectorySecrets::new(directory.to_owned());
    let (mut unusable, mut short) = (Vec::new(), Vec::new());
    for (tenant, name) in &names {
        match store.get(tenant, name).await {
            Ok(value) if value.expose().len() < REDACTED_BYTES_MIN => short.push(name.as_str()),
            Ok(_) => (),
            Err(error) => unusable.push(error.to_string()),
        }
    }
    if !unusable.is_empty() {
        return Check::new(NAME, Status::Failed, unusable.join("; "))
            .advise("runs that need one of these secrets fail: fix the file, or remove it from the directory");
    }
    if !short.is_empty() {
        let text = format!(
            "{}: shorter than {REDACTED_BYTES_MIN} bytes",
            short.join(", ")
        );
        return Check::new(NAME, Status::Warning, text).advise(
            "AOD does not redact values this short in logs and outputs: choose longer ones",
        );
    }
    Check::new(NAME, Status::Ok, format!("{} in {shown}", names.len()))
}

/// Secrets with their tenants: files in the directory belong to `default`, files in a subdirectory to its tenant.
fn names(directory: &Path) -> std::io::Result<Vec<(Tenant, String)>> {
    let mut names = Vec::new();
    for name in listed(directory)? {
        let path = directory.join(&name);
        match name.parse::<Tenant>() {
            Ok(tenant) if path.is_dir() => {
                let own = listed(&path)?.into_iter();
                names.extend(own.map(|name| (tenant.clone(), name)));
            }
            _ => names.push((Tenant::default(), name)),
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn listed(directory: &Path) -> std::io::Result<Vec<String>> {
    let entries = std::fs::read_dir(directory)?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let names: std::io::Result<Vec<String>> = names.collect();
    let mut names = names?;
    // Mounts create hidden files for themselves.
    names.retain(|name| !name.starts_with('.'));
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[tokio::test]
    async fn unusable_and_short_secrets_are_reported_without_values() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, value: &str, mode: u32| {
            let path = directory.path().join(name);
            fs::write(&path, value).unwrap();
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        write("KEY", "opensesame", 0o600);
        let found = check(directory.path()).await;
        assert_eq!(found.status, Status::Ok, "{found:?}");
        write("PIN", "12345", 0o600);
        let found = check(directory.path()).await;
        assert_eq!(found.status, Status::Warning);
        assert!(
            found.found.starts_with("PIN: shorter than 6 bytes"),
            "{found:?}"
        );
        fs::create_dir(directory.path().join("acme")).unwrap();
        write("acme/CODE", "123", 0o600);
        let found = check(directory.path()).await;
        assert!(found.found.starts_with("CODE, PIN: shorter"), "{found:?}");
        write("OPEN", "opensesame", 0o644);
        let found = check(directory.path()).await;
        assert_eq!(found.status, Status::Failed);
        assert!(found.found.contains("has the mode 0644"), "{found:?}");
        assert!(!format!("{found:?}").contains("opensesame"), "{found:?}");
        let found = check(&directory.path().join("nowhere")).await;
        assert_eq!(found.status, Status::Failed);
    }
}
