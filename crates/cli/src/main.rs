//! The program `aod`. The code is in the library, so that tests can run it in their own process.

use std::process::ExitCode;

fn main() -> ExitCode {
    aod_cli::main()
}
