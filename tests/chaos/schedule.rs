//! The schedule of faults: drawn from the seed, round by round, each kind once in a round.
//!
//! Measured kinds stand alone, the others overlap.

use std::time::Duration;

use fastrand::Rng;

use crate::kind::{Kind, Part, Size};

/// Time between the starts of overlapping faults: most last longer.
const OVERLAP_MILLISECONDS: std::ops::Range<u64> = 2_000..5_000;

/// One fault.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    pub(crate) part: Part,
    pub(crate) length: Duration,
}

/// A step of the schedule.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// One fault without any other for a while before and after.
    Alone(Fault),
    /// Each begins this time after the one before.
    Together(Vec<(Duration, Fault)>),
}

/// One round of all kinds: the measured ones alone, in any order, then the others together.
pub(crate) fn round(random: &mut Rng, size: Size) -> Vec<Act> {
    let mut alone = Kind::MEASURED;
    random.shuffle(&mut alone);
    let mut together: Vec<Kind> = Kind::ALL
        .into_iter()
        .filter(|kind| !Kind::MEASURED.contains(kind))
        .collect();
    random.shuffle(&mut together);
    let together = together
        .into_iter()
        .map(|kind| {
            let pause = Duration::from_millis(random.u64(OVERLAP_MILLISECONDS));
            (pause, draw(random, size, kind))
        })
        .collect();
    let mut acts: Vec<Act> = alone
        .into_iter()
        .map(|kind| Act::Alone(draw(random, size, kind)))
        .collect();
    acts.push(Act::Together(together));
    acts
}

/// The short chaos: six kinds, each alone, in any order.
pub(crate) fn short(random: &mut Rng, size: Size) -> Vec<Act> {
    let mut kinds = Kind::SHORT;
    random.shuffle(&mut kinds);
    kinds
        .into_iter()
        .map(|kind| Act::Alone(draw(random, size, kind)))
        .collect()
}

fn draw(random: &mut Rng, size: Size, kind: Kind) -> Fault {
    Fault {
        kind,
        part: kind.draw_part(random, size),
        length: kind.draw_length(random),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size {
        nodes: 3,
        gateways: 2,
        servers: 3,
    };

    fn kinds(acts: &[Act]) -> Vec<Kind> {
        let of = |act: &Act| match act {
            Act::Alone(fault) => vec![fault.kind],
            Act::Together(faults) => faults.iter().map(|(_, fault)| fault.kind).collect(),
        };
        acts.iter().flat_map(of).collect()
    }

    #[test]
    fn round_contains_each_kind_once() {
        let mut drawn = kinds(&round(&mut Rng::with_seed(7), SIZE));
        drawn.sort();
        assert_eq!(drawn, Kind::ALL);
    }

    #[test]
    fn same_seed_draws_same_schedule() {
        let draw = |seed| format!("{:?}", round(&mut Rng::with_seed(seed), SIZE));
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
