//! The exit codes of `aod`: stable, described in `docs/guide/exit-codes.md`.

/// The outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The command succeeded.
    Ok,
    /// The run failed because of the capsule, its image or its outputs.
    RunFailed,
    /// The command line, a file or the request is invalid.
    Usage,
    /// The gateway cannot be reached, or it rejects the token.
    Unreachable,
    /// The run exceeded a time limit.
    TimedOut,
    /// The run was cancelled, or the command was interrupted.
    Cancelled,
    /// Something on this machine or in the cluster is missing or broken: Docker, the broker, the disk.
    Environment,
    /// Steps of a task failed, and the others ran.
    Partial,
    /// The task was cancelled, or its command was interrupted.
    TaskCancelled,
    /// The task exceeded its time limit.
    TaskTimedOut,
    /// A check found a difference: between read model and log, between two runs, or between a bundle and its seal.
    Different,
    /// `aod audit verify` found a consistent bundle without a seal.
    Unsealed,
    /// A bug in AOD.
    Internal,
}

impl Exit {
    /// All outcomes, in the order of the reference.
    pub const ALL: [Self; 13] = [
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
        Self::Partial,
        Self::TaskCancelled,
        Self::TaskTimedOut,
    ];

    /// The code for the shell. Tasks have the codes of their contract, of which three differ. 2 is also the code of the command line parser; 70 is `EX_SOFTWARE` of `sysexits.h`.
    pub const fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::RunFailed => 1,
            Self::Usage => 2,
            Self::Unreachable | Self::Partial => 3,
            Self::TimedOut | Self::TaskCancelled => 4,
            Self::Cancelled | Self::TaskTimedOut => 5,
            Self::Environment => 6,
            Self::Different => 7,
            Self::Unsealed => 8,
            Self::Internal => 70,
        }
    }

    /// The meaning of the code, as in the reference.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Ok => "The command succeeded.",
            Self::RunFailed => "The run failed because of the capsule, its image or its outputs.",
            Self::Usage => "The command line, a file or the request is invalid.",
            Self::Unreachable => "The gateway cannot be reached, or it rejects the token.",
            Self::TimedOut => "The run exceeded a time limit.",
            Self::Cancelled => "The run was cancelled, or the command was interrupted.",
            Self::Environment => {
                "Something on this machine or in the cluster is missing or broken: Docker, the broker, the disk."
            }
            Self::Different => {
                "A check found a difference: between read model and log, between two runs, or between a bundle and its seal."
            }
            Self::Unsealed => "`aod audit verify` found a consistent bundle without a seal.",
            Self::Internal => "A bug in AOD.",
            Self::Partial => "`aod task run`: steps failed, and the others ran.",
            Self::TaskCancelled => {
                "`aod task run`: the task was cancelled, or the command was interrupted."
            }
            Self::TaskTimedOut => "`aod task run`: the task exceeded its time limit.",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reference for people.
    const REFERENCE: &str = include_str!("../../../docs/guide/exit-codes.md");

    #[test]
    fn reference_lists_exactly_the_exit_codes() {
        let rows = REFERENCE
            .lines()
            .filter(|line| line.starts_with("| ") && line.contains(char::is_numeric));
        let expected = Exit::ALL.map(|exit| format!("| {} | {} |", exit.code(), exit.meaning()));
        assert_eq!(rows.collect::<Vec<_>>(), expected);
    }
}
