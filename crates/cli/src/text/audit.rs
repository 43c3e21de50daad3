//! The report of the verification of a bundle.

use aod_domain::audit::{Report, SealReport, Verdict};

/// The verdict, then tree and seal, then all findings, one per line.
pub(crate) fn report(report: &Report) -> String {
    let mut text = String::new();
    let mut line = |line: &str| {
        text.push_str(line);
        text.push('\n');
    };
    match (&report.seal, report.verdict) {
        (Some(seal), Verdict::Sealed) => line(&format!("sealed by {}", seal.public_key)),
        (_, Verdict::Findings) => {
            let count = report.findings.len();
            line(&format!(
                "{count} finding{}",
                if count == 1 { "" } else { "s" }
            ));
        }
        (None, _) | (_, Verdict::Open) => line("open: this tree has no signature"),
    }
    if let Some(root) = report.root {
        let Report {
            runs,
            events,
            artifacts,
            ..
        } = report;
        line(&format!(
            "tree       {root}: {runs} runs, {events} events, {artifacts} artifacts"
        ));
    }
    match &report.seal {
        Some(seal) => line(&format!("seal       {}", of_seal(seal))),
        None => line(
            "seal       no valid seal: the creator of the bundle could have changed its content",
        ),
    }
    for finding in &report.findings {
        line(&format!("finding    {finding}"));
    }
    text
}

fn of_seal(seal: &SealReport) -> String {
    let SealReport {
        public_key,
        is_key_compared,
        sealed_by,
        sealed_at,
    } = seal;
    let compared = if *is_key_compared {
        "key compared with the expected key"
    } else {
        "key not compared: anyone can create a key; pass the expected key with --public-key"
    };
    format!("{public_key} by {sealed_by} at {sealed_at}; {compared}")
}
