//! `aod audit`: exports trees of runs, and verifies them without their cluster.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use aod_api::audit::SealKeyView;
use aod_domain::audit::{FindingKind, PublicKey, Report, Verdict};
use serde_json::json;

use crate::arguments::{AuditCommand, ConnectArguments, ExportArguments, VerifyArguments};
use crate::client::Client;
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::text;

/// Buffer for reading a bundle, in bytes.
const READ_BYTES: usize = 256 * 1024;

pub(super) async fn audit(command: AuditCommand, console: Console) -> Result<Exit, Failure> {
    match command {
        AuditCommand::Export(arguments) => export(&arguments, console).await,
        AuditCommand::Verify(arguments) => verify(arguments, console).await,
        AuditCommand::Key(connect) => key(&connect, console).await,
    }
}

async fn export(arguments: &ExportArguments, console: Console) -> Result<Exit, Failure> {
    let client = Client::connect(&arguments.connect)?;
    let run = client.run_id(&arguments.run).await?;
    let path = format!("/v1/runs/{run}/bundle");
    let stored = client.save_bundle(&path, &arguments.output).await?;
    let report = checked(&arguments.output, None).await?;
    let missing = report.findings.iter().filter(|finding| {
        let kinds = [FindingKind::DeletedArtifact, FindingKind::MissingArtifact];
        kinds.contains(&finding.kind)
    });
    for finding in missing.clone() {
        console.tell(&format!("not in the bundle: {finding}"));
    }
    let view = json!({
        "missing": missing.map(|finding| &finding.place).collect::<Vec<_>>(),
        "root": stored.root,
        "file": arguments.output,
        "size_bytes": stored.size_bytes,
        "sha256": stored.digest,
    });
    console.show(&view, || {
        let size = text::units::bytes(stored.size_bytes);
        let file = arguments.output.display();
        format!("{file}: tree of {}, {size}", stored.root)
    })?;
    Ok(Exit::Ok)
}

async fn verify(arguments: VerifyArguments, console: Console) -> Result<Exit, Failure> {
    let expected = arguments.public_key.as_deref().map(read_key).transpose()?;
    let report = checked(&arguments.file, expected).await?;
    console.show(&report, || text::audit::report(&report))?;
    Ok(match report.verdict {
        Verdict::Sealed => Exit::Ok,
        Verdict::Open => Exit::Unsealed,
        Verdict::Findings => Exit::Different,
    })
}

/// Verifies the bundle in the file `path`.
async fn checked(path: &Path, expected: Option<PublicKey>) -> Result<Report, Failure> {
    let unreadable = |error: std::io::Error| {
        Failure::usage(format!("the bundle {} cannot be read", path.display())).because(&error)
    };
    let file = File::open(path).map_err(unreadable)?;
    let reader = BufReader::with_capacity(READ_BYTES, file);
    let verified = tokio::task::spawn_blocking(move || aod_audit::verify(reader, expected)).await;
    let verified = verified.map_err(|error| {
        Failure::new(Exit::Internal, "the verification of the bundle stopped").because(&error)
    })?;
    verified.map_err(unreadable)
}

/// Parses a public key, or reads it from a file.
fn read_key(given: &str) -> Result<PublicKey, Failure> {
    if let Ok(key) = given.parse() {
        return Ok(key);
    }
    let path = Path::new(given);
    let hint = "`aod audit key` prints the key of a gateway";
    let text = std::fs::read_to_string(path).map_err(|error| {
        let message = format!("{given:?} is neither a public key nor a readable file");
        Failure::usage(message).because(&error).with_hint(hint)
    })?;
    text.trim().parse().map_err(|error| {
        let message = format!("{} does not contain a public key", path.display());
        Failure::usage(message).because(&error).with_hint(hint)
    })
}

async fn key(connect: &ConnectArguments, console: Console) -> Result<Exit, Failure> {
    let client = Client::connect(connect)?;
    let view: SealKeyView = client.get("/v1/seal-key", &[]).await?;
    console.show(&view, || view.public_key.clone())?;
    Ok(Exit::Ok)
}
