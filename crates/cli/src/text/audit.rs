//! What came of the check of a bundle.

use aod_domain::audit::{Report, SealReport, Verdict};

/// The verdict on a line, then what it is about, then all findings.
pub(crate) fn report(report: &Report) -> String {
    let mut text = String::new();
    // Whoever made the bundle chose its names: none of them may steer the terminal.
    let mut line = |line: &str| {
        for character in line.chars() {
            if character.is_control() {
                text.extend(character.escape_default());
            } else {
                text.push(character);
            }
        }
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
        (None, _) | (_, Verdict::Open) => line("open: nobody has signed this tree"),
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
        None => line("seal       none that holds: whoever made the bundle could have made another"),
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
        "compared with the key that was expected"
    } else {
        "compared with nothing: anybody can make a key; --public-key names the one that is expected"
    };
    format!("{public_key} by {sealed_by} at {sealed_at}; {compared}")
}
