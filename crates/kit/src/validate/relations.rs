//! Checks across capsules: every callee exists, and describes itself to its callers.

use aod_domain::manifest::resolve;

use super::{Finding, Severity};
use crate::place::Place;
use crate::source::{Source, beside};

/// The problems between `sources`. Directories beside them count as existing callees.
pub fn relations(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for caller in sources {
        for target in caller.targets() {
            match resolve(target, sources.iter().map(Source::called)) {
                Ok(name) => {
                    let callee = sources.iter().find(|source| source.name == *name);
                    findings.extend(callee.and_then(|callee| undescribed(callee, caller)));
                }
                Err(_) if beside(&caller.directory, target).is_some() => (),
                Err(error) => findings.push(Finding::new(
                    Severity::Warning,
                    &caller.directory,
                    "tools.yaml",
                    place_of_word(caller.tools_yaml.as_deref().unwrap_or_default(), target),
                    format!("{error} (searched the given directories and the siblings of this directory)"),
                )),
            }
        }
    }
    findings.dedup();
    findings
}

fn undescribed(callee: &Source, caller: &Source) -> Option<Finding> {
    if callee.agent.description.is_some() {
        return None;
    }
    let message = format!(
        "`description` is missing; expected one for its caller {}",
        caller.name
    );
    let (directory, place) = (&callee.directory, Place::default());
    Some(Finding::new(
        Severity::Warning,
        directory,
        "agent.yaml",
        place,
        message,
    ))
}

/// The first place of `word` in a text, outside of comments.
pub(super) fn place_of_word(text: &[u8], word: &str) -> Place {
    let text = String::from_utf8_lossy(text);
    let lines = (1..).zip(text.lines());
    let found = lines.filter_map(|(line, content)| {
        let content = content.split(" #").next().unwrap_or_default();
        let start = content.find(word)?;
        let column = content[..start].chars().count() as u64 + 1;
        (!content.trim_start().starts_with('#')).then_some(Place { line, column })
    });
    found.into_iter().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::tests::write;

    #[test]
    fn missing_callee_and_missing_description_get_warnings() {
        let root = tempfile::tempdir().unwrap();
        let caller = write(
            root.path(),
            "survey",
            "description: x\n",
            "# chrat is no typo here\ncapsules: [Chart Maker, chrat, report]\n",
        );
        let callee = write(root.path(), "chart", "title: Chart Maker\n", "");
        write(root.path(), "report", "", "");
        let sources = [caller, callee].map(|directory| Source::read(&directory).unwrap());
        let shown: Vec<String> = relations(&sources)
            .iter()
            .map(|finding| {
                finding
                    .to_string()
                    .replace(&root.path().display().to_string(), "")
            })
            .collect();
        assert_eq!(
            shown,
            [
                "/chart/agent.yaml: warning: `description` is missing; expected one for its caller survey",
                "/survey/tools.yaml:2:25: warning: no capsule is named \"chrat\"; did you mean \"chart\"? \
                 (searched the given directories and the siblings of this directory)",
            ]
        );
    }
}
