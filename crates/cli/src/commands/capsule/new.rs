//! `aod capsule new`: creates the directory of a capsule from a template.

use aod_kit::template;
use clap::ValueEnum as _;
use serde_json::json;

use crate::arguments::NewArguments;
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;

pub(super) fn new(arguments: &NewArguments, console: Console) -> Result<Exit, Failure> {
    let template = arguments.template.to_possible_value();
    let template = template.expect("every template has a name");
    let (name, files) = template::create(&arguments.directory, template.get_name())?;
    let shown = arguments.directory.display().to_string();
    console.show(
        &json!({"name": name, "directory": shown, "files": files}),
        || shown.clone(),
    )?;
    console.tell(&format!(
        "next: aod capsule test {shown}     run its test cases in a temporary private cluster\n      \
         then edit schema.json and the program: see README.md in the directory"
    ));
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::arguments::Template;
    use crate::console::Format;

    fn create(directory: &Path, template: Template) -> Result<Exit, Failure> {
        let directory = directory.to_owned();
        let arguments = NewArguments {
            directory,
            template,
        };
        new(&arguments, Console::of_this_process(Format::Json))
    }

    #[test]
    fn every_template_of_the_command_creates_a_capsule_once() {
        for template in Template::value_variants() {
            let root = tempfile::tempdir().unwrap();
            let directory = root.path().join("word-count");
            create(&directory, *template).unwrap();
            assert_eq!(aod_kit::validate(&directory).unwrap(), []);
            let again = create(&directory, *template).unwrap_err().render();
            assert!(again.contains("word-count cannot be created: "), "{again}");
        }
    }

    #[test]
    fn invalid_capsule_name_is_rejected_with_a_valid_one_as_hint() {
        let root = tempfile::tempdir().unwrap();
        let failure = create(&root.path().join("Word Count"), Template::Plain);
        let shown = failure.unwrap_err().render();
        assert!(shown.ends_with("\nhint: use word-count"), "{shown}");
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
    }
}
