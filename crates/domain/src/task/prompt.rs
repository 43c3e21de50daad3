//! The prompt of a step: the author's text, and after it a request for the outputs that the step declares.

use serde_json::Value;

use super::{Output, OutputType};

/// Precedes the generated text.
const HEADING: &str = "\n\n---\n\nOutputs of this step:\n";

/// Precedes the values.
const VALUES: &str = "
End your answer with one JSON object in a fenced block that begins with ```json. The object has exactly these members:

";

/// Precedes the files.
const FILES: &str = "
Write these files, with paths relative to the current directory, unless the instructions above exclude a file:

";

/// `prompt`, with a request for `outputs` after it: values in a JSON object at the end of the answer, as
/// [`capture`](super::capture) finds them, and files by name. A file without a name is left out.
pub fn with_outputs(prompt: &str, outputs: &[Output]) -> String {
    let (mut values, mut files) = (String::new(), String::new());
    for output in outputs {
        match &output.kind {
            OutputType::Text => values.push_str(&value(output, "string")),
            OutputType::Number => values.push_str(&value(output, "number")),
            OutputType::Boolean => values.push_str(&value(output, "boolean")),
            OutputType::File(None) => (),
            OutputType::File(Some(path)) => files.push_str(&item(path, None, output)),
        }
    }
    if values.is_empty() && files.is_empty() {
        return prompt.to_owned();
    }
    let mut text = format!("{}{HEADING}", prompt.trim_end());
    if !values.is_empty() {
        text.push_str(VALUES);
        text.push_str(&values);
    }
    if !files.is_empty() {
        text.push_str(FILES);
        text.push_str(&files);
    }
    text
}

fn value(output: &Output, kind: &str) -> String {
    let name = Value::from(output.name.as_str()).to_string();
    item(&name, Some(kind), output)
}

/// A line such as `- "size" (number, required): Lines of the change`.
fn item(name: &str, kind: Option<&str>, output: &Output) -> String {
    let required = output.is_required.then_some("required");
    let marks: Vec<&str> = kind.into_iter().chain(required).collect();
    let marks = match marks.as_slice() {
        [] => String::new(),
        marks => format!(" ({})", marks.join(", ")),
    };
    let words = output
        .description
        .iter()
        .flat_map(|text| text.split_whitespace());
    let description = words.collect::<Vec<_>>().join(" ");
    let colon = if description.is_empty() { "" } else { ": " };
    format!("- {name}{marks}{colon}{description}\n")
}
