//! Bounds as text, which are also evaluated: `p50 <= 5 ms and p99 <= 15 ms`, `ratio >= 0.90`.

use anyhow::{Context as _, bail};

/// One comparison.
#[derive(Clone, Debug, PartialEq)]
struct Comparison {
    field: String,
    is_upper: bool,
    limit: f64,
    /// None for numbers without a unit, such as ratios.
    unit: Option<String>,
}

/// A bound: all its comparisons must hold.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bound(Vec<Comparison>);

impl Bound {
    /// Parses `FIELD <=|>= NUMBER [UNIT]`, several joined by `and`.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let comparisons = text.split(" and ").map(|part| {
            let words: Vec<&str> = part.split_whitespace().collect();
            let (field, operator, limit, unit) = match *words {
                [field, operator, limit] => (field, operator, limit, None),
                [field, operator, limit, unit] => (field, operator, limit, Some(unit)),
                _ => bail!("{part:?} is not a comparison"),
            };
            let is_upper = match operator {
                "<=" => true,
                ">=" => false,
                _ => bail!("{operator:?} in {part:?} is neither <= nor >="),
            };
            Ok(Comparison {
                field: field.to_owned(),
                is_upper,
                limit: limit
                    .parse()
                    .with_context(|| format!("{limit:?} is not a number"))?,
                unit: unit.map(str::to_owned),
            })
        });
        comparisons.collect::<anyhow::Result<_>>().map(Self)
    }

    /// Whether it holds for the named values of `value_of`, all in `unit`.
    ///
    /// # Errors
    /// If it names an unknown value or another unit: it would judge nothing.
    pub(crate) fn holds(
        &self,
        unit: &str,
        value_of: impl Fn(&str) -> Option<f64>,
    ) -> anyhow::Result<bool> {
        let mut holds = true;
        for comparison in &self.0 {
            let field = &comparison.field;
            let value = value_of(field)
                .with_context(|| format!("the bound is on {field}, which was not measured"))?;
            if let Some(wanted) = comparison.unit.as_deref().filter(|&wanted| wanted != unit) {
                bail!("the bound on {field} is in {wanted}, the measurement in {unit}");
            }
            holds &= if comparison.is_upper {
                value <= comparison.limit
            } else {
                value >= comparison.limit
            };
        }
        Ok(holds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(text: &str) -> anyhow::Result<bool> {
        Bound::parse(text)?.holds("ms", |field| match field {
            "p50" => Some(4.0),
            "p99" => Some(20.0),
            "ratio" => Some(0.95),
            _ => None,
        })
    }

    #[test]
    fn bound_holds_only_if_all_comparisons_hold() {
        assert!(holds("p50 <= 5 ms").unwrap());
        assert!(!holds("p50 <= 5 ms and p99 <= 15 ms").unwrap());
        assert!(holds("ratio <= 0.95").unwrap());
        assert!(!holds("ratio >= 0.96").unwrap());
    }

    #[test]
    fn bound_without_a_measured_value_is_rejected() {
        for text in [
            "",
            "p50",
            "p50 < 5 ms",
            "p50 <= five ms",
            "p75 <= 5 ms",
            "p50 <= 5 s",
        ] {
            assert!(holds(text).is_err(), "{text:?}");
        }
    }
}
