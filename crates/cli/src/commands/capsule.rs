//! `aod capsule`: checks, packs and builds directories; lists registered capsules.

mod exchange;
mod graph;
mod here;
mod inspect;
mod junit;
mod new;
mod test;
mod validate;

use std::path::Path;

use aod_api::capsules::{CapsuleList, RegisteredCapsule};
use aod_api::runs::RunView;
use aod_domain::capsule::Openness;
use aod_kit::{Package, pack, refuse};
use reqwest::StatusCode;
use reqwest::header::{CONTENT_TYPE, HeaderName};

pub(crate) use self::inspect::Inspection;
use super::{logs, run};
use crate::arguments::{BuildArguments, CapsuleCommand, ConnectArguments, RmArguments, SchemaFile};
use crate::client::{Client, encoded};
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::text;

/// Requests of one build: to start it, and to register its image; a third after a rebuild.
const REQUESTS_MAX: usize = 3;

pub(super) async fn capsule(command: CapsuleCommand, console: Console) -> Result<Exit, Failure> {
    match command {
        CapsuleCommand::Run(arguments) => return here::run_here(&arguments, console).await,
        CapsuleCommand::New(arguments) => return new::new(&arguments, console),
        CapsuleCommand::Test(arguments) => return test::test(&arguments, console).await,
        CapsuleCommand::Validate(arguments) => validate::check(&arguments, console),
        CapsuleCommand::Build(arguments) => build(&arguments, console).await,
        CapsuleCommand::Push(arguments) => exchange::push(&arguments, console).await,
        CapsuleCommand::Pull(arguments) => exchange::pull(&arguments, console).await,
        CapsuleCommand::Inspect(arguments) => inspect::inspect(&arguments, console).await,
        CapsuleCommand::Graph(arguments) => graph::graph(&arguments, console),
        CapsuleCommand::Schema(arguments) => console.print(schema(arguments.file)),
        CapsuleCommand::Ls(connect) => list(&connect, console).await,
        CapsuleCommand::Rm(arguments) => remove(&arguments, console).await,
    }?;
    Ok(Exit::Ok)
}

/// The published JSON Schema of a capsule file.
fn schema(file: SchemaFile) -> &'static str {
    match file {
        SchemaFile::Agent => include_str!("../../../../docs/schemas/agent.json"),
        SchemaFile::Tools => include_str!("../../../../docs/schemas/tools.json"),
        SchemaFile::Schema => include_str!("../../../../docs/schemas/schema.json"),
    }
}

async fn remove(arguments: &RmArguments, console: Console) -> Result<(), Failure> {
    let client = Client::connect(&arguments.connect)?;
    let path = format!("/v1/capsules/{}", encoded(&arguments.name));
    client.delete(&path).await?;
    console.tell(&format!("removed capsule {}", arguments.name));
    Ok(())
}

async fn list(connect: &ConnectArguments, console: Console) -> Result<(), Failure> {
    let client = Client::connect(connect)?;
    let list: CapsuleList = client.get("/v1/capsules", &[]).await?;
    console.show(&list, || text::table::capsules(&list.items))
}

async fn build(arguments: &BuildArguments, console: Console) -> Result<(), Failure> {
    refuse(&aod_kit::validate(&arguments.directory)?)?;
    let client = Client::connect(&arguments.connect)?;
    let package = packed(&arguments.directory, console)?;
    let registered = register(&client, &package, &query(arguments)?, console).await?;
    console.show(&registered, || text::run::registered(&registered))
}

/// Registers a package, and prints the output of its build.
pub(super) async fn register(
    client: &Client,
    package: &Package,
    query: &[(&'static str, String)],
    console: Console,
) -> Result<RegisteredCapsule, Failure> {
    let _status = console.status_line("building");
    for _ in 0..REQUESTS_MAX {
        let headers = [
            (CONTENT_TYPE, "application/x-tar"),
            (HeaderName::from_static("prefer"), "respond-async"),
        ];
        let (status, answer) = client
            .post_file("/v1/capsules", query, &headers, package.file.path())
            .await?;
        let unreadable = |error| {
            Failure::new(Exit::Internal, "the answer of the gateway cannot be read").because(&error)
        };
        if status != StatusCode::ACCEPTED {
            return serde_json::from_value(answer).map_err(unreadable);
        }
        let view: RunView = serde_json::from_value(answer).map_err(unreadable)?;
        watch_build(client, &view, console).await?;
    }
    Err(
        Failure::environment("the gateway did not register the finished build")
            .with_hint("check the gateway's log"),
    )
}

/// Packs `directory`, and prints what is left out.
fn packed(directory: &Path, console: Console) -> Result<Package, Failure> {
    let package = pack(directory)?;
    if let Some(left_out) = &package.left_out {
        console.tell(left_out);
    }
    Ok(package)
}

/// Prints the output of a build until the build ends.
async fn watch_build(client: &Client, view: &RunView, console: Console) -> Result<(), Failure> {
    let id = view.summary.id.to_string();
    console.tell(&format!("building {} as {id}", view.summary.capsule));
    let each = |line: &aod_api::events::LogLineView| {
        console.tell(&format!("  {}", line.text));
    };
    // Missing output lines do not fail the build.
    let (_, result) = tokio::join!(
        logs::follow(client, view.summary.id, each),
        run::wait(client, &id)
    );
    let result = result?;
    if result.success {
        Ok(())
    } else {
        Err(run::failed(&result))
    }
}

fn query(arguments: &BuildArguments) -> Result<Vec<(&'static str, String)>, Failure> {
    let directory = absolute_name(&arguments.directory)?;
    let mut query = vec![("directory", directory)];
    query.extend(arguments.pool.iter().map(|pool| ("pool", pool.clone())));
    let Openness { handoffs, egress } = arguments.openness.openness();
    let open = [("handoffs", handoffs), ("egress", egress)];
    let open = open.into_iter().filter(|(_, is_open)| *is_open);
    query.extend(open.map(|(name, _)| (name, "open".to_owned())));
    if arguments.update_bases {
        query.push(("bases", "update".to_owned()));
    }
    Ok(query)
}

/// The directory's own name, also for `.` and `..`.
fn absolute_name(directory: &Path) -> Result<String, Failure> {
    let path = directory.canonicalize().map_err(|error| {
        Failure::usage(format!("{} cannot be read", directory.display())).because(&error)
    })?;
    Ok(path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned())
}
