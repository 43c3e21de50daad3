//! Keeps a capsule from changing the limits and the priority of its gate. Both have the same user, so the kernel would
//! permit it: a limit on the processor time of the gate kills the gate, and the node would take that for a failure of
//! the platform.
//!
//! The gate gives itself a filter of system calls, which all processes of the container inherit. In addition to
//! Docker's own filter it only refuses calls that name the process of the gate.

use seccompiler::{BpfProgram, apply_filter, sock_filter};

/// The system calls of one architecture. Sources: the kernel's `audit.h` and its tables of system calls.
struct Calls {
    architecture: u32,
    /// Bits of a number that select the call.
    mask: u32,
    /// Calls whose first argument is a process: `prlimit64`, `sched_setparam`, `sched_setscheduler`,
    /// `sched_setaffinity`, `sched_setattr`.
    first: [u32; 5],
    /// Calls whose second argument is a process: `setpriority`, `ioprio_set`.
    second: [u32; 2],
}

/// The architectures of the nodes, each with its variant of 32 bits.
const CALLS: [Calls; 4] = [
    // x86-64; bit 30 selects the variant x32.
    Calls {
        architecture: 0xC000_003E,
        mask: !(1 << 30),
        first: [302, 142, 144, 203, 314],
        second: [141, 251],
    },
    // i386
    Calls {
        architecture: 0x4000_0003,
        mask: !0,
        first: [340, 154, 156, 241, 351],
        second: [97, 289],
    },
    // AArch64
    Calls {
        architecture: 0xC000_00B7,
        mask: !0,
        first: [261, 118, 119, 122, 274],
        second: [140, 30],
    },
    // ARM
    Calls {
        architecture: 0x4000_0028,
        mask: !0,
        first: [369, 155, 156, 241, 380],
        second: [97, 314],
    },
];

/// Positions in `struct seccomp_data`, whose numbers are little endian here. Source: the kernel's `seccomp.h`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENT_FIRST: u32 = 16;
const ARGUMENT_SECOND: u32 = 24;

/// Answers of a filter. Source: the kernel's `seccomp.h`; 1 is `EPERM`.
const ALLOW: u32 = 0x7FFF_0000;
const REFUSE: u32 = 0x0005_0000 | 1;

/// Refuses system calls of this thread, and of all threads and processes that it starts, which change the limits or the
/// priority of `process`.
pub(crate) fn protect(process: u32) -> Result<(), seccompiler::Error> {
    apply_filter(&program(process))
}

fn program(process: u32) -> BpfProgram {
    let mut program: BpfProgram = CALLS
        .iter()
        .flat_map(|calls| part(calls, process))
        .collect();
    program.push(answer(ALLOW));
    program
}

/// The part of the program for one architecture; another architecture skips it.
fn part(calls: &Calls, process: u32) -> BpfProgram {
    let (first, second) = (calls.first.len(), calls.second.len());
    let mut body = vec![load(NUMBER), and(calls.mask)];
    // Behind the comparisons: an answer, then both checks.
    let checks = (1..=first + second).rev();
    let numbers = calls.first.iter().chain(&calls.second);
    for (index, (number, left)) in numbers.zip(checks).enumerate() {
        let check = if index < first { 0 } else { CHECK_LENGTH };
        body.push(jump_if(*number, left + check, 0));
    }
    body.push(answer(ALLOW));
    for argument in [ARGUMENT_FIRST, ARGUMENT_SECOND] {
        body.extend([
            load(argument),
            jump_if(process, 0, 1),
            answer(REFUSE),
            answer(ALLOW),
        ]);
    }
    let mut part = vec![
        load(ARCHITECTURE),
        jump_if(calls.architecture, 0, body.len()),
    ];
    part.append(&mut body);
    part
}

/// Instructions of the check of one argument.
const CHECK_LENGTH: usize = 4;

// Source of the codes: the kernel's `bpf_common.h`.

const fn load(position: u32) -> sock_filter {
    instruction(0x20, 0, 0, position)
}

const fn and(mask: u32) -> sock_filter {
    instruction(0x54, 0, 0, mask)
}

const fn answer(answer: u32) -> sock_filter {
    instruction(0x06, 0, 0, answer)
}

/// Compares with `value`; the other arguments are numbers of instructions to skip, below 256.
fn jump_if(value: u32, skip_if_equal: usize, skip_otherwise: usize) -> sock_filter {
    let skip = |count: usize| u8::try_from(count).expect("a part has few instructions");
    instruction(0x15, skip(skip_if_equal), skip(skip_otherwise), value)
}

const fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};
    use std::thread;

    use rustix::io::Errno;
    use rustix::process::{Pid, Resource, Rlimit, getpriority_process, setpriority_process};
    use rustix::process::{getrlimit, prlimit};
    use rustix::thread::{sched_getaffinity, sched_setaffinity};

    use super::*;

    fn child() -> Child {
        Command::new("sleep").arg("60").spawn().unwrap()
    }

    fn id(child: &Child) -> Pid {
        Pid::from_child(child)
    }

    /// The outcomes of all calls that change `process`, to the values that it has.
    fn changes(process: Pid, limit: Rlimit) -> [Result<(), Errno>; 3] {
        let affinity = sched_getaffinity(Some(process)).unwrap();
        let priority = getpriority_process(Some(process)).unwrap();
        [
            prlimit(Some(process), Resource::Core, limit).map(drop),
            sched_setaffinity(Some(process), &affinity),
            setpriority_process(Some(process), priority),
        ]
    }

    #[test]
    fn limits_and_priority_of_one_process_cannot_be_changed() {
        let (mut shielded, mut other) = (child(), child());
        let (shielded_id, other_id) = (id(&shielded), id(&other));
        let limit = Rlimit {
            current: Some(0),
            maximum: getrlimit(Resource::Core).maximum,
        };
        // The filter holds for the thread that applies it.
        let outcomes = thread::spawn(move || {
            let before = changes(shielded_id, limit);
            protect(u32::try_from(shielded_id.as_raw_nonzero().get()).unwrap()).unwrap();
            [
                before,
                changes(shielded_id, limit),
                changes(other_id, limit),
            ]
        });
        let outcomes = outcomes.join().unwrap();
        for child in [&mut shielded, &mut other] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!(outcomes[0], [Ok(()); 3]);
        assert_eq!(outcomes[1], [Err(Errno::PERM); 3]);
        assert_eq!(outcomes[2], [Ok(()); 3]);
    }
}
