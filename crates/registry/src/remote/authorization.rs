//! How a client proves its rights to a registry: with a password, or with a token that another server gives for it.
//!
//! Source: RFC 9110, section 11, and distribution, "Token Authentication Specification".

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::HeaderValue;
use reqwest::Url;
use serde::Deserialize;

/// User and password of a registry. `Debug` does not show the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub user: String,
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Credentials");
        shown.field("user", &self.user).finish_non_exhaustive()
    }
}

impl Credentials {
    /// The header of HTTP's basic authentication.
    pub(crate) fn basic(&self) -> HeaderValue {
        let pair = BASE64_STANDARD.encode(format!("{}:{}", self.user, self.password));
        secret(&format!("Basic {pair}")).expect("base64 is a header's value")
    }
}

/// What a registry asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Challenge {
    Basic,
    /// A token of the server at `realm`.
    Bearer {
        realm: Url,
        service: Option<String>,
    },
}

impl Challenge {
    /// Parses the header `WWW-Authenticate`; none for other kinds.
    pub fn parse(header: &str) -> Option<Self> {
        let (kind, parameters) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
        if kind.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !kind.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let (mut realm, mut service) = (None, None);
        let mut rest = parameters;
        while let Some((name, value, after)) = parameter(rest) {
            match name.to_ascii_lowercase().as_str() {
                "realm" => realm = Url::parse(&value).ok(),
                "service" => service = Some(value),
                _ => (),
            }
            rest = after;
        }
        let realm = realm.filter(Url::has_host)?;
        Some(Self::Bearer { realm, service })
    }
}

/// The first `name=value` or `name="value"` of a list, and the rest of the list.
fn parameter(text: &str) -> Option<(&str, String, &str)> {
    let text = text.trim_start_matches([' ', ',', '\t']);
    let (name, rest) = text.split_once('=')?;
    let Some(quoted) = rest.trim_start().strip_prefix('"') else {
        let end = rest.find(',').unwrap_or(rest.len());
        return Some((name.trim(), rest[..end].trim().to_owned(), &rest[end..]));
    };
    let (mut value, mut is_escaped) = (String::new(), false);
    for (at, character) in quoted.char_indices() {
        match character {
            '\\' if !is_escaped => is_escaped = true,
            '"' if !is_escaped => return Some((name.trim(), value, &quoted[at + 1..])),
            _ => {
                value.push(character);
                is_escaped = false;
            }
        }
    }
    None
}

/// The answer of a server of tokens; servers use either name.
#[derive(Deserialize)]
struct Token {
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    access_token: Option<String>,
}

/// The header with the token in an answer; none if the answer has no token.
pub fn bearer(answer: &[u8]) -> Option<HeaderValue> {
    let answer: Token = serde_json::from_slice(answer).ok()?;
    let token = answer.token.or(answer.access_token)?;
    secret(&format!("Bearer {token}"))
}

fn secret(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn realm_of(header: &str) -> Option<(String, Option<String>)> {
        match Challenge::parse(header)? {
            Challenge::Bearer { realm, service } => Some((realm.to_string(), service)),
            Challenge::Basic => panic!("{header}"),
        }
    }

    #[test]
    fn challenges_of_registries_are_read() {
        assert_eq!(
            Challenge::parse("Basic realm=\"x\""),
            Some(Challenge::Basic)
        );
        assert_eq!(Challenge::parse("basic"), Some(Challenge::Basic));
        let docker = "Bearer realm=\"https://auth.docker.io/token\",service=\"registry.docker.io\",scope=\"a:b,c\"";
        let service = Some("registry.docker.io".to_owned());
        assert_eq!(
            realm_of(docker),
            Some(("https://auth.docker.io/token".into(), service))
        );
        let plain = "bearer scope=\"x\\\"realm=\", Realm=https://a.example/t , error=\"y\"";
        assert_eq!(realm_of(plain), Some(("https://a.example/t".into(), None)));
    }

    #[test]
    fn other_headers_are_no_challenges() {
        for text in [
            "",
            "Negotiate",
            "Bearer",
            "Bearer realm",
            "Bearer realm=\"https://a.example",
            "Bearer realm=\"mailto:a\"",
            "Bearer service=\"x\"",
            "Bearer realm=\"/token\"",
        ] {
            assert_eq!(Challenge::parse(text), None, "{text}");
        }
    }

    #[test]
    fn token_of_either_name_becomes_a_header() {
        for answer in [r#"{"token": "a.b"}"#, r#"{"access_token": "a.b", "x": 1}"#] {
            let header = bearer(answer.as_bytes()).unwrap();
            assert_eq!(header.to_str().unwrap(), "Bearer a.b");
            assert!(header.is_sensitive());
        }
        for answer in ["{}", "[]", "", r#"{"token": "a\nb"}"#] {
            assert_eq!(bearer(answer.as_bytes()), None, "{answer}");
        }
        let credentials = Credentials {
            user: "user".into(),
            password: "secret".into(),
        };
        assert_eq!(credentials.basic(), "Basic dXNlcjpzZWNyZXQ=");
        assert!(!format!("{credentials:?}").contains("secret"));
    }
}
