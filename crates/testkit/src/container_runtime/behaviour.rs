//! What the commands of these tests do, for a shell and for the double.

use std::sync::Arc;

use aod_ports::log_stream::Output;

use crate::engine::{Command, Inside};

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// Says `one` and `three` on stdout, `two` on stderr.
    Speaks,
    /// Exits with this code.
    Exits(u8),
    /// Says `ready`; when it is asked to end says `bye` and exits with 5.
    Obeys,
    /// Says `ready`; has no handler for being asked to end.
    Waits,
    /// Says `ready`; when it is asked to end says `asked` and goes on.
    Ignores,
    /// There is no such command in the image.
    Missing,
}

impl Behaviour {
    /// The command for an image that has busybox, as `/bin/sh` also.
    pub fn argv(self) -> Vec<String> {
        let script = match self {
            Self::Speaks => "echo one; echo two >&2; echo three".to_owned(),
            Self::Exits(code) => format!("exit {code}"),
            Self::Obeys => trapping("echo bye; exit 5"),
            Self::Waits => "echo ready; exec busybox sleep 600".to_owned(),
            Self::Ignores => trapping("echo asked"),
            Self::Missing => return vec!["/not/there".to_owned()],
        };
        vec!["/bin/sh".to_owned(), "-c".to_owned(), script]
    }

    /// The command for an image of the double; none if it is missing.
    pub fn command(self) -> Option<Command> {
        if self == Self::Missing {
            return None;
        }
        Some(Arc::new(move |inside| Box::pin(self.run(inside))))
    }

    async fn run(self, inside: Inside) -> i32 {
        let say = |text| inside.say(Output::Stdout, text);
        match self {
            Self::Speaks => {
                say("one\n");
                inside.say(Output::Stderr, "two\n");
                say("three\n");
                0
            }
            Self::Exits(code) => code.into(),
            Self::Obeys => {
                let asked = inside.trap();
                say("ready\n");
                asked.await;
                say("bye\n");
                5
            }
            Self::Ignores => {
                let asked = inside.trap();
                say("ready\n");
                asked.await;
                say("asked\n");
                std::future::pending().await
            }
            Self::Waits | Self::Missing => {
                say("ready\n");
                std::future::pending().await
            }
        }
    }
}

/// A script that handles SIGTERM. A shell does so between two commands only: they are short.
fn trapping(handler: &str) -> String {
    format!("trap '{handler}' TERM; echo ready; while true; do busybox sleep 0.05; done")
}
