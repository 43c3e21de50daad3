//! Finds the numbers in JSON text that 64 bits cannot hold.

use crate::contract::{PROBLEMS_MAX, Problem, ProblemCode, pointer_part};
use crate::text::{QUOTED_LENGTH_MAX, shortened};

/// Maximum nesting that the scanner follows: `serde_json` rejects deeper text. It bounds the memory of a scan.
const DEPTH_MAX: usize = 128;

/// All numbers in `text` that would change, in the order of the text; at most [`PROBLEMS_MAX`].
///
/// Reads the text once, and allocates only for numbers with a fraction or an exponent and for problems. The result for
/// text that is not JSON has no meaning: the parser rejects such text.
pub fn number_problems(text: &[u8]) -> Vec<Problem> {
    let mut scanner = Scanner {
        text,
        position: 0,
        open: Vec::new(),
        problems: Vec::new(),
    };
    scanner.run();
    scanner.problems
}

/// Why 64 bits cannot hold the number `literal` of JSON; none if they can.
pub fn literal_problem(literal: &str) -> Option<String> {
    let given = || shortened(literal, QUOTED_LENGTH_MAX);
    if !literal.contains(['.', 'e', 'E']) {
        let fits = literal.parse::<u64>().is_ok() || literal.parse::<i64>().is_ok();
        return (!fits).then(|| {
            format!(
                "{} given; expected an integer from {} to {}, or a string",
                given(),
                i64::MIN,
                u64::MAX
            )
        });
    }
    let kept: f64 = literal.parse().ok()?;
    if !kept.is_finite() {
        let text = format!(
            "{} given; expected a number from -{max:e} to {max:e}, or a string",
            given(),
            max = f64::MAX
        );
        return Some(text);
    }
    // Of two shortest forms that are equally close, Rust prints the larger one, and JSON has the even one.
    let forms = [
        format!("{kept:e}"),
        serde_json::Value::from(kept).to_string(),
    ];
    let given_digits = Decimal::parse(literal);
    let is_same = forms
        .iter()
        .any(|form| Decimal::parse(form) == given_digits);
    (!is_same).then(|| {
        format!(
            "{} given; a 64-bit number keeps only {}: expected that number, or a string",
            given(),
            serde_json::Value::from(kept)
        )
    })
}

/// The size of a number in decimal digits, without its sign.
#[derive(PartialEq, Eq)]
struct Decimal {
    /// Without zeros at either end; empty for zero.
    digits: Vec<u8>,
    /// The power of ten of the last digit.
    exponent: i64,
}

impl Decimal {
    /// None if the exponent is no `i64`: no 64-bit number is as large or as small, except for zero.
    fn parse(literal: &str) -> Option<Self> {
        let (mantissa, exponent) = literal.split_once(['e', 'E']).unwrap_or((literal, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let mut digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
        digits.retain(|byte| *byte != b'-');
        let first = digits.iter().position(|digit| *digit != b'0');
        let Some(first) = first else {
            return Some(Self {
                digits: Vec::new(),
                exponent: 0,
            });
        };
        let length = digits.len();
        let end = digits.iter().rposition(|digit| *digit != b'0')? + 1;
        digits.truncate(end);
        digits.drain(..first);
        let exponent: i64 = exponent.parse().ok()?;
        let moved = i64::try_from(length - end).ok()? - i64::try_from(fraction.len()).ok()?;
        Some(Self {
            digits,
            exponent: exponent.checked_add(moved)?,
        })
    }
}

/// A list or an object around the current value.
enum Container<'t> {
    List { index: usize },
    Object { key: &'t [u8], is_key_next: bool },
}

impl Container<'_> {
    /// The part with its slash.
    fn pointer_part(&self) -> String {
        match self {
            Self::List { index } => format!("/{index}"),
            Self::Object { key, .. } => {
                let key = serde_json::from_slice::<String>(key)
                    .unwrap_or_else(|_| String::from_utf8_lossy(key).into_owned());
                format!("/{}", pointer_part(&key))
            }
        }
    }
}

struct Scanner<'t> {
    text: &'t [u8],
    position: usize,
    open: Vec<Container<'t>>,
    problems: Vec<Problem>,
}

impl Scanner<'_> {
    fn run(&mut self) {
        while let Some(byte) = self.text.get(self.position) {
            match byte {
                b'"' => self.string(),
                b'-' | b'0'..=b'9' => self.number(),
                b'{' => self.open.push(Container::Object {
                    key: &[],
                    is_key_next: true,
                }),
                b'[' => self.open.push(Container::List { index: 0 }),
                b'}' | b']' => drop(self.open.pop()),
                b',' => self.next_item(),
                _ => (),
            }
            if self.open.len() > DEPTH_MAX || self.problems.len() == PROBLEMS_MAX {
                return;
            }
            self.position += 1;
        }
    }

    fn next_item(&mut self) {
        match self.open.last_mut() {
            Some(Container::List { index }) => *index += 1,
            Some(Container::Object { is_key_next, .. }) => *is_key_next = true,
            None => (),
        }
    }

    /// Moves to the quote at the end of the string.
    fn string(&mut self) {
        let start = self.position;
        let mut end = start + 1;
        while let Some(byte) = self.text.get(end) {
            match byte {
                b'"' => break,
                b'\\' => end += 2,
                _ => end += 1,
            }
        }
        self.position = end.min(self.text.len());
        if let Some(Container::Object { key, is_key_next }) = self.open.last_mut()
            && std::mem::take(is_key_next)
        {
            *key = self.text.get(start..=end).unwrap_or_default();
        }
    }

    /// Moves to the last byte of the number.
    fn number(&mut self) {
        let rest = &self.text[self.position..];
        let is_part =
            |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-');
        let length = rest.iter().position(|byte| !is_part(byte));
        let literal = &rest[..length.unwrap_or(rest.len())];
        self.position += literal.len() - 1;
        let found = std::str::from_utf8(literal).ok().and_then(literal_problem);
        if let Some(message) = found {
            let parts: Vec<_> = self.open.iter().map(Container::pointer_part).collect();
            let pointer = parts.concat();
            let problem = Problem::new(pointer, ProblemCode::NumberInexact, message);
            self.problems.push(problem);
        }
    }
}
