//! Secrets as files of one directory: each file has the secret's name, and contains its value. Secrets of tenants other
//! than `default` are in a subdirectory with the tenant's name.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use aod_domain::manifest::is_secret_name;
use aod_domain::tenant::Tenant;
use aod_ports::secrets::{SECRET_BYTES_MAX, SecretError, SecretStore, SecretValue};
use aod_services::program::blocking;
use async_trait::async_trait;

/// Permissions of a file that users other than its owner must not have.
const MODE_OTHERS: u32 = 0o077;

/// A directory of the operator.
#[derive(Clone, Debug)]
pub struct DirectorySecrets {
    path: PathBuf,
}

impl DirectorySecrets {
    pub const fn new(path: PathBuf) -> Self {
        Self { path }
    }
}

#[async_trait]
impl SecretStore for DirectorySecrets {
    async fn get(&self, tenant: &Tenant, name: &str) -> Result<SecretValue, SecretError> {
        if !is_secret_name(name) {
            return Err(SecretError::Absent {
                name: name.to_owned(),
                reason: "invalid name; expected a name such as OPENAI_API_KEY".to_owned(),
            });
        }
        let path = if tenant.is_default() {
            self.path.clone()
        } else {
            self.path.join(tenant.as_str())
        };
        let name = name.to_owned();
        blocking(move || read(&name, &path)).await
    }
}

fn read(name: &str, directory: &Path) -> Result<SecretValue, SecretError> {
    let path = directory.join(name);
    let broken = |source| SecretError::Store {
        name: name.to_owned(),
        place: path.display().to_string(),
        source,
    };
    let absent = || SecretError::Absent {
        name: name.to_owned(),
        reason: format!("the file {} does not exist", path.display()),
    };
    let file = File::open(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => absent(),
        _ => broken(error),
    })?;
    let metadata = file.metadata().map_err(broken)?;
    // A tenant's directory: its existence stays hidden from other tenants.
    if metadata.is_dir() {
        return Err(absent());
    }
    if !metadata.is_file() {
        return Err(SecretError::Unusable {
            name: name.to_owned(),
            reason: format!("{} is not a regular file", path.display()),
        });
    }
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & MODE_OTHERS != 0 {
        return Err(SecretError::Exposed {
            name: name.to_owned(),
            path,
            mode,
        });
    }
    let mut bytes = Vec::with_capacity(SECRET_BYTES_MAX + 1);
    file.take(SECRET_BYTES_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(broken)?;
    SecretValue::read(name, bytes)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};

    use super::*;

    fn directory(mode: u32) -> (tempfile::TempDir, DirectorySecrets) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("DB_PASSWORD");
        fs::write(&path, "opensesame\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let secrets = DirectorySecrets::new(directory.path().to_owned());
        (directory, secrets)
    }

    #[tokio::test]
    async fn file_readable_by_its_owner_only_is_a_secret() {
        for mode in [0o600, 0o400] {
            let (_directory, secrets) = directory(mode);
            let value = secrets
                .get(&Tenant::default(), "DB_PASSWORD")
                .await
                .unwrap();
            assert_eq!(value.expose(), "opensesame");
        }
    }

    #[tokio::test]
    async fn file_accessible_to_other_users_is_rejected() {
        for mode in [0o640, 0o604, 0o620] {
            let (_directory, secrets) = directory(mode);
            let error = secrets
                .get(&Tenant::default(), "DB_PASSWORD")
                .await
                .unwrap_err();
            assert!(matches!(error, SecretError::Exposed { .. }), "{error}");
            assert!(
                error.to_string().contains(&format!("{mode:04o}")),
                "{error}"
            );
        }
    }

    #[tokio::test]
    async fn missing_file_and_invalid_name_are_absent() {
        let (directory, secrets) = directory(0o600);
        fs::create_dir(directory.path().join("nested")).unwrap();
        fs::write(directory.path().join("nested/KEY"), "x").unwrap();
        for name in ["OTHER", "nested/KEY", "nested", "../DB_PASSWORD", ""] {
            let error = secrets.get(&Tenant::default(), name).await.unwrap_err();
            assert!(error.is_absent(), "{name}: {error}");
        }
    }

    #[tokio::test]
    async fn secret_of_one_tenant_is_absent_for_other_tenants() {
        let (directory, secrets) = directory(0o600);
        let acme: Tenant = "acme".parse().unwrap();
        let missing = secrets.get(&acme, "DB_PASSWORD").await.unwrap_err();
        assert!(missing.is_absent(), "{missing}");
        fs::create_dir(directory.path().join("acme")).unwrap();
        let path = directory.path().join("acme/API_KEY");
        fs::write(&path, "acmes\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let value = secrets.get(&acme, "API_KEY").await.unwrap();
        assert_eq!(value.expose(), "acmes");
        for tenant in ["default", "birds"] {
            let other = tenant.parse().unwrap();
            let missing = secrets.get(&other, "API_KEY").await.unwrap_err();
            assert!(missing.is_absent(), "{tenant}: {missing}");
        }
    }
}
