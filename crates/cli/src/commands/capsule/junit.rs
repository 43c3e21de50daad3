//! Test results as JUnit XML, for build servers.

use std::fmt::Write as _;

use super::test::Tested;

/// All results, one suite per capsule; the results of one capsule must be adjacent.
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

/// Escapes `text` for elements and attributes; characters that XML 1.0 forbids become question marks.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // A parser turns an unescaped newline in an attribute into a space.
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
