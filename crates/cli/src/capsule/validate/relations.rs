//! What only several capsules together show: whether those that may be called are there, and can be
//! understood by who calls them.

use std::path::Path;

use super::super::place::Place;
use super::super::source::{Source, beside};
use super::{Finding, Severity};

use aod_domain::manifest::resolve;

/// What does not fit together among `sources`; others that lie beside them count as known.
pub(crate) fn relations(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for caller in sources {
        for target in caller.targets() {
            match resolve(target, sources.iter().map(Source::called)) {
                Ok(name) => {
                    let callee = sources.iter().find(|source| source.name == *name);
                    findings.extend(callee.and_then(|callee| undescribed(callee, caller)));
                }
                Err(_) if beside(&caller.directory, target).is_some() => (),
                Err(error) => findings.push(warning(
                    &caller.directory,
                    "tools.yaml",
                    place_of_word(caller.tools_yaml.as_deref().unwrap_or_default(), target),
                    format!("{error}, neither among the directories given nor beside this one"),
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
        "`description` is missing; {} may call it, and is told what it does by that",
        caller.name
    );
    Some(warning(
        &callee.directory,
        "agent.yaml",
        Place::default(),
        message,
    ))
}

fn warning(directory: &Path, file: &str, place: Place, message: String) -> Finding {
    Finding {
        severity: Severity::Warning,
        file: directory.join(file).display().to_string(),
        line: place.line,
        column: place.column,
        message,
    }
}

/// Where `word` first stands in a text, outside of its comments.
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
    use std::fs;

    use super::*;

    fn write(root: &Path, name: &str, agent: &str, tools: &str) -> Source {
        let directory = root.join(name);
        fs::create_dir(&directory).unwrap();
        let write = |file: &str, text: &str| fs::write(directory.join(file), text).unwrap();
        write("Dockerfile", "FROM scratch\nCMD x\n");
        write("schema.json", r#"{"input": {}, "output": {}}"#);
        write("agent.yaml", agent);
        write("tools.yaml", tools);
        Source::read(&directory).unwrap()
    }

    #[test]
    fn callees_are_there_and_say_what_they_do() {
        let root = tempfile::tempdir().unwrap();
        let caller = write(
            root.path(),
            "survey",
            "description: x\n",
            "# chrat is no typo here\ncapsules: [Chart Maker, chrat, report]\n",
        );
        let callee = write(root.path(), "chart", "title: Chart Maker\n", "");
        write(root.path(), "report", "", "");
        let shown: Vec<String> = relations(&[caller, callee])
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
                "/chart/agent.yaml: warning: `description` is missing; survey may call it, and is told what it does by that",
                "/survey/tools.yaml:2:25: warning: no capsule is called \"chrat\"; is \"chart\" meant?, \
                 neither among the directories given nor beside this one",
            ]
        );
    }
}
