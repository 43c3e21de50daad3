//! The figures as one small chart each, over the size of the history.

use std::ops::Range;
use std::path::Path;

use aod_tests::statistics::Spread;
use plotters::prelude::*;

use super::Figures;

/// Charts in a row.
const COLUMNS: usize = 3;

/// Size of a chart, in pixels.
const CHART: (u32, u32) = (360, 240);

const MARGIN: u32 = 12;
const LABELS: u32 = 48;
const FONT: (&str, u32) = ("sans-serif", 14);
const CAPTION: (&str, u32) = ("sans-serif", 16);

/// Space above the largest value.
const HEADROOM: f64 = 1.15;

/// Writes `target/bench/NAME.svg`.
pub(super) fn write(name: &str, histories: &[Figures]) -> anyhow::Result<()> {
    let charts = charts(histories);
    let rows = charts.len().div_ceil(COLUMNS);
    let size = (
        CHART.0 * u32::try_from(COLUMNS)?,
        CHART.1 * u32::try_from(rows)?,
    );
    let path = Path::new("target/bench").join(format!("{name}.svg"));
    std::fs::create_dir_all("target/bench")?;
    let area = SVGBackend::new(&path, size).into_drawing_area();
    area.fill(&WHITE)?;
    for (area, chart) in area.split_evenly((rows, COLUMNS)).iter().zip(&charts) {
        draw(area, chart)?;
    }
    area.present()?;
    Ok(())
}

/// A chart of the median and, with more than one sample, of the 99th percentile.
struct Chart {
    caption: String,
    median: Vec<(f64, f64)>,
    p99: Vec<(f64, f64)>,
}

fn charts(histories: &[Figures]) -> Vec<Chart> {
    let Some(first) = histories.first() else {
        return Vec::new();
    };
    let chart = |index: usize| {
        let figure = &first.all[index];
        let line = |of: fn(&Spread) -> f64| -> Vec<(f64, f64)> {
            let point = |history: &Figures| {
                let spread = Spread::of(&history.all[index].samples)?;
                Some((super::count(history.runs), of(&spread)))
            };
            histories.iter().filter_map(point).collect()
        };
        let has_spread = figure.samples.len() > 1;
        let name = figure.name.replace('_', " ");
        Chart {
            caption: if has_spread {
                format!("{name}, {}, p50 and p99", figure.unit)
            } else {
                format!("{name}, {}", figure.unit)
            },
            median: line(|spread| spread.p50),
            p99: if has_spread {
                line(|spread| spread.p99)
            } else {
                Vec::new()
            },
        }
    };
    (0..first.all.len()).map(chart).collect()
}

fn draw<B>(area: &DrawingArea<B, plotters::coord::Shift>, chart: &Chart) -> anyhow::Result<()>
where
    B: DrawingBackend,
    B::ErrorType: Send + Sync + 'static,
{
    let points = || chart.median.iter().chain(&chart.p99);
    let top = points().map(|point| point.1).fold(0.0, f64::max) * HEADROOM;
    let sizes: Range<f64> = points().map(|point| point.0).fold(f64::MAX, f64::min)
        ..points().map(|point| point.0).fold(0.0, f64::max);
    let mut context = ChartBuilder::on(area)
        .caption(&chart.caption, CAPTION)
        .margin(MARGIN)
        .x_label_area_size(LABELS / 2)
        .y_label_area_size(LABELS)
        .build_cartesian_2d(sizes.log_scale(), 0.0..top)?;
    context
        .configure_mesh()
        .label_style(FONT)
        .x_label_formatter(&|runs| format!("{runs:.0}"))
        .draw()?;
    for (line, color) in [(&chart.median, &BLUE), (&chart.p99, &RED)] {
        context.draw_series(LineSeries::new(line.iter().copied(), color))?;
        let dots = line
            .iter()
            .map(|&point| Circle::new(point, 3, color.filled()));
        context.draw_series(dots)?;
    }
    Ok(())
}
