//! Answers that are given in place of capsules and of models, for tests of those that ask them.
//!
//! Such a call goes the way of every other: gateway, log, queue and node; its arguments and files lie
//! in the run's directories, and what is answered is taken from there, checked against the schema and
//! stored. Only the container is none: between its start and its end an answer is written.
//!
//! What models answer is a file that the capsule under test finds in its container, and its SDK reads.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aod_domain::file_name::FileName;
use aod_domain::id::RunId;
use aod_domain::node::ObservedContainer;
use aod_domain::run::Exit;
use aod_ports::container_runtime::{
    Container, ContainerEvent, ContainerRuntime, ContainerSpec, EngineInfo, ObservedImage,
    RuntimeError, Verdict,
};
use aod_ports::log_stream::Output;
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, watch};

/// The image of capsules of which nothing is there but answers.
pub(crate) const IMAGE: &str =
    "sha256:0000000000000000000000000000000000000000000000000000000000000000";

/// What the names of containers begin with that are none.
const NAME_PREFIX: &str = "stand-in-";

/// How long a call may come before the test has said which run it belongs to: the answer of one
/// request.
const SCRIPT_PATIENCE: Duration = Duration::from_secs(30);

/// Where a root finds what models answer, in `/io`.
const MODEL_SCRIPT: &str = "script.yaml";

/// The variable that says which model is meant, whatever agent.yaml says. Source: the SDK,
/// `capsules/sdk/src/aod/agent/choice.py`.
const MODEL_VARIABLE: &str = "AOD_MODEL";

/// How a stand-in ends that answers with an error.
const EXIT_CODE_ERROR: i32 = 1;

/// The code of the error that a call gets for which there is no answer.
pub(crate) const UNANSWERED: &str = "no_canned_answer";

/// One answer, to be given once.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    /// What the arguments must have; other ones may be there too.
    pub(crate) when: Map<String, Value>,
    pub(crate) result: Result<Value, Value>,
    /// Files of the answer: their names there, their paths here.
    pub(crate) files: Vec<(FileName, PathBuf)>,
}

/// What is answered to the calls of one tree of runs, and to its root by models.
#[derive(Debug, Default)]
pub(crate) struct Script {
    model: Option<Vec<u8>>,
    /// By the name of the callee; an answer that was given is none.
    answers: Mutex<BTreeMap<String, Vec<Option<Answer>>>>,
    unanswered: Mutex<Vec<(String, Value)>>,
}

impl Script {
    /// `model` is a script of the SDK.
    pub(crate) fn new(answers: BTreeMap<String, Vec<Answer>>, model: Option<Vec<u8>>) -> Self {
        let answers = answers
            .into_iter()
            .map(|(callee, answers)| (callee, answers.into_iter().map(Some).collect()))
            .collect();
        Self {
            model,
            answers: Mutex::new(answers),
            unanswered: Mutex::default(),
        }
    }

    /// Whether it speaks for the capsule `callee`.
    fn has(&self, callee: &str) -> bool {
        lock(&self.answers).contains_key(callee)
    }

    /// The first answer that is left and fits; a call without one is remembered.
    fn take(&self, callee: &str, arguments: Value) -> Option<Answer> {
        let mut answers = lock(&self.answers);
        let fits = |answer: &&mut Option<Answer>| {
            let answer = answer.as_ref();
            answer.is_some_and(|answer| contains_all(&arguments, &answer.when))
        };
        let slots = answers.get_mut(callee).into_iter().flatten();
        let taken = slots.into_iter().find(fits).and_then(Option::take);
        if taken.is_none() {
            lock(&self.unanswered).push((callee.to_owned(), arguments));
        }
        taken
    }

    /// Calls for which there was no answer: callee and arguments.
    pub(crate) fn unanswered(&self) -> Vec<(String, Value)> {
        lock(&self.unanswered).clone()
    }

    /// Answers that nobody asked for: callee and place in its list, from 0.
    pub(crate) fn unused(&self) -> Vec<(String, usize)> {
        let answers = lock(&self.answers);
        let left = answers.iter().flat_map(|(callee, slots)| {
            let slots = slots.iter().enumerate();
            let left = slots.filter(|(_, slot)| slot.is_some());
            left.map(|(index, _)| (callee.clone(), index))
        });
        left.collect()
    }
}

/// What a capsule gives whose answers are these: any object, in which those texts are declared that
/// name files of an answer. Only declared ones follow a file that needs another name at its caller's.
pub(crate) fn schema_of(answers: &[&Answer]) -> Value {
    let mut schema = json!({"type": "object"});
    for answer in answers {
        let names: Vec<&str> = answer.files.iter().map(|(name, _)| name.as_str()).collect();
        if let Ok(output) = &answer.result {
            declare(output, &names, &mut schema);
        }
    }
    schema
}

/// Adds to `schema` where `value` has one of `names`.
fn declare(value: &Value, names: &[&str], schema: &mut Value) {
    match value {
        Value::String(text) if names.contains(&text.as_str()) => {
            schema["format"] = json!("file_path");
        }
        Value::Object(members) => {
            for (key, value) in members {
                let mut below = schema["properties"][key].take();
                if below.is_null() {
                    below = json!({});
                }
                declare(value, names, &mut below);
                schema["properties"][key] = below;
            }
        }
        Value::Array(items) => {
            let mut below = schema["items"].take();
            if below.is_null() {
                below = json!({});
            }
            for item in items {
                declare(item, names, &mut below);
            }
            schema["items"] = below;
        }
        _ => (),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether `value` has all that `wanted` has, at any depth; lists are compared whole.
fn contains_all(value: &Value, wanted: &Map<String, Value>) -> bool {
    wanted
        .iter()
        .all(|(key, wanted)| match (value.get(key), wanted) {
            (Some(found), Value::Object(wanted)) => contains_all(found, wanted),
            (found, wanted) => found == Some(wanted),
        })
}

/// The scripts of all trees, by their roots.
#[derive(Debug, Default)]
pub(crate) struct StandIns {
    scripts: watch::Sender<BTreeMap<RunId, Arc<Script>>>,
}

impl StandIns {
    /// From now on `script` answers what is called below `root`. Every root has one, sooner or later.
    pub(crate) fn add(&self, root: RunId, script: Arc<Script>) {
        self.scripts.send_modify(|scripts| {
            scripts.insert(root, script);
        });
    }

    /// The script of the tree of `run`, once it is there.
    async fn script_for(&self, run: RunId) -> Result<Arc<Script>, RuntimeError> {
        let root = run.root();
        let mut scripts = self.scripts.subscribe();
        let found = scripts.wait_for(|scripts| scripts.contains_key(&root));
        let found = tokio::time::timeout(SCRIPT_PATIENCE, found).await;
        let script = found.ok().and_then(Result::ok);
        let script = script.and_then(|scripts| scripts.get(&root).cloned());
        script.ok_or_else(|| {
            broken(io::Error::other(format!(
                "nobody said what is answered below {root}"
            )))
        })
    }
}

fn broken(error: io::Error) -> RuntimeError {
    RuntimeError::Engine {
        action: "answering in place of a capsule",
        source: Box::new(error),
    }
}

/// The engine, with stand-ins beside its containers.
pub(super) struct StandInRuntime {
    engine: Arc<dyn ContainerRuntime>,
    stand_ins: Arc<StandIns>,
}

impl StandInRuntime {
    pub(super) fn new(engine: Arc<dyn ContainerRuntime>, stand_ins: Arc<StandIns>) -> Self {
        Self { engine, stand_ins }
    }
}

impl fmt::Debug for StandInRuntime {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.engine.fmt(formatter)
    }
}

#[async_trait]
impl ContainerRuntime for StandInRuntime {
    async fn describe(&self) -> Result<EngineInfo, RuntimeError> {
        self.engine.describe().await
    }

    async fn has_image(&self, image: &str) -> Result<bool, RuntimeError> {
        Ok(image == IMAGE || self.engine.has_image(image).await?)
    }

    async fn build_image(
        &self,
        context: PathBuf,
        name: &str,
        tag: &str,
        progress: mpsc::Sender<String>,
    ) -> Result<String, RuntimeError> {
        self.engine.build_image(context, name, tag, progress).await
    }

    async fn save_image(
        &self,
        image: &str,
    ) -> Result<BoxStream<'static, Result<Bytes, RuntimeError>>, RuntimeError> {
        self.engine.save_image(image).await
    }

    async fn load_image(&self, image: &str, archive: PathBuf) -> Result<(), RuntimeError> {
        self.engine.load_image(image, archive).await
    }

    async fn built_images(&self) -> Result<Vec<ObservedImage>, RuntimeError> {
        self.engine.built_images().await
    }

    async fn remove_image(&self, image: &str) -> Result<bool, RuntimeError> {
        self.engine.remove_image(image).await
    }

    async fn start(&self, spec: ContainerSpec) -> Result<Box<dyn Container>, RuntimeError> {
        let script = self.stand_ins.script_for(spec.run).await?;
        if spec.run == spec.run.root() {
            let spec = match &script.model {
                None => spec,
                Some(model) => with_model(spec, model).await.map_err(broken)?,
            };
            return self.engine.start(spec).await;
        }
        if spec.image != IMAGE && !script.has(&spec.capsule) {
            return self.engine.start(spec).await;
        }
        let answered = tokio::task::spawn_blocking(move || answer(&spec, &script)).await;
        let ended = answered.map_err(io::Error::other).and_then(|ended| ended);
        Ok(Box::new(ended.map_err(broken)?))
    }

    async fn list(&self) -> Result<Vec<ObservedContainer>, RuntimeError> {
        self.engine.list().await
    }

    async fn remove(&self, name: &str) -> Result<(), RuntimeError> {
        if name.starts_with(NAME_PREFIX) {
            return Ok(());
        }
        self.engine.remove(name).await
    }
}

/// Has the container ask `model`, a script, in place of all models.
async fn with_model(mut spec: ContainerSpec, model: &[u8]) -> io::Result<ContainerSpec> {
    tokio::fs::write(spec.io.io.join(MODEL_SCRIPT), model).await?;
    let value = format!("script//io/{MODEL_SCRIPT}");
    spec.environment.push((MODEL_VARIABLE.to_owned(), value));
    Ok(spec)
}

/// Does what the capsule would have done.
fn answer(spec: &ContainerSpec, script: &Script) -> io::Result<Ended> {
    let arguments: Value = serde_json::from_slice(&fs::read(&spec.io.input_json)?)?;
    let (output, code, said) = match script.take(&spec.capsule, arguments) {
        None => {
            let message = format!("no canned answer of {} fits the call", spec.capsule);
            let error = json!({"code": UNANSWERED, "message": message, "retryable": false});
            (json!({ "error": error }), EXIT_CODE_ERROR, message)
        }
        Some(answer) => {
            for (name, path) in &answer.files {
                let target = spec.io.outputs.join(name.as_str());
                fs::create_dir_all(target.parent().unwrap_or(&spec.io.outputs))?;
                fs::copy(path, target)?;
            }
            let said = "a canned answer".to_owned();
            match answer.result {
                Ok(output) => (output, 0, said),
                Err(error) => (json!({ "error": error }), EXIT_CODE_ERROR, said),
            }
        }
    };
    fs::write(spec.io.io.join("output.json"), output.to_string())?;
    Ok(Ended {
        name: format!("{NAME_PREFIX}{}-{}", spec.run.token(), spec.attempt),
        said: format!("{said}\n"),
        code,
    })
}

/// A stand-in, which has answered before it is seen.
struct Ended {
    name: String,
    said: String,
    code: i32,
}

#[async_trait]
impl Container for Ended {
    fn name(&self) -> &str {
        &self.name
    }

    fn events(&mut self) -> BoxStream<'static, ContainerEvent> {
        let wrote = ContainerEvent::Wrote {
            output: Output::Stderr,
            bytes: std::mem::take(&mut self.said).into(),
        };
        let exited = ContainerEvent::Exited {
            exit: Exit {
                code: Some(self.code),
                signal: None,
            },
            out_of_memory: false,
            asked_from_outside: false,
        };
        stream::iter([ContainerEvent::Started, wrote, exited]).boxed()
    }

    async fn renew(&self, _milliseconds: u64) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn terminate(&self) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn kill(&self) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn gone(&self) -> Result<Verdict, RuntimeError> {
        Ok(Verdict {
            out_of_memory: false,
            exit_code: Some(self.code.into()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer_to(when: &Value, output: &Value) -> Answer {
        Answer {
            when: when.as_object().cloned().unwrap_or_default(),
            result: Ok(output.clone()),
            files: Vec::new(),
        }
    }

    #[test]
    fn files_of_answers_are_declared() {
        let with_file = |output: &Value| Answer {
            files: vec![(FileName::parse("a.txt").unwrap(), PathBuf::new())],
            ..answer_to(&json!({}), output)
        };
        let one = with_file(&json!({"text": "a.txt", "all": [{"file": "a.txt", "n": 1}]}));
        let other = answer_to(&json!({}), &json!({"n": 2}));
        let file = json!({"format": "file_path"});
        assert_eq!(
            schema_of(&[&one, &other]),
            json!({"type": "object", "properties": {
                "text": file, "n": {},
                "all": {"items": {"properties": {"file": file, "n": {}}}},
            }})
        );
    }

    #[test]
    fn each_answer_is_given_once_to_the_first_call_that_it_fits() {
        let answers = vec![
            answer_to(&json!({"kind": {"name": "bar"}}), &json!({"n": 1})),
            answer_to(&json!({}), &json!({"n": 2})),
        ];
        let script = Script::new(BTreeMap::from([("chart".to_owned(), answers)]), None);
        let ask = |arguments| script.take("chart", arguments).map(|answer| answer.result);
        assert_eq!(ask(json!({"kind": "pie"})), Some(Ok(json!({"n": 2}))));
        assert_eq!(script.unused(), [("chart".to_owned(), 0)]);
        assert_eq!(ask(json!({"kind": "pie"})), None);
        assert_eq!(
            ask(json!({"kind": {"name": "bar", "wide": true}, "more": 1})),
            Some(Ok(json!({"n": 1})))
        );
        assert_eq!(
            script.unanswered(),
            [("chart".to_owned(), json!({"kind": "pie"}))]
        );
        assert!(script.unused().is_empty());
    }
}
