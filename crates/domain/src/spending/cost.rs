//! Money in units so small that the price of one token is a whole number.

use std::fmt;
use std::ops::Add;

use serde::{Deserialize, Serialize};

/// Picodollars in a dollar.
const DOLLAR: u64 = 1_000_000_000_000;

/// Maximum dollars: a month of the largest fleets, and far below the range of 64 bits.
const DOLLARS_MAX: f64 = 1e6;

/// An amount of money in picodollars (10^-12 US dollars); at most 18 million dollars.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Cost(u64);

impl Cost {
    pub const fn from_picodollars(picodollars: u64) -> Self {
        Self(picodollars)
    }

    pub const fn picodollars(self) -> u64 {
        self.0
    }

    /// Dollars from 0 to a million, to the nearest picodollar; none for other numbers.
    pub fn from_dollars(dollars: f64) -> Option<Self> {
        if !(0.0..=DOLLARS_MAX).contains(&dollars) {
            return None;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "from 0 to 10^18"
        )]
        let picodollars = (dollars * DOLLAR as f64).round() as u64;
        Some(Self(picodollars))
    }

    /// In dollars; exact to about 15 digits.
    pub fn dollars(self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let dollars = self.0 as f64 / DOLLAR as f64;
        dollars
    }

    /// The cost of `count` tokens at this cost each.
    #[must_use]
    pub const fn times(self, count: u64) -> Self {
        Self(self.0.saturating_mul(count))
    }
}

impl Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl fmt::Display for Cost {
    /// `$0.0125`: to the ten-thousandth of a dollar, or to the first digits of a smaller amount.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (dollars, rest) = (self.0 / DOLLAR, self.0 % DOLLAR);
        let digits = format!("{rest:012}");
        let first = digits.find(|digit| digit != '0').unwrap_or(0);
        let shown = if dollars == 0 { (first + 2).max(4) } else { 4 };
        write!(formatter, "${dollars}.{}", &digits[..shown.min(12)])
    }
}
