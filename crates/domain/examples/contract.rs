//! Reads cases of the contract, one JSON object a line, and answers each with a line; the tests of the Python SDK
//! compare them with the SDK's answers.

#[path = "../tests/contract/case.rs"]
mod case;

use std::io::{self, BufRead as _, Write as _};

use case::Case;

fn main() -> io::Result<()> {
    let mut answers = io::BufWriter::new(io::stdout().lock());
    for line in io::stdin().lock().lines() {
        let case: Case = serde_json::from_str(&line?)?;
        writeln!(answers, "{}", case.answer())?;
    }
    answers.flush()
}
