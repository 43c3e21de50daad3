//! Progress messages on stderr.

use std::io::Write as _;

/// Prints one line; ignores a closed stderr.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
