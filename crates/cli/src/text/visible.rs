//! Text of capsules and gateways on a terminal: shown, never obeyed.

use std::borrow::Cow;
use std::fmt::Write as _;

/// `text` for a terminal: characters that control the terminal, or reorder or hide text, become `\\u001b` and the
/// like. JSON stays the same JSON. Newlines and tabs stay.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_escaped(character) {
            let _ = write!(shown, "\\u{:04x}", u32::from(character));
        } else {
            shown.push(character);
        }
    }
    Cow::Owned(shown)
}

/// Control characters, and invisible ones of the general punctuation. Joiners stay: emoji and Indic scripts need them.
fn is_escaped(character: char) -> bool {
    let is_invisible = matches!(
        character,
        '\u{061c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
    );
    is_invisible || character.is_control() && !matches!(character, '\n' | '\t')
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn control_and_bidirectional_characters_are_escaped() {
        for (text, expected) in [
            ("\u{1b}]52;c;ZXZpbA==\u{7}", "\\u001b]52;c;ZXZpbA==\\u0007"),
            ("\u{9b}31m\u{7f}\r", "\\u009b31m\\u007f\\u000d"),
            (
                "a\u{202e}b\u{2066}c\u{200f}d\u{61c}",
                "a\\u202eb\\u2066c\\u200fd\\u061c",
            ),
            ("ha\u{200b}lt", "ha\\u200blt"),
        ] {
            assert_eq!(visible(text), expected);
        }
    }

    #[test]
    fn layout_and_other_scripts_stay() {
        let text =
            "a\tb\n\u{e9} \u{5e9}\u{5dc} \u{1f469}\u{200d}\u{1f4bb} \u{915}\u{94d}\u{200d}\u{937}";
        assert_eq!(visible(text), text);
    }

    #[test]
    fn escaped_json_is_the_same_json() {
        let value = json!({"t\u{202e}": "\u{1b}[2J \u{9b}2J \u{2069} \\ \" \n"});
        let shown = serde_json::to_string_pretty(&value).expect("plain data");
        let shown = visible(&shown);
        assert!(!shown.contains(is_escaped), "{shown}");
        assert_eq!(serde_json::from_str::<Value>(&shown).expect("JSON"), value);
    }
}
