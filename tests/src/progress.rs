//! Words for people, on stderr.

use std::io::Write as _;

/// Says one line; nobody to read it is fine.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
