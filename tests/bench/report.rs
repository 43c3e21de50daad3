//! A report: one JSON file, and the same as a table.

use std::fs;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;

use anyhow::Context as _;
use serde::Serialize;

use crate::bound::Bound;
use crate::machine::{self, Machine};
use aod_tests::statistics::{Spread, median};

/// Directory of reports, from the root of the repository.
const DIRECTORY: &str = "target/bench";

/// The floor of a measurement, of the same kind.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Floor {
    pub(crate) name: String,
    pub(crate) p50: f64,
}

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measurement {
    name: String,
    unit: String,
    #[serde(flatten)]
    spread: Spread,
    #[serde(skip_serializing_if = "Option::is_none")]
    floor: Option<Floor>,
    /// The median of the ratios of the pairs, measurement to floor.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bound: Option<String>,
    /// True without a bound.
    holds: bool,
    note: String,
}

impl Measurement {
    pub(crate) fn new(name: &str, unit: &str, samples: &[f64]) -> anyhow::Result<Self> {
        let spread = Spread::of(samples).with_context(|| format!("{name} has no samples"))?;
        Ok(Self {
            name: name.to_owned(),
            unit: unit.to_owned(),
            spread,
            floor: None,
            ratio: None,
            bound: None,
            holds: true,
            note: String::new(),
        })
    }

    /// Adds `floor`: compared pair by pair, in the order of the samples.
    pub(crate) fn beside(
        mut self,
        name: &str,
        samples: &[f64],
        floor: &[f64],
    ) -> anyhow::Result<Self> {
        anyhow::ensure!(
            samples.len() == floor.len(),
            "{} and {name} have different numbers of samples",
            self.name
        );
        let ratios: Vec<f64> = samples
            .iter()
            .zip(floor)
            .map(|(sample, floor)| sample / floor)
            .collect();
        self.ratio = median(&ratios);
        let p50 = median(floor).with_context(|| format!("{name} has no samples"))?;
        self.floor = Some(Floor {
            name: name.to_owned(),
            p50,
        });
        Ok(self)
    }

    /// Adds `bound`; after [`Measurement::beside`] if the bound is on the ratio.
    pub(crate) fn bounded(mut self, bound: &str) -> anyhow::Result<Self> {
        let value_of = |field: &str| match field {
            "p50" => Some(self.spread.p50),
            "p90" => Some(self.spread.p90),
            "p99" => Some(self.spread.p99),
            "ratio" => self.ratio,
            _ => None,
        };
        self.holds = Bound::parse(bound)?
            .holds(&self.unit, value_of)
            .with_context(|| self.name.clone())?;
        self.bound = Some(bound.to_owned());
        Ok(self)
    }

    pub(crate) fn noted(mut self, note: &str) -> Self {
        note.clone_into(&mut self.note);
        self
    }
}

/// The results of a benchmark.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    benchmark: String,
    commit: String,
    at: String,
    machine: Machine,
    measurements: Vec<Measurement>,
}

impl Report {
    pub(crate) async fn new(
        benchmark: &str,
        measurements: Vec<Measurement>,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            benchmark: benchmark.to_owned(),
            commit: machine::commit()?,
            at: machine::now()?,
            machine: Machine::look().await?,
            measurements,
        })
    }

    /// Whether all bounds hold.
    pub(crate) fn holds(&self) -> bool {
        self.measurements
            .iter()
            .all(|measurement| measurement.holds)
    }

    pub(crate) fn write(&self) -> anyhow::Result<()> {
        let path = PathBuf::from(DIRECTORY).join(format!("{}.json", self.benchmark));
        fs::create_dir_all(DIRECTORY)?;
        let text = serde_json::to_string_pretty(self)?;
        fs::write(&path, text + "\n").with_context(|| path.display().to_string())
    }

    /// Prints the table; missed bounds are marked, and red on a terminal.
    pub(crate) fn print(&self) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        let is_colored = out.is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let machine = &self.machine;
        writeln!(
            out,
            "{} at {}, commit {}",
            self.benchmark, self.at, self.commit
        )?;
        writeln!(
            out,
            "{} cpus, {:.0} GiB, kernel {}, docker {}, nats {} (sync {})",
            machine.cpus,
            gibibytes(machine.memory_bytes),
            machine.kernel,
            machine.docker,
            machine.nats,
            machine.sync
        )?;
        let heads = [
            "",
            "unit",
            "n",
            "p50",
            "p90",
            "p99",
            "floor",
            "floor p50",
            "ratio",
            "bound",
        ];
        let mut rows = vec![heads.map(str::to_owned)];
        rows.extend(self.measurements.iter().map(cells));
        let widths: Vec<usize> = (0..heads.len())
            .map(|column| widest(&rows, column))
            .collect();
        for (index, row) in rows.iter().enumerate() {
            let line: Vec<String> = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:<width$}"))
                .collect();
            let line = line.join("  ");
            let is_missed = index > 0 && !self.measurements[index - 1].holds;
            if is_missed && is_colored {
                writeln!(out, "\x1b[31m{}\x1b[0m", line.trim_end())?;
            } else {
                writeln!(out, "{}", line.trim_end())?;
            }
        }
        for measurement in self
            .measurements
            .iter()
            .filter(|measurement| !measurement.note.is_empty())
        {
            writeln!(out, "{}: {}", measurement.name, measurement.note)?;
        }
        Ok(())
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "printed with no digits behind the point"
)]
fn gibibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

fn widest(rows: &[[String; 10]], column: usize) -> usize {
    rows.iter()
        .map(|row| row[column].chars().count())
        .max()
        .unwrap_or_default()
}

fn cells(measurement: &Measurement) -> [String; 10] {
    let number = |value: f64| {
        if value >= 100.0 {
            format!("{value:.0}")
        } else {
            format!("{value:.2}")
        }
    };
    let spread = &measurement.spread;
    let (floor, floor_p50) = match &measurement.floor {
        Some(floor) => (floor.name.clone(), number(floor.p50)),
        None => (String::new(), String::new()),
    };
    let verdict = if measurement.holds { "holds" } else { "MISSED" };
    [
        measurement.name.clone(),
        measurement.unit.clone(),
        spread.n.to_string(),
        number(spread.p50),
        number(spread.p90),
        number(spread.p99),
        floor,
        floor_p50,
        measurement
            .ratio
            .map(|ratio| format!("{ratio:.3}"))
            .unwrap_or_default(),
        measurement
            .bound
            .as_ref()
            .map(|bound| format!("{bound}: {verdict}"))
            .unwrap_or_default(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_bound_is_reported() {
        let samples = [2.0, 4.0, 9.0];
        let measured = Measurement::new("cold", "ms", &samples).unwrap();
        let beside = measured.beside("bare", &samples, &[4.0, 4.0, 4.0]).unwrap();
        assert_eq!(beside.ratio, Some(1.0));
        assert!(beside.clone().bounded("ratio <= 1.0").unwrap().holds);
        let missed = beside.bounded("ratio <= 0.95").unwrap();
        assert!(!missed.holds);
        assert!(cells(&missed)[9].ends_with("MISSED"));
    }
}
