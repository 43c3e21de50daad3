//! JSON text from users and capsules: requests, arguments, outputs and schemas.
//!
//! AOD stores numbers as 64-bit integers and 64-bit floating point numbers. [`read`] rejects every number that such a
//! number cannot hold, so that no number changes between its author and its reader.

mod numbers;

#[cfg(test)]
mod tests;

use serde::de::DeserializeOwned;

use crate::contract::Problem;

pub use numbers::{literal_problem, number_problems};

/// Why JSON text is unreadable.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The text is not JSON, or not a value of the expected type.
    #[error(transparent)]
    Malformed(#[from] serde_json::Error),
    /// Numbers that 64 bits cannot hold; never empty, at most [`PROBLEMS_MAX`](crate::contract::PROBLEMS_MAX).
    #[error("numbers that 64 bits cannot hold: {}", list(.0))]
    Numbers(Vec<Problem>),
}

/// Parses `text`, whose numbers must keep their values.
///
/// An integer must be between -9223372036854775808 and 18446744073709551615. Every other number must be what a 64-bit
/// floating point number prints, except for zeros at its end and the form of its exponent: `1.50`, `1e3` and `0.1` pass,
/// `3.141592653589793238` and `1e400` do not.
///
/// # Errors
/// [`Unreadable`], with all numbers that would change.
pub fn read<T: DeserializeOwned>(text: &[u8]) -> Result<T, Unreadable> {
    match read_with_problems(text)? {
        (value, problems) if problems.is_empty() => Ok(value),
        (_, problems) => Err(Unreadable::Numbers(problems)),
    }
}

/// As [`read`], for a reader that reports the numbers together with other problems: the value must not be used if there
/// are any.
///
/// # Errors
/// [`Unreadable`]
pub fn read_with_problems<T: DeserializeOwned>(
    text: &[u8],
) -> Result<(T, Vec<Problem>), Unreadable> {
    let problems = number_problems(text);
    match serde_json::from_slice(text) {
        Ok(value) => Ok((value, problems)),
        // The parser stops at a number that is too large; its message has no pointer.
        Err(error) if is_out_of_range(&error) && !problems.is_empty() => {
            Err(Unreadable::Numbers(problems))
        }
        Err(error) => Err(error.into()),
    }
}

fn is_out_of_range(error: &serde_json::Error) -> bool {
    error.is_syntax() && error.to_string().starts_with("number out of range")
}

fn list(problems: &[Problem]) -> String {
    let texts: Vec<_> = problems.iter().map(ToString::to_string).collect();
    texts.join("; ")
}
