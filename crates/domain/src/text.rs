//! Bytes and values that travel as one text, each with one spelling.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use data_encoding::{Encoding, HEXLOWER};
use serde::Deserializer;
use serde::de::{Error, Visitor};

/// Whether `text` may be a token of subjects that people choose: 1 to 63 of `a-z`, `0-9` and `-`.
pub(crate) fn is_token(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len()) && text.bytes().all(allowed)
}

/// What all texts have in common that are one token of subjects: how each is read, told, and refused.
macro_rules! token_text {
    ($name:ident, $(#[$about:meta])* $malformed:ident, $told:literal) => {
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
        #[error("the {told} {0:?} is not 1 to 63 of a-z, 0-9 and -", told = $told)]
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

/// Reads what is a string by its `FromStr`, without a copy of the text.
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

/// `LENGTH` bytes from exactly the text that `encoding` gives for them.
pub(crate) fn decode<const LENGTH: usize>(encoding: &Encoding, text: &str) -> Option<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    if text.len() != encoding.encode_len(LENGTH) {
        return None;
    }
    encoding.decode_mut(text.as_bytes(), &mut bytes).ok()?;
    Some(bytes)
}

/// As [`decode`], of lower-case hexadecimal digits.
pub(crate) fn from_hex<const LENGTH: usize>(text: &str) -> Option<[u8; LENGTH]> {
    decode(&HEXLOWER, text)
}
