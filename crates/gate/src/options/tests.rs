//! Arguments of the gate.

use super::*;

fn parse(arguments: &[&str]) -> Result<Options, String> {
    Options::parse(arguments.iter().map(OsString::from)).map_err(|error| error.to_string())
}

#[test]
fn container_needs_no_arguments() {
    let options = parse(&[]).expect("defaults");
    assert_eq!(options.channel, PathBuf::from("/.aod/channel"));
    assert_eq!(options.listen, SocketAddr::from(([127, 0, 0, 1], 8700)));
}

#[test]
fn channel_and_listen_address_can_be_set() {
    let options = parse(&["--listen", "127.0.0.1:0", "--channel", "/c"]).expect("both");
    assert_eq!(options.channel, PathBuf::from("/c"));
    assert_eq!(options.listen, SocketAddr::from(([127, 0, 0, 1], 0)));
}

#[test]
fn other_arguments_are_rejected() {
    let message = parse(&["sh"]).expect_err("not an argument");
    assert_eq!(
        message,
        "unknown argument \"sh\", expected --channel DIRECTORY or --listen ADDRESS"
    );
    let message = parse(&["--channel"]).expect_err("no value");
    assert_eq!(message, "--channel needs a valid value, not None");
    let message = parse(&["--listen", "localhost:1"]).expect_err("no number");
    assert_eq!(
        message,
        "--listen needs a valid value, not Some(\"localhost:1\")"
    );
}
