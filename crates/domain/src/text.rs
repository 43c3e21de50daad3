//! Text forms of bytes and values, each with one spelling.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use data_encoding::{Encoding, HEXLOWER};
use serde::Deserializer;
use serde::de::{Error, Visitor};

/// Whether `text` is a valid subject token that people choose: 1 to 63 of `a-z`, `0-9` and `-`.
pub(crate) fn is_token(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len()) && text.bytes().all(allowed)
}

/// Implements parsing, display and errors for texts that are one token of subjects.
macro_rules! token_text {
    ($name:ident, $(#[$about:meta])* $malformed:ident, $what:literal) => {
        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str(&self.0)
            }
        }

        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
        #[error("invalid {what} {0:?}; expected 1 to 63 of a-z, 0-9 and -", what = $what)]
        pub struct $malformed(String);

        impl std::str::FromStr for $name {
            type Err = $malformed;

            fn from_str(text: &str) -> Result<Self, $malformed> {
                if $crate::text::is_token(text) {
                    Ok(Self(text.into()))
                } else {
                    Err($malformed(text.chars().take(80).collect()))
                }
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::text::deserialize(deserializer)
            }
        }
    };
}
pub(crate) use token_text;

/// Maximum characters of a value in a message: a line, never a file.
pub const QUOTED_LENGTH_MAX: usize = 120;

/// `text` in quotes, control characters escaped, cut to [`QUOTED_LENGTH_MAX`] characters.
pub(crate) fn quoted(text: &str) -> String {
    format!("{:?}", shortened(text, QUOTED_LENGTH_MAX))
}

/// `value` as JSON, cut to [`QUOTED_LENGTH_MAX`] characters.
pub(crate) fn quoted_value(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::String(text) => quoted(text),
        value => shortened(&value.to_string(), QUOTED_LENGTH_MAX),
    }
}

pub(crate) fn shortened(text: &str, length_max: usize) -> String {
    match text.char_indices().nth(length_max) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// The candidate closest to `word`: at most a third of it differs.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let distance = |candidate: &str| strsim::damerau_levenshtein(word, candidate);
    let distance_max = (word.chars().count() / 3).max(1);
    candidates
        .into_iter()
        // A long text is not a misspelt word, and comparing it is quadratic.
        .filter(|candidate| word.len().abs_diff(candidate.len()) <= 4 * distance_max.min(64))
        .filter(|_| word.len() <= 256)
        .map(|candidate| (distance(candidate), candidate))
        .filter(|&(distance, _)| distance <= distance_max)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Deserializes a string with `FromStr`, without copying the text.
pub(crate) fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: FromStr<Err: fmt::Display>,
    D: Deserializer<'de>,
{
    struct Text<T>(PhantomData<T>);

    impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for Text<T> {
        type Value = T;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a string")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(E::custom)
        }
    }

    deserializer.deserialize_str(Text(PhantomData))
}

/// `LENGTH` bytes from exactly the text that `encoding` produces for them.
pub(crate) fn decode<const LENGTH: usize>(encoding: &Encoding, text: &str) -> Option<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    if text.len() != encoding.encode_len(LENGTH) {
        return None;
    }
    encoding.decode_mut(text.as_bytes(), &mut bytes).ok()?;
    Some(bytes)
}

/// Like [`decode`], for lower-case hexadecimal digits.
pub(crate) fn from_hex<const LENGTH: usize>(text: &str) -> Option<[u8; LENGTH]> {
    decode(&HEXLOWER, text)
}
