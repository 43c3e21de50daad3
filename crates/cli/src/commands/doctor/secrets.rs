//! What `aod doctor` says of the operator's secrets: which cannot be used, and which cannot be hidden.

use std::path::Path;

use aod_node::{DirectorySecrets, REDACTED_BYTES_MIN};
use aod_ports::secrets::SecretStore as _;

use super::{Check, Status};

/// Looks at every file of the directory; no value is shown.
pub(super) async fn check(directory: &Path) -> Check {
    const NAME: &str = "secrets";
    let shown = directory.display();
    let entries = std::fs::read_dir(directory).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let entries = match entries {
        Ok(entries) => entries,
        Err(error) => {
            return Check::new(NAME, Status::Failed, format!("{shown}: {error}"))
                .advise("name the directory with the operator's secrets with --secrets");
        }
    };
    let mut names: Vec<String> = entries
        .iter()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        // What mounts keep for themselves.
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort_unstable();
    let store = DirectorySecrets::new(directory.to_owned());
    let (mut unusable, mut short) = (Vec::new(), Vec::new());
    for name in &names {
        match store.get(name).await {
            Ok(value) if value.expose().len() < REDACTED_BYTES_MIN => short.push(name.as_str()),
            Ok(_) => (),
            Err(error) => unusable.push(error.to_string()),
        }
    }
    if !unusable.is_empty() {
        return Check::new(NAME, Status::Failed, unusable.join("; "))
            .advise("runs that need one of these fail: mend the file, or move it elsewhere");
    }
    if !short.is_empty() {
        let text = format!(
            "{}: shorter than {REDACTED_BYTES_MIN} bytes",
            short.join(", ")
        );
        return Check::new(NAME, Status::Warning, text)
            .advise("values so short are not taken out of logs and answers: choose longer ones");
    }
    Check::new(NAME, Status::Ok, format!("{} in {shown}", names.len()))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[tokio::test]
    async fn what_is_wrong_with_secrets_is_told_without_them() {
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
        write("OPEN", "opensesame", 0o644);
        let found = check(directory.path()).await;
        assert_eq!(found.status, Status::Failed);
        assert!(found.found.contains("has the mode 0644"), "{found:?}");
        assert!(!format!("{found:?}").contains("opensesame"), "{found:?}");
        let found = check(&directory.path().join("nowhere")).await;
        assert_eq!(found.status, Status::Failed);
    }
}
