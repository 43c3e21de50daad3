//! Statistics of samples.

use serde::Serialize;

/// The spread of samples, by nearest rank.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    pub n: usize,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
}

impl Spread {
    /// None without samples.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            n: sorted.len(),
            p50: at(&sorted, 50)?,
            p90: at(&sorted, 90)?,
            p99: at(&sorted, 99)?,
        })
    }
}

/// The median.
pub fn median(samples: &[f64]) -> Option<f64> {
    Spread::of(samples).map(|spread| spread.p50)
}

/// The smallest sample that at least `percent` of all samples do not exceed.
fn at(sorted: &[f64], percent: usize) -> Option<f64> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_existing_samples() {
        let samples: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let spread = Spread::of(&samples).unwrap();
        assert_eq!(
            (spread.n, spread.p50, spread.p90, spread.p99),
            (100, 50.0, 90.0, 99.0)
        );
        let one = Spread::of(&[7.0]).unwrap();
        assert_eq!((one.p50, one.p99), (7.0, 7.0));
        assert_eq!(Spread::of(&[]), None);
    }
}
