//! One pattern of an ignore file, as a regular expression.
//!
//! Sources: "Build context" in Docker's documentation; the package `patternmatcher` of moby, and `filepath.Match` and
//! `filepath.Clean` of Go, for the cases that the documentation leaves open.

use std::fmt::Write as _;
use std::iter::Peekable;
use std::str::Chars;

use regex::Regex;

use super::ancestors;

/// Characters with a meaning in patterns.
const WILDCARDS: [char; 4] = ['*', '?', '[', '\\'];

#[derive(Debug)]
pub(super) struct Pattern {
    /// Relative, without `.`, and without `..` except at its beginning.
    text: String,
    regex: Regex,
}

impl Pattern {
    /// # Errors
    /// What is wrong with the pattern, and what was expected.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text = clean(text);
        let regex = Regex::new(&format!("(?s)^(?:{})$", expression(&text)?));
        let regex = regex.map_err(|_| "too long; expected a shorter pattern".to_owned())?;
        Ok(Self { text, regex })
    }

    /// Whether it matches `name` or one of the directories above.
    pub(super) fn matches(&self, name: &str) -> bool {
        ancestors(name).any(|name| self.regex.is_match(name))
    }

    /// Whether it means `name` in particular: it matches the entry itself, or begins with the name.
    pub(super) fn names(&self, name: &str) -> bool {
        let rest = self.text.strip_prefix(name);
        self.regex.is_match(name) || rest.is_some_and(|rest| rest.starts_with('/'))
    }

    /// Whether it can match entries of `directory`: its parts before the first wildcard agree with the directory.
    pub(super) fn may_match_in(&self, directory: &str) -> bool {
        let parts = self.text.split('/');
        let mut parts = parts.take_while(|part| !part.contains(WILDCARDS));
        directory
            .split('/')
            .all(|part| parts.next().is_none_or(|expected| expected == part))
    }
}

/// Removes `.`, `..` and surplus slashes, also the first one: patterns are relative to the capsule's directory.
fn clean(text: &str) -> String {
    let mut parts = Vec::new();
    for part in text.split('/') {
        match part {
            "" | "." => (),
            ".." if parts.last().is_some_and(|last| *last != "..") => _ = parts.pop(),
            ".." if text.starts_with('/') => (),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The regular expression of a clean pattern.
fn expression(pattern: &str) -> Result<String, String> {
    // Docker compares only the end of a name with such a pattern: `**.pyc` matches `a.pyc`.
    if let Some(end) = pattern.strip_prefix("**")
        && !end.contains(WILDCARDS)
        && !end.starts_with('/')
    {
        return Ok(format!(".*{}", regex::escape(end)));
    }
    let mut expression = String::new();
    let mut rest = pattern.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            '*' if rest.next_if_eq(&'*').is_some() => {
                rest.next_if_eq(&'/');
                let is_last = rest.peek().is_none();
                expression.push_str(if is_last { ".*" } else { "(?:.*/)?" });
            }
            '*' => expression.push_str("[^/]*"),
            '?' => expression.push_str("[^/]"),
            '[' => expression.push_str(&class(&mut rest)?),
            '\\' => {
                let message = "nothing follows the last \\; expected a character";
                let character = rest.next().ok_or(message)?;
                expression.push_str(&regex::escape(&character.to_string()));
            }
            character => expression.push_str(&regex::escape(&character.to_string())),
        }
    }
    Ok(expression)
}

/// The regular expression of a class, whose `[` is already read.
fn class(rest: &mut Peekable<Chars<'_>>) -> Result<String, String> {
    let mut class = String::from("[");
    if rest.next_if_eq(&'^').is_some() {
        class.push('^');
    }
    let mut is_empty = true;
    while is_empty || rest.next_if_eq(&']').is_none() {
        let first = bound(rest)?;
        let last = match rest.next_if_eq(&'-') {
            Some(_) => bound(rest)?,
            None => first,
        };
        if first > last {
            return Err(format!(
                "range {first}-{last}; expected the lower character first"
            ));
        }
        // A write to a String never fails.
        let _ = write!(
            class,
            "\\x{{{:x}}}-\\x{{{:x}}}",
            u32::from(first),
            u32::from(last)
        );
        is_empty = false;
    }
    class.push(']');
    Ok(class)
}

/// A character of a class; `-` and `]` only after a backslash.
fn bound(rest: &mut Peekable<Chars<'_>>) -> Result<char, String> {
    let bound = match rest.next() {
        Some('-' | ']') => None,
        Some('\\') => rest.next(),
        other => other,
    };
    bound.ok_or_else(|| {
        "invalid [; expected characters or ranges, then ], as in [a-z0-9]".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names that each pattern matches, then names that it does not match.
    const CASES: [(&str, &[&str], &[&str]); 34] = [
        ("a", &["a", "a/b", "a/b/c"], &["b/a", "ab"]),
        ("/a/b/", &["a/b", "a/b/c"], &["a", "b"]),
        ("./a//x/../b", &["a/b"], &["a/x/b"]),
        ("../a", &[], &["a"]),
        ("/../a", &["a"], &[]),
        (".", &[], &["a", "."]),
        ("*", &["a", ".a", "a/b"], &[]),
        ("*/a*", &["x/a", "x/ab", "x/ab/c"], &["a", "x/y/a"]),
        ("*/*/a*", &["x/y/ab"], &["x/ab"]),
        ("a?", &["ab", "aé", "ab/c"], &["a", "abc", "a/b"]),
        ("*.md", &["a.md", ".md"], &["x/a.md", "a.mdx", "amd"]),
        ("**", &["a", "a/b"], &[]),
        ("**/", &["a", "a/b"], &[]),
        ("**/a", &["a", "x/a", "x/y/a", "x/a/b"], &["xa", "x/ya"]),
        ("**/*.pyc", &["a.pyc", "x/y/a.pyc"], &["a.py"]),
        ("**.pyc", &["a.pyc", "x/a.pyc"], &["a.py"]),
        ("**/.env", &[".env", "x/.env"], &["a.env"]),
        ("**/**/*.a", &["x.a", "x/y.a"], &["x.b"]),
        ("a/**", &["a/b", "a/b/c"], &["a", "ab"]),
        ("a/**/b", &["a/b", "a/x/b", "a/x/y/b"], &["a/xb", "b"]),
        ("a**/*.b", &["a/x.b", "a/y/z/x.b"], &["x.b"]),
        ("a/*.b**", &["a/x.b", "a/x.bc"], &["a/y/x.b"]),
        ("**/a/**", &["a/b", "x/a/b/c"], &["a", "x/a"]),
        ("a[b-d]e", &["ace"], &["ae", "aae"]),
        ("a[^b-d]e", &["aze", "aée"], &["ace"]),
        ("[a-ζ]", &["α"], &["A"]),
        ("[\\]a]", &["]", "a"], &["\\"]),
        ("[x\\-]", &["x", "-"], &["z"]),
        ("[.*]", &[".", "*"], &["a"]),
        ("a\\*b", &["a*b"], &["ab", "axb"]),
        ("\\d", &["d"], &["1"]),
        ("a.|)$(}+{b", &["a.|)$(}+{b"], &["ax|)$(}+{b"]),
        ("!a", &["!a"], &["a"]),
        ("a b", &["a b"], &["a"]),
    ];

    #[test]
    fn pattern_matches_the_names_that_docker_matches() {
        for (text, matching, others) in CASES {
            let pattern = Pattern::parse(text).unwrap();
            for name in matching {
                assert!(pattern.matches(name), "{text} {name} {pattern:?}");
            }
            for name in others {
                assert!(!pattern.matches(name), "{text} {name} {pattern:?}");
            }
        }
    }

    #[test]
    fn invalid_pattern_is_rejected() {
        // Source: the table of errors in the tests of `filepath.Match`.
        let invalid = [
            "[", "[]", "[^", "[^bc", "a[", "[]a]", "[-]", "[x-]", "[-x]", "[a-b-c]", "[b-a]", "a\\",
        ];
        for text in invalid {
            let message = Pattern::parse(text).unwrap_err();
            assert!(message.contains("; expected "), "{text}: {message}");
        }
    }
}
