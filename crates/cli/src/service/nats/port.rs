//! The port of the broker of `aod up`: chosen at the first start and kept, because further nodes connect to it.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::service::data;

/// Ports to choose from: below the ports that Linux gives to outgoing connections, which could take the kept port between
/// two starts.
const FIRST: u16 = 20_000;
const COUNT: u16 = 10_000;

/// Maximum ports to try.
const TRIES_MAX: usize = 100;

fn file(directory: &Path) -> PathBuf {
    directory.join("port")
}

/// The port of earlier starts of the broker in `directory`; none before the first one.
pub(crate) fn kept(directory: &Path) -> Result<Option<u16>, Failure> {
    let path = file(directory);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(data::unusable(&path, &error)),
    };
    let port = text.trim().parse().ok().filter(|port| *port != 0);
    port.map(Some).ok_or_else(|| {
        Failure::environment(format!(
            "{} contains {:?}; expected a port",
            path.display(),
            text.trim()
        ))
        .with_hint("remove the file; the broker then takes a new port")
    })
}

pub(super) fn keep(directory: &Path, port: u16) -> Result<(), Failure> {
    data::write_private(&file(directory), &format!("{port}\n"))
}

/// Checks that no other program uses the kept `port`.
pub(super) fn check(directory: &Path, port: u16) -> Result<(), Failure> {
    let Err(error) = TcpListener::bind(("127.0.0.1", port)) else {
        return Ok(());
    };
    let message = format!("the broker cannot use its port {port} on 127.0.0.1");
    Err(Failure::environment(message).because(&error).with_hint(format!(
        "stop the program that uses the port; or remove {}, and give the new address to the nodes that joined",
        file(directory).display()
    )))
}

/// A free port of those to choose from.
pub(super) fn choose() -> Result<u16, Failure> {
    for _ in 0..TRIES_MAX {
        let random = &data::draw_secret()?[..4];
        let random = u16::from_str_radix(random, 16).unwrap_or_default();
        let port = FIRST + random % COUNT;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Err(Failure::environment(format!(
        "no free port from {FIRST} to {} on 127.0.0.1",
        FIRST + COUNT - 1
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_port_is_the_one_of_the_first_start() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(kept(directory.path()).unwrap(), None);
        let port = choose().unwrap();
        assert!((FIRST..FIRST + COUNT).contains(&port));
        keep(directory.path(), port).unwrap();
        assert_eq!(kept(directory.path()).unwrap(), Some(port));
        check(directory.path(), port).unwrap();
    }

    #[test]
    fn port_in_use_is_reported_with_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        let other = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = other.local_addr().unwrap().port();
        let failure = check(directory.path(), port).unwrap_err();
        let text = format!("{failure:?}");
        assert!(
            text.contains(&format!("its port {port} on 127.0.0.1")),
            "{text}"
        );
        assert!(text.contains("/port"), "{text}");
    }

    #[test]
    fn file_without_a_port_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        for text in ["", "0", "none", "70000"] {
            fs::write(directory.path().join("port"), text).unwrap();
            assert!(kept(directory.path()).is_err(), "{text:?}");
        }
    }
}
