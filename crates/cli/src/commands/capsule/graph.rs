//! `aod capsule graph`: the permitted calls between capsules.

use aod_kit::Family;
use aod_kit::graph::Graph;

use crate::arguments::GraphArguments;
use crate::console::Console;
use crate::failure::Failure;
use crate::text;

pub(super) fn graph(arguments: &GraphArguments, console: Console) -> Result<(), Failure> {
    let family = Family::gather(&arguments.directories, &arguments.with)?;
    let graph = Graph::of(&family);
    console.show(&graph, || {
        if arguments.svg {
            text::picture::svg(&graph)
        } else {
            text::graph::lines(&graph)
        }
    })
}
