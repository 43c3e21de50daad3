//! `aod events`: the whole log, as far as somebody wants it.

use aod_api::events::{EventView, SelectedEvents};

use crate::arguments::{EventsCommand, QueryArguments, SelectionArguments, TailArguments};
use crate::client::{Client, parsed, with_query};
use crate::console::{Console, Format};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::text;

/// Where the gateway has it.
const PATH: &str = "/v1/events";

/// Events that are asked for at a time: as many as a page may have.
const PAGE_SIZE_MAX: u64 = 500;

/// Further than any log goes, and less than the broker counts.
const LAST: u64 = 1 << 62;

type Query = Vec<(&'static str, String)>;

pub(super) async fn events(command: EventsCommand, console: Console) -> Result<Exit, Failure> {
    match command {
        EventsCommand::Query(arguments) => query(&arguments, console).await,
        EventsCommand::Tail(arguments) => tail(&arguments, console).await,
    }?;
    Ok(Exit::Ok)
}

/// The parameters that say which events are wanted.
fn selection(arguments: &SelectionArguments) -> Query {
    let mut query = Query::new();
    let mut add = |name: &'static str, values: &mut dyn Iterator<Item = &String>| {
        query.extend(values.map(|value| (name, value.clone())));
    };
    add("type", &mut arguments.kind.iter());
    add("run", &mut arguments.run.iter());
    add("tree", &mut arguments.tree.iter());
    add("tenant", &mut arguments.tenant.iter());
    add("capsule", &mut arguments.capsule.iter());
    add("label", &mut arguments.label.iter());
    add("text", &mut arguments.text.iter());
    query
}

fn show(console: Console, event: &EventView) -> Result<(), Failure> {
    console.show_line(event, || text::event::row(event))
}

fn show_header(console: Console) -> Result<(), Failure> {
    match console.format {
        Format::Json => Ok(()),
        Format::Text => Console::print(&text::event::header()),
    }
}

/// Page after page, each of which costs the gateway no more than any other.
async fn query(arguments: &QueryArguments, console: Console) -> Result<(), Failure> {
    let client = Client::connect(&arguments.connect)?;
    let mut wanted = selection(&arguments.selection);
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
    let mut query = selection(&arguments.selection);
    let after = match arguments.after {
        Some(after) => after,
        // Where the log ends now, so that a connection that breaks before anything came loses nothing.
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

/// The last event that the log has.
async fn end(client: &Client) -> Result<u64, Failure> {
    // Nothing is stored behind this: the answer says where the log ends, and costs no look at it.
    let query = [("after", LAST.to_string()), ("limit", "1".to_owned())];
    let page: SelectedEvents = client.get(PATH, &query).await?;
    Ok(page.as_of)
}
