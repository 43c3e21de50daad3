//! The program `aod-gate`: reads its arguments and hands over to the library.

use std::process::ExitCode;

use aod_gate::options::Options;
use aod_gate::protocol::EXIT_CODE_GATE_FAILED;
use aod_gate::supervisor;

fn main() -> ExitCode {
    match Options::parse(std::env::args_os().skip(1)) {
        Ok(options) => ExitCode::from(supervisor::run(&options)),
        Err(error) => {
            aod_gate::complain(&error.to_string());
            ExitCode::from(EXIT_CODE_GATE_FAILED)
        }
    }
}
