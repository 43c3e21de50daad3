//! A few seeds with every run of the tests; `make simulate` runs many, each one history.

use aod_simulator::simulate;

/// Seeds: about half a second each without optimisation.
const SEEDS: u64 = 20;

#[test]
fn a_handful_of_seeds_holds() {
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
