//! A few seeds in every test run; `make simulate` runs many.

use aod_simulator::simulate;

/// Number of seeds: about half a second each without optimisation.
const SEEDS: u64 = 8;

#[test]
fn few_seeds_hold_all_invariants() {
    for seed in 0..SEEDS {
        let outcome = simulate(seed, false);
        assert!(
            outcome.violations.is_empty(),
            "seed {seed}: {:#?}",
            outcome.violations
        );
        assert!(outcome.steps > 100, "seed {seed}: nothing happened");
    }
}
