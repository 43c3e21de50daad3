//! `aod capsule graph`: who may call whom.

use crate::arguments::{GraphArguments, GraphFormat};
use crate::capsule::Family;
use crate::capsule::graph::Graph;
use crate::console::Console;
use crate::failure::Failure;
use crate::text;

pub(super) fn graph(arguments: &GraphArguments, console: Console) -> Result<(), Failure> {
    let family = Family::gather(&arguments.directories, &arguments.with)?;
    let graph = Graph::of(&family);
    console.show(&graph, || match arguments.format {
        GraphFormat::Text => text::graph::lines(&graph),
        GraphFormat::Svg => text::picture::svg(&graph),
    })
}
