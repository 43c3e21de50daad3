//! The inputs of a task: their schema, and the values that a caller gives.

use serde_json::{Map, Number, Value, json};

use super::{Input, InputType, Workflow};
use crate::text::quoted;

/// The inputs of a request, and what is wrong with them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Given {
    pub values: Map<String, Value>,
    /// Inputs that the workflow does not declare.
    pub warnings: Vec<String>,
    pub problems: Vec<String>,
}

/// The `schema.json` of a task: its arguments are the inputs.
pub fn schema(workflow: &Workflow) -> Value {
    let properties: Map<String, Value> = workflow
        .inputs
        .iter()
        .map(|input| (input.name.clone(), property(input)))
        .collect();
    let is_needed = |input: &&Input| input.is_required && input.default.is_none();
    let required: Vec<&str> = workflow
        .inputs
        .iter()
        .filter(is_needed)
        .map(|input| input.name.as_str())
        .collect();
    json!({
        "input": {"type": "object", "properties": properties, "required": required},
        "output": {
            "type": "object",
            "properties": {
                "status": {"enum": ["completed", "partial", "failed"]},
                "outputs": {"type": "object", "additionalProperties": {"type": "string"}},
            },
            "required": ["status", "outputs"],
        },
    })
}

fn property(input: &Input) -> Value {
    let mut property = json!({"type": input.kind.as_str()});
    if let Some(description) = &input.description {
        property["description"] = json!(description);
    }
    property
}

/// Combines the inputs of a file with those of the command line, which win: names with texts.
pub fn give(workflow: &Workflow, file: Map<String, Value>, texts: &[(String, String)]) -> Given {
    let mut given = Given {
        values: file,
        ..Given::default()
    };
    for (name, text) in texts {
        let kind = declared(workflow, name).map_or(InputType::Text, |input| input.kind);
        match typed(kind, text) {
            Some(value) => drop(given.values.insert(name.clone(), value)),
            None => given.problems.push(mismatch(name, &quoted(text), kind)),
        }
    }
    for (name, value) in &given.values {
        match declared(workflow, name) {
            Some(input) if !input.kind.accepts(value) => {
                given
                    .problems
                    .push(mismatch(name, &value.to_string(), input.kind));
            }
            Some(_) => (),
            None if super::INPUTS_ALWAYS.contains(&name.as_str()) => (),
            None => given
                .warnings
                .push(format!("the workflow declares no input {}", quoted(name))),
        }
    }
    for input in &workflow.inputs {
        let is_missing = input.is_required
            && input.default.is_none()
            && !given.values.contains_key(&input.name)
            && !texts.iter().any(|(name, _)| *name == input.name);
        if is_missing {
            let kind = input.kind.as_str();
            let name = quoted(&input.name);
            given
                .problems
                .push(format!("the input {name} is missing; expected a {kind}"));
        }
    }
    given
}

fn declared<'a>(workflow: &'a Workflow, name: &str) -> Option<&'a Input> {
    workflow.inputs.iter().find(|input| input.name == name)
}

fn mismatch(name: &str, value: &str, kind: InputType) -> String {
    let name = quoted(name);
    format!("the input {name} is {value}; expected a {}", kind.as_str())
}

fn typed(kind: InputType, text: &str) -> Option<Value> {
    match kind {
        InputType::Text => Some(json!(text)),
        InputType::Number => text.trim().parse::<Number>().ok().map(Value::Number),
        InputType::Boolean => match text.trim() {
            "true" => Some(json!(true)),
            "false" => Some(json!(false)),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Contract;
    use crate::task::read;

    fn workflow() -> Workflow {
        let yaml = "
name: w
inputs:
  - {name: who, type: string, required: true}
  - {name: count, type: number, required: true}
  - {name: deep, type: boolean, required: true, default: false}
steps: [{id: one, type: command, command: 'true'}]
";
        let outcome = read("w.yaml", yaml.as_bytes(), false);
        outcome.value.expect("a workflow")
    }

    fn text(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn command_line_wins_and_has_declared_types() {
        let file = json!({"who": "file", "count": 1, "title": "t", "extra": [1]});
        let file = file.as_object().expect("an object").clone();
        let texts = [
            text("who", "a=b@c"),
            text("count", "2.50"),
            text("deep", "true"),
        ];
        let given = give(&workflow(), file, &texts);
        assert_eq!(given.problems, Vec::<String>::new());
        assert_eq!(given.warnings, ["the workflow declares no input \"extra\""]);
        assert_eq!(given.values["who"], "a=b@c");
        assert_eq!(given.values["count"].to_string(), "2.5");
        assert_eq!(given.values["deep"], true);
    }

    #[test]
    fn all_problems_are_listed() {
        let file = json!({"deep": "yes"})
            .as_object()
            .expect("an object")
            .clone();
        let given = give(&workflow(), file, &[text("count", "many")]);
        let expected = [
            "the input \"count\" is \"many\"; expected a number",
            "the input \"deep\" is \"yes\"; expected a boolean",
            "the input \"who\" is missing; expected a string",
        ];
        assert_eq!(given.problems, expected);
    }

    #[test]
    fn schema_is_a_contract() {
        let schema = schema(&workflow());
        assert_eq!(schema["input"]["required"], json!(["who", "count"]));
        let contract = Contract::parse(schema.to_string().as_bytes());
        assert!(contract.is_ok(), "{contract:?}");
    }
}
