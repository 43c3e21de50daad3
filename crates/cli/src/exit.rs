//! With which code `aod` ends: part of its contract, described in `docs/guide/exit-codes.md`.

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It did what it was asked to.
    Ok,
    /// The run failed: the capsule, its image or its outputs are at fault.
    RunFailed,
    /// The command line, a file or the request cannot be used as it is.
    Usage,
    /// No gateway answers, or it does not accept the token.
    Unreachable,
    /// The run took longer than it may.
    TimedOut,
    /// The run was cancelled, or the command was interrupted.
    Cancelled,
    /// Something on this machine or in the cluster is missing or broken: Docker, the broker, the disk.
    Environment,
    /// What was checked differs: the lists from the log, one run from another, a bundle from what was sealed.
    Different,
    /// A bundle fits together, but nobody has signed it.
    Unsealed,
    /// A bug in AOD.
    Internal,
}

impl Exit {
    /// All of them, in the order of the reference.
    pub const ALL: [Self; 10] = [
        Self::Ok,
        Self::RunFailed,
        Self::Usage,
        Self::Unreachable,
        Self::TimedOut,
        Self::Cancelled,
        Self::Environment,
        Self::Different,
        Self::Unsealed,
        Self::Internal,
    ];

    /// The code for the shell. 2 is what the parser of the command line ends with by itself; 70 is
    /// `EX_SOFTWARE` of `sysexits.h`.
    pub const fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::RunFailed => 1,
            Self::Usage => 2,
            Self::Unreachable => 3,
            Self::TimedOut => 4,
            Self::Cancelled => 5,
            Self::Environment => 6,
            Self::Different => 7,
            Self::Unsealed => 8,
            Self::Internal => 70,
        }
    }

    /// What it means, as the reference says it.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Ok => "The command did what it was asked to.",
            Self::RunFailed => {
                "The run failed: the capsule, its image or its outputs are at fault."
            }
            Self::Usage => "The command line, a file or the request cannot be used as it is.",
            Self::Unreachable => "No gateway answers, or it does not accept the token.",
            Self::TimedOut => "The run took longer than it may.",
            Self::Cancelled => "The run was cancelled, or the command was interrupted.",
            Self::Environment => {
                "Something on this machine or in the cluster is missing or broken: Docker, the broker, the disk."
            }
            Self::Different => {
                "What was checked differs: the lists from the log, one run from another, a bundle from what was sealed."
            }
            Self::Unsealed => {
                "`aod audit verify` found a bundle that fits together and that nobody has signed."
            }
            Self::Internal => "A bug in AOD.",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where people read it.
    const REFERENCE: &str = include_str!("../../../docs/guide/exit-codes.md");

    #[test]
    fn the_reference_has_every_code_and_no_other() {
        let rows = REFERENCE
            .lines()
            .filter(|line| line.starts_with("| ") && line.contains(char::is_numeric));
        let expected = Exit::ALL.map(|exit| format!("| {} | {} |", exit.code(), exit.meaning()));
        assert_eq!(rows.collect::<Vec<_>>(), expected);
    }
}
