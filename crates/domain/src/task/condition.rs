//! `if`, `until` and `condition`: comparisons of values with texts.
//!
//! ```text
//! any        = all { "||" all }
//! all        = term { "&&" term }
//! term       = "(" any ")" | variable ("==" | "!=") text
//! variable  = inputs.NAME | steps.ID.outputs.NAME
//! text       = "…" | '…' | characters up to && || or )
//! ```

use std::borrow::Cow;

use thiserror::Error;

use super::Variable;
use crate::text::quoted;

/// Maximum depth of parentheses.
const DEPTH_MAX: usize = 16;

/// A parsed condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition(Term);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Term {
    Any(Vec<Term>),
    All(Vec<Term>),
    Compare {
        variable: Variable,
        is_equality: bool,
        text: String,
    },
}

/// A text that is not a condition.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("condition: {found} at character {character}; expected {expected}")]
pub struct MalformedCondition {
    found: String,
    /// From 1.
    character: usize,
    expected: &'static str,
}

impl Condition {
    /// # Errors
    /// The first mistake.
    pub fn parse(text: &str) -> Result<Self, MalformedCondition> {
        let mut parser = Parser { text, position: 0 };
        let term = parser.any(0)?;
        parser.skip_spaces();
        if parser.rest().is_empty() {
            Ok(Self(term))
        } else {
            Err(parser.mistake("&&, || or the end"))
        }
    }

    /// The values that the condition names.
    pub fn variables(&self) -> Vec<&Variable> {
        let mut variables = Vec::new();
        self.0.collect(&mut variables);
        variables
    }

    /// Whether it is true. An undefined value differs from every text.
    ///
    /// Texts are compared without spaces around them; `true`, `yes` and `1` are the same, as are `false`, `no` and `0`,
    /// in upper or lower case.
    pub fn is_true<'a>(&self, value_of: &impl Fn(&Variable) -> Option<Cow<'a, str>>) -> bool {
        self.0.is_true(value_of)
    }
}

impl Term {
    fn collect<'a>(&'a self, variables: &mut Vec<&'a Variable>) {
        match self {
            Self::Any(terms) | Self::All(terms) => {
                for term in terms {
                    term.collect(variables);
                }
            }
            Self::Compare { variable, .. } => variables.push(variable),
        }
    }

    fn is_true<'a>(&self, value_of: &impl Fn(&Variable) -> Option<Cow<'a, str>>) -> bool {
        match self {
            Self::Any(terms) => terms.iter().any(|term| term.is_true(value_of)),
            Self::All(terms) => terms.iter().all(|term| term.is_true(value_of)),
            Self::Compare {
                variable,
                is_equality,
                text,
            } => value_of(variable)
                .map_or(!is_equality, |value| is_same(&value, text) == *is_equality),
        }
    }
}

fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.trim(), other.trim());
    one == other || truth(one).is_some_and(|truth_of_one| truth(other) == Some(truth_of_one))
}

fn truth(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "1" => Some(true),
        "false" | "no" | "0" => Some(false),
        _ => None,
    }
}

struct Parser<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.position..]
    }

    fn skip_spaces(&mut self) {
        self.position = self.text.len() - self.rest().trim_start().len();
    }

    /// Whether the next characters are `token`, which are then taken.
    fn take(&mut self, token: &str) -> bool {
        self.skip_spaces();
        let is_next = self.rest().starts_with(token);
        if is_next {
            self.position += token.len();
        }
        is_next
    }

    fn mistake(&self, expected: &'static str) -> MalformedCondition {
        let found = self.rest().trim_end();
        MalformedCondition {
            found: if found.is_empty() {
                "the end".to_owned()
            } else {
                quoted(found)
            },
            character: self.text[..self.position].chars().count() + 1,
            expected,
        }
    }

    fn any(&mut self, depth: usize) -> Result<Term, MalformedCondition> {
        let mut terms = vec![self.all(depth)?];
        while self.take("||") {
            terms.push(self.all(depth)?);
        }
        Ok(single_or(terms, Term::Any))
    }

    fn all(&mut self, depth: usize) -> Result<Term, MalformedCondition> {
        let mut terms = vec![self.term(depth)?];
        while self.take("&&") {
            terms.push(self.term(depth)?);
        }
        Ok(single_or(terms, Term::All))
    }

    fn term(&mut self, depth: usize) -> Result<Term, MalformedCondition> {
        if !self.take("(") {
            return self.comparison();
        }
        if depth == DEPTH_MAX {
            return Err(self.mistake("at most 16 parentheses inside each other"));
        }
        let term = self.any(depth + 1)?;
        if self.take(")") {
            Ok(term)
        } else {
            Err(self.mistake("&&, || or )"))
        }
    }

    fn comparison(&mut self) -> Result<Term, MalformedCondition> {
        const VARIABLE: &str = "inputs.NAME or steps.ID.outputs.NAME";
        self.skip_spaces();
        let rest = self.rest();
        let length = rest.find(|found: char| found.is_whitespace() || "=!()&|".contains(found));
        let length = length.unwrap_or(rest.len());
        let variable = match Variable::parse(&rest[..length]) {
            Some(variable) if !matches!(variable, Variable::Outputs(_)) => variable,
            _ => return Err(self.mistake(VARIABLE)),
        };
        self.position += length;
        let is_equality = self.take("==");
        if !is_equality && !self.take("!=") {
            return Err(self.mistake("== or !="));
        }
        let text = self.text()?;
        Ok(Term::Compare {
            variable,
            is_equality,
            text,
        })
    }

    fn text(&mut self) -> Result<String, MalformedCondition> {
        self.skip_spaces();
        let rest = self.rest();
        if let Some(quote) = rest.chars().next().filter(|first| "'\"".contains(*first)) {
            let Some(length) = rest[1..].find(quote) else {
                return Err(self.mistake("a closing quotation mark"));
            };
            self.position += length + 2;
            return Ok(rest[1..=length].to_owned());
        }
        let ends = ["&&", "||", ")"].map(|end| rest.find(end).unwrap_or(rest.len()));
        let length = ends.into_iter().min().unwrap_or_default();
        let text = rest[..length].trim_end();
        if text.is_empty() {
            return Err(self.mistake("a text to compare with"));
        }
        self.position += length;
        Ok(text.to_owned())
    }
}

fn single_or(mut terms: Vec<Term>, several: fn(Vec<Term>) -> Term) -> Term {
    match terms.pop() {
        Some(only) if terms.is_empty() => only,
        last => {
            terms.extend(last);
            several(terms)
        }
    }
}
