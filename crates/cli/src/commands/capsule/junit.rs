//! Results of tests in the XML of JUnit, as build servers read it.

use std::fmt::Write as _;

use super::test::Tested;

/// All results, a suite a capsule; those of one capsule stand together.
pub(super) fn xml(results: &[Tested]) -> String {
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to memory does not fail.
    let _ = writeln!(text, "<testsuites{}>", totals(results));
    for suite in results.chunk_by(|one, other| one.capsule == other.capsule) {
        let name = escaped(&suite[0].capsule);
        let _ = writeln!(text, "  <testsuite name=\"{name}\"{}>", totals(suite));
        for tested in suite {
            let case = escaped(&tested.case);
            let seconds = tested.seconds;
            let _ = write!(
                text,
                "    <testcase classname=\"{name}\" name=\"{case}\" time=\"{seconds:.3}\""
            );
            match tested.differences.first() {
                None => text.push_str("/>\n"),
                Some(first) => {
                    let (first, all) = (escaped(first), escaped(&tested.differences.join("\n")));
                    let _ = write!(
                        text,
                        ">\n      <failure message=\"{first}\">{all}</failure>\n    </testcase>\n"
                    );
                }
            }
        }
        text.push_str("  </testsuite>\n");
    }
    text.push_str("</testsuites>\n");
    text
}

fn totals(results: &[Tested]) -> String {
    let failures = results.iter().filter(|tested| tested.has_failed()).count();
    let seconds: f64 = results.iter().map(|tested| tested.seconds).sum();
    format!(
        " tests=\"{}\" failures=\"{failures}\" errors=\"0\" time=\"{seconds:.3}\"",
        results.len()
    )
}

/// `text` as it may stand in elements and attributes; what XML 1.0 has no sign for becomes a question mark.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // As it is, a reader would make a space of it in attributes.
            '\n' => escaped.push_str("&#10;"),
            '\t' => escaped.push_str("&#9;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push('?'),
            control if control < ' ' => escaped.push('?'),
            plain => escaped.push(plain),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_suites_of_cases() {
        let tested = |capsule: &str, case: &str, differences: &[&str]| Tested {
            capsule: capsule.into(),
            case: case.into(),
            seconds: 0.25,
            differences: differences.iter().map(|&line| line.to_owned()).collect(),
        };
        let results = [
            tested("chart", "one", &[]),
            tested(
                "chart",
                "<two>",
                &["/a: expected \"x\" & more", "\u{1b}[0m"],
            ),
            tested("report", "one", &[]),
        ];
        insta::assert_snapshot!(xml(&results));
    }
}
