//! The behaviours of test commands, for a shell and for the double.

use std::sync::Arc;

use aod_ports::log_stream::Output;

use crate::engine::{Command, Inside};

/// The behaviour of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// Prints `one` and `three` on stdout, `two` on stderr.
    Speaks,
    /// Exits with this code.
    Exits(u8),
    /// Prints `ready`; on the request to end, prints `bye` and exits with 5.
    Obeys,
    /// Prints `ready`; has no handler for the request to end.
    Waits,
    /// Prints `ready`; on the request to end, prints `asked` and continues.
    Ignores,
    /// The image has no such command.
    Missing,
}

impl Behaviour {
    /// The command for an image with busybox, which is also its `/bin/sh`.
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

    /// The command for an image of the double; none for [`Self::Missing`].
    pub fn command(self) -> Option<Command> {
        if self == Self::Missing {
            return None;
        }
        Some(Arc::new(move |inside| Box::pin(self.run(inside))))
    }

    /// The behaviour of the process, in a container that holds.
    fn of_process(self, inside: &Inside) -> Self {
        let Some(process) = &inside.process else {
            return self;
        };
        let all = [Self::Speaks, Self::Exits(3), Self::Obeys, Self::Waits];
        let found = all.into_iter().find(|one| one.argv() == process.argv);
        found.unwrap_or(Self::Exits(127))
    }

    async fn run(self, inside: Inside) -> i32 {
        let say = |text| inside.say(Output::Stdout, text);
        match self.of_process(&inside) {
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

/// A script that handles SIGTERM. A shell does so only between two commands, which are therefore short.
fn trapping(handler: &str) -> String {
    format!("trap '{handler}' TERM; echo ready; while true; do busybox sleep 0.05; done")
}
