//! Properties that must hold for any untrusted bytes, one function for each parser: it calls the product's own
//! function and panics if a property is violated.
//!
//! The fuzz programs in `tests/fuzz` run these for any time, the tests here over the corpus that is stored there. If a
//! parser takes several texts, a line `%%` separates them.

pub mod channel;
pub mod events;
pub mod gate_protocol;
pub mod handoff;
pub mod images;
pub mod logs;
pub mod manifests;
pub mod output;
pub mod schema;
pub mod workflows;

mod doubles;
mod problems;
#[cfg(test)]
mod tests;

/// A property of any bytes.
pub type Target = fn(&[u8]);

/// All targets by name; the fuzz programs and the directories of the corpus have the same names.
pub const TARGETS: [(&str, Target); 10] = [
    ("channel", channel::check),
    ("events", events::check),
    ("gate_protocol", gate_protocol::check),
    ("handoff", handoff::check),
    ("images", images::check),
    ("logs", logs::check),
    ("manifests", manifests::check),
    ("output", output::check),
    ("schema", schema::check),
    ("workflows", workflows::check),
];

/// The texts of an input, separated by lines `%%`. The last contains the rest.
fn parts<const N: usize>(bytes: &[u8]) -> [&[u8]; N] {
    const SEPARATOR: &[u8] = b"\n%%\n";
    let mut rest = bytes;
    let mut parts = [&[][..]; N];
    for (number, part) in parts.iter_mut().enumerate() {
        let end = rest
            .windows(SEPARATOR.len())
            .position(|window| window == SEPARATOR)
            .filter(|_| number + 1 < N);
        match end {
            Some(end) => {
                *part = &rest[..end];
                rest = &rest[end + SEPARATOR.len()..];
            }
            None => *part = std::mem::take(&mut rest),
        }
    }
    parts
}

/// Runs `future` on one thread, with a clock that jumps to the next timer.
fn run<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without drivers is made")
        .block_on(future)
}
