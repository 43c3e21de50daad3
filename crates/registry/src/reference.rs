//! Where images are: names in registries, and layouts in directories.

use std::path::PathBuf;
use std::str::FromStr;

use aod_domain::digest::Digest;
use reqwest::Url;
use thiserror::Error;

use crate::manifest::parse_digest;

/// Docker's own registry, and what Docker calls it in files with credentials. Source: moby, `registry/config.go`.
const DOCKER_HUB: &str = "docker.io";
const DOCKER_HUB_ADDRESS: &str = "registry-1.docker.io";
const DOCKER_HUB_LOGIN: &str = "https://index.docker.io/v1/";

/// Maximum length of a name, in bytes. Source: distribution, `reference.NameTotalLengthMax`.
const NAME_BYTES_MAX: usize = 255;

/// Maximum length of a tag, in bytes. Source: OCI distribution specification 1.1, "Pulling manifests".
const TAG_BYTES_MAX: usize = 128;

/// The start of the text that names a layout.
const LAYOUT: &str = "oci:";

/// The place of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Registry(Reference),
    /// A directory in the format of OCI, and the tag of the image there.
    Layout {
        path: PathBuf,
        tag: Option<String>,
    },
}

/// An image in a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Without tag and digest, as people wrote it.
    name: String,
    registry: String,
    /// The path in the registry.
    pub(crate) repository: String,
    pub(crate) tag: String,
    pub(crate) digest: Option<Digest>,
}

/// A text that names no place of an image.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("invalid reference {text:?}: {problem}")]
pub struct InvalidReference {
    text: String,
    problem: &'static str,
}

impl InvalidReference {
    fn of(text: &str, problem: &'static str) -> Self {
        let text = text.chars().take(NAME_BYTES_MAX).collect();
        Self { text, problem }
    }
}

impl FromStr for Reference {
    type Err = InvalidReference;

    fn from_str(text: &str) -> Result<Self, InvalidReference> {
        Self::parse(text).map_err(|problem| InvalidReference::of(text, problem))
    }
}

impl Place {
    /// Parses `registry/name:tag`, `registry/name@sha256:…` or `oci:PATH[:TAG]`.
    pub fn parse(text: &str) -> Result<Self, InvalidReference> {
        let invalid = |problem| InvalidReference::of(text, problem);
        let Some(layout) = text.strip_prefix(LAYOUT) else {
            return text.parse().map(Self::Registry);
        };
        let (path, tag) = match layout.rsplit_once(':') {
            Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
            _ => (layout, None),
        };
        if path.is_empty() {
            return Err(invalid("expected oci:PATH or oci:PATH:TAG"));
        }
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(invalid(INVALID_TAG));
        }
        Ok(Self::Layout {
            path: path.into(),
            tag: tag.map(str::to_owned),
        })
    }
}

const INVALID_TAG: &str = "expected a tag of at most 128 of A-Z, a-z, 0-9, _, . and -";

impl Reference {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => {
                let digest = parse_digest(digest);
                let digest = digest.ok_or("expected sha256: with 64 lower-case digits after @");
                (rest, Some(digest?))
            }
            None => (text, None),
        };
        let (name, tag) = match rest.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => (name, tag),
            _ => (rest, "latest"),
        };
        if !is_tag(tag) {
            return Err(INVALID_TAG);
        }
        let (registry, path) = match name.split_once('/') {
            Some((host, path)) if host == "localhost" || host.contains(['.', ':']) => (host, path),
            _ => (DOCKER_HUB, name),
        };
        if name.len() > NAME_BYTES_MAX || !path.split('/').all(is_component) {
            return Err(
                "expected a name of a-z, 0-9, _, . and -, with parts separated by /, as in registry.example/team/words:1",
            );
        }
        let is_of_docker = registry == DOCKER_HUB && !path.contains('/');
        let reference = Self {
            name: name.to_owned(),
            registry: registry.to_owned(),
            repository: if is_of_docker {
                format!("library/{path}")
            } else {
                path.to_owned()
            },
            tag: tag.to_owned(),
            digest,
        };
        // `user@host` is not a host, nor is `host?query`.
        let address = reference.address();
        let is_host = address.is_some_and(|url| {
            url.path() == "/" && url.username().is_empty() && url.query().is_none()
        });
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
        let begins = |character: char| character.is_ascii_alphanumeric() || character == '[';
        if !is_host || !registry.starts_with(begins) || !registry.bytes().all(is_plain) {
            return Err("expected a host, or host:port, before the first /");
        }
        Ok(reference)
    }

    /// `name@sha256:…`: this image for ever.
    pub fn at(&self, digest: Digest) -> String {
        format!("{}@sha256:{digest}", self.name)
    }

    /// Whether it names an image by its digest.
    pub const fn is_exact(&self) -> bool {
        self.digest.is_some()
    }

    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The key of the registry in the file that `docker login` writes.
    pub fn login(&self) -> &str {
        if self.registry == DOCKER_HUB {
            DOCKER_HUB_LOGIN
        } else {
            &self.registry
        }
    }

    /// The tag or, if the reference has one, the digest.
    pub(crate) fn version(&self) -> String {
        match self.digest {
            Some(digest) => format!("sha256:{digest}"),
            None => self.tag.clone(),
        }
    }

    /// The root of the registry: HTTP on loopback addresses, HTTPS for all others.
    pub(crate) fn address(&self) -> Option<Url> {
        let host = match self.registry.as_str() {
            DOCKER_HUB => DOCKER_HUB_ADDRESS,
            host => host,
        };
        let url = Url::parse(&format!("https://{host}/")).ok()?;
        if is_loopback(&url) {
            return Url::parse(&format!("http://{host}/")).ok();
        }
        Some(url)
    }
}

/// Whether the host is a loopback address, or `localhost`.
pub(crate) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || address
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

pub(crate) fn is_tag(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    (1..=TAG_BYTES_MAX).contains(&text.len())
        && text.bytes().all(is_inner)
        && !text.starts_with(['.', '-'])
}

/// Whether the text is a part of a repository's name. Source: OCI distribution specification 1.1, "Pulling manifests".
fn is_component(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = [text.bytes().next(), text.bytes().next_back()];
    ends.iter().all(|end| end.is_some_and(is_letter))
        && text
            .bytes()
            .all(|byte| is_letter(byte) || b"_.-".contains(&byte))
        && !text.contains("..")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(text: &str) -> Reference {
        match Place::parse(text) {
            Ok(Place::Registry(reference)) => reference,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn reference_names_its_registry_and_its_tag() {
        for (text, address, repository, version) in [
            (
                "one",
                "https://registry-1.docker.io/",
                "library/one",
                "latest",
            ),
            (
                "team/one:2",
                "https://registry-1.docker.io/",
                "team/one",
                "2",
            ),
            (
                "docker.io/one",
                "https://registry-1.docker.io/",
                "library/one",
                "latest",
            ),
            ("host.example/a/b:1", "https://host.example/", "a/b", "1"),
            ("host:5000/one", "https://host:5000/", "one", "latest"),
            ("localhost/one", "http://localhost/", "one", "latest"),
            (
                "127.0.0.1:5000/one:x_1",
                "http://127.0.0.1:5000/",
                "one",
                "x_1",
            ),
            ("[::1]:5000/one", "http://[::1]:5000/", "one", "latest"),
        ] {
            let found = reference(text);
            assert_eq!(found.address().unwrap().as_str(), address, "{text}");
            assert_eq!(found.repository, repository, "{text}");
            assert_eq!(found.version(), version, "{text}");
        }
        let digest = Digest::of("image");
        let exact = reference("host.example/one:1").at(digest);
        assert_eq!(exact, format!("host.example/one@sha256:{digest}"));
        assert_eq!(reference(&exact).version(), format!("sha256:{digest}"));
        assert_eq!(reference("one").login(), "https://index.docker.io/v1/");
        assert_eq!(reference("host:5000/one").login(), "host:5000");
    }

    #[test]
    fn layout_has_a_path_and_a_tag() {
        for (text, path, tag) in [
            ("oci:/media/usb", "/media/usb", None),
            ("oci:images:1.0", "images", Some("1.0")),
            ("oci:a:b/images", "a:b/images", None),
        ] {
            let expected = Place::Layout {
                path: path.into(),
                tag: tag.map(str::to_owned),
            };
            assert_eq!(Place::parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        let long = "a".repeat(256);
        for text in [
            "",
            "One",
            "a//b",
            "../a",
            "a/../b",
            "a b",
            "-a",
            "a:",
            "a:b c",
            "a@sha256:1",
            "user@host.example/a",
            "host.example?x/a",
            "host.example:port/a",
            "http://host.example/a",
            "oci:",
            "oci::1",
            "oci:a:",
            "oci:a:b c",
            &long,
        ] {
            assert!(Place::parse(text).is_err(), "{text}");
        }
    }
}
