//! Finds keys in the files of a capsule, which would end up in its image.

use std::fs;

use aod_domain::manifest::looks_like_key;

use super::Check;
use crate::contents::Entry;
use crate::place::Place;

/// Maximum size of a searched file, in bytes: files written by hand are smaller.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The marker of a private key in PEM form.
const PRIVATE_KEY: &str = "PRIVATE KEY-----";

impl Check<'_> {
    /// Adds a warning for each key, without printing the key.
    pub(super) fn secrets(&mut self, entries: &[Entry]) {
        for entry in entries.iter().filter(|entry| entry.is_file(FILE_BYTES_MAX)) {
            let name = entry.name.as_str();
            // The manifest has its own check for keys.
            if name == "agent.yaml" {
                continue;
            }
            let Ok(text) = fs::read_to_string(self.directory.join(name)) else {
                continue;
            };
            for place in keys(&text) {
                let message = "this looks like a key; expected only its name, under `secrets` in agent.yaml; \
                               the operator provides the key";
                self.warn(name, place, message);
            }
        }
    }
}

/// The places of keys in a text.
fn keys(text: &str) -> Vec<Place> {
    let mut places = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        let mut column = 1;
        for word in content.split_inclusive(is_end_of_word) {
            let bare = word.trim_end_matches(is_end_of_word);
            if is_key(bare) {
                places.push(Place { line, column });
            }
            column += word.chars().count() as u64;
        }
        if content.contains("-----BEGIN ") && content.contains(PRIVATE_KEY) {
            places.push(Place { line, column: 1 });
        }
    }
    places
}

fn is_end_of_word(character: char) -> bool {
    !(character.is_ascii_alphanumeric() || character == '-' || character == '_')
}

/// Random keys contain digits and letters; ordinary words contain no digits.
fn is_key(word: &str) -> bool {
    looks_like_key(word)
        && word.bytes().any(|byte| byte.is_ascii_digit())
        && word.bytes().any(|byte| byte.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_and_ordinary_words_are_ignored() {
        // In two parts, so that secret scanners ignore this file.
        let key = format!("sk-{}", "abcd1234abcd1234");
        let text = format!(
            "A=1\nENV KEY=\"{key}\"\nscikit sk-learn-is-a-long-word\n-----BEGIN RSA {PRIVATE_KEY}\n"
        );
        let found: Vec<_> = keys(&text)
            .iter()
            .map(|place| (place.line, place.column))
            .collect();
        assert_eq!(found, [(2, 10), (4, 1)]);
    }
}
