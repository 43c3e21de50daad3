//! Keys that stand in the files of a capsule, from where they would get into its image.

use std::fs;

use aod_domain::manifest::looks_like_key;

use super::super::pack::Entry;
use super::super::place::Place;
use super::Check;

/// Largest file that is looked at, in bytes: people write no larger ones by hand.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// How a private key begins in its text form.
const PRIVATE_KEY: &str = "PRIVATE KEY-----";

impl Check<'_> {
    /// Warns of every key, without repeating it.
    pub(super) fn secrets(&mut self, entries: &[Entry]) {
        for entry in entries.iter().filter(|entry| entry.is_file(FILE_BYTES_MAX)) {
            let name = entry.name.as_str();
            // Looked at by their own rules, which know what is a name and what is a value.
            if name == "agent.yaml" {
                continue;
            }
            let Ok(bytes) = fs::read(self.directory.join(name)) else {
                continue;
            };
            let Ok(text) = String::from_utf8(bytes) else {
                continue;
            };
            for place in keys(&text) {
                let message = "this looks like a key; expected its name under \"secrets\" in agent.yaml, \
                               the key itself stays with the operator";
                self.warn(name, place, message);
            }
        }
    }
}

/// Where keys stand in a text.
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

/// Keys are drawn at random: words of a language have no digits in them.
fn is_key(word: &str) -> bool {
    looks_like_key(word)
        && word.bytes().any(|byte| byte.is_ascii_digit())
        && word.bytes().any(|byte| byte.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_and_words_are_not() {
        // In two parts, so that nobody takes this file for one with keys in it.
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
