//! Credentials of private registries, by registry name: the file that `docker login` writes.

use std::collections::HashMap;
use std::path::Path;

use aod_ports::BoxError;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bollard::auth::DockerCredentials;
use serde::Deserialize;
use thiserror::Error;

/// `{"auths": {"registry.example:5000": {"auth": "…"}}}`; builds ignore the rest.
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    auths: HashMap<String, Entry>,
}

/// User and password, separate or as base64 of `user:password`.
#[derive(Deserialize)]
struct Entry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
}

/// An entry without user and password. The message does not contain the entry.
#[derive(Debug, Error)]
#[error(
    "invalid credentials for {registry}; expected auth, or username and password, as docker login writes them"
)]
struct Unusable {
    registry: String,
}

/// Reads the file each time: credentials change while a node runs.
pub(crate) fn read(path: &Path) -> Result<HashMap<String, DockerCredentials>, BoxError> {
    let text = std::fs::read(path)?;
    // The library's error would quote the file.
    let file: File = serde_json::from_slice(&text)
        .map_err(|error| format!("invalid JSON at line {}", error.line()))?;
    let mut all = HashMap::new();
    for (registry, entry) in file.auths {
        let (username, password) = entry.pair().ok_or_else(|| Unusable {
            registry: registry.clone(),
        })?;
        let credentials = DockerCredentials {
            username: Some(username),
            password: Some(password),
            serveraddress: Some(registry.clone()),
            ..DockerCredentials::default()
        };
        all.insert(registry, credentials);
    }
    Ok(all)
}

impl Entry {
    fn pair(self) -> Option<(String, String)> {
        if let (Some(username), Some(password)) = (self.username, self.password) {
            return Some((username, password));
        }
        let bytes = BASE64_STANDARD.decode(self.auth?).ok()?;
        let text = String::from_utf8(bytes).ok()?;
        let (username, password) = text.split_once(':')?;
        Some((username.to_owned(), password.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<HashMap<String, DockerCredentials>, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.json");
        std::fs::write(&path, text).unwrap();
        read(&path).map_err(|error| error.to_string())
    }

    #[test]
    fn file_of_docker_login_is_parsed() {
        let text = r#"{"auths": {"one:5000": {"auth": "dXNlcjpwYTpzcw=="},
            "two": {"username": "u", "password": "p"}}, "credsStore": ""}"#;
        let all = read_text(text).unwrap();
        assert_eq!(all["one:5000"].username.as_deref(), Some("user"));
        assert_eq!(all["one:5000"].password.as_deref(), Some("pa:ss"));
        assert_eq!(all["two"].password.as_deref(), Some("p"));
    }

    #[test]
    fn error_names_unusable_credentials_without_their_value() {
        let error = read_text(r#"{"auths": {"one": {"auth": "c2VjcmV0"}}}"#).unwrap_err();
        assert!(error.contains("one") && !error.contains("c2Vj"), "{error}");
        let error = read_text("{\"auths\": \"secret").unwrap_err();
        assert!(!error.contains("secret"), "{error}");
    }
}
