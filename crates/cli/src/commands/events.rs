//! `aod events`: queries and follows the log.

use aod_api::events::{EventView, SelectedEvents};

use crate::arguments::{EventsCommand, QueryArguments, SelectionArguments, TailArguments};
use crate::client::{Client, parsed, with_query};
use crate::console::{Console, Format};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::text;

/// The path of the log at the gateway.
const PATH: &str = "/v1/events";

/// Maximum events of one page.
const PAGE_SIZE_MAX: u64 = 500;

/// A sequence number after the end of any log, within the broker's range.
const LAST: u64 = 1 << 62;

type Query = Vec<(&'static str, String)>;

pub(super) async fn events(command: EventsCommand, console: Console) -> Result<Exit, Failure> {
    match command {
        EventsCommand::Query(arguments) => query(&arguments, console).await,
        EventsCommand::Tail(arguments) => tail(&arguments, console).await,
    }?;
    Ok(Exit::Ok)
}

/// The query parameters for a selection.
async fn selection(client: &Client, arguments: &SelectionArguments) -> Result<Query, Failure> {
    let mut query = Query::new();
    for (name, run) in [("run", &arguments.run), ("tree", &arguments.tree)] {
        if let Some(run) = run {
            query.push((name, client.run_id(run).await?.to_string()));
        }
    }
    let mut add = |name: &'static str, values: &mut dyn Iterator<Item = &String>| {
        query.extend(values.map(|value| (name, value.clone())));
    };
    add("type", &mut arguments.kind.iter());
    add("tenant", &mut arguments.tenant.iter());
    add("capsule", &mut arguments.capsule.iter());
    add("label", &mut arguments.label.iter());
    add("text", &mut arguments.text.iter());
    Ok(query)
}

fn show(console: Console, event: &EventView) -> Result<(), Failure> {
    console.show_line(event, || text::event::row(event))
}

fn show_header(console: Console) -> Result<(), Failure> {
    match console.format {
        Format::Json => Ok(()),
        Format::Text => console.print(&text::event::header()),
    }
}

/// Prints page after page; each page costs the gateway the same.
async fn query(arguments: &QueryArguments, console: Console) -> Result<(), Failure> {
    let client = Client::connect(&arguments.connect)?;
    let mut wanted = selection(&client, &arguments.selection).await?;
    let times = [("since", arguments.since), ("until", arguments.until)];
    let times = times.into_iter();
    wanted.extend(times.filter_map(|(name, time)| Some((name, time?.to_string()))));
    let mut left = if arguments.all {
        u64::MAX
    } else {
        arguments.limit
    };
    let mut after = arguments.after;
    show_header(console)?;
    loop {
        let mut query = wanted.clone();
        query.push(("after", after.to_string()));
        query.push(("limit", left.min(PAGE_SIZE_MAX).to_string()));
        let page: SelectedEvents = client.get(PATH, &query).await?;
        page.items
            .iter()
            .try_for_each(|event| show(console, event))?;
        left = left.saturating_sub(page.items.len() as u64);
        let Some(next) = page.next else {
            return Ok(());
        };
        if left == 0 {
            console.tell(&format!("more: --after {next}"));
            return Ok(());
        }
        after = next;
    }
}

async fn tail(arguments: &TailArguments, console: Console) -> Result<(), Failure> {
    let client = Client::connect(&arguments.connect)?;
    let mut query = selection(&client, &arguments.selection).await?;
    let after = match arguments.after {
        Some(after) => after,
        // From the current end: a connection that breaks before the first event then loses nothing.
        None => end(&client).await?,
    };
    query.push(("after", after.to_string()));
    show_header(console)?;
    let mut events = client.follow(with_query(PATH, &query));
    loop {
        let event: EventView = parsed(&events.next().await?.data)?;
        show(console, &event)?;
    }
}

/// The sequence number of the last event in the log.
async fn end(client: &Client) -> Result<u64, Failure> {
    // No event has a greater number: the answer contains the end of the log without a search.
    let query = [("after", LAST.to_string()), ("limit", "1".to_owned())];
    let page: SelectedEvents = client.get(PATH, &query).await?;
    Ok(page.as_of)
}
