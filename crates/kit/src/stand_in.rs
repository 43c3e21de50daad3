//! Canned answers in place of capsules and models, for tests of their callers.
//!
//! A call with a canned answer takes the usual path: gateway, log, queue and node. The node puts its arguments and
//! files into the directories of the run, and checks and stores the outputs. Only the container is replaced: the
//! stand-in writes the canned answer.
//!
//! The answers of models are a file in the container of the capsule under test; its SDK reads them.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aod_domain::capsule::Image;
use aod_domain::file_name::FileName;
use aod_domain::id::RunId;
use aod_domain::node::ObservedContainer;
use aod_domain::run::Exit;
use aod_ports::artifact_store::ArtifactStore;
use aod_ports::container_runtime::{
    Container, ContainerEvent, ContainerRuntime, ContainerSpec, EngineInfo, ImageBuild, ImagePush,
    NamedImage, ObservedImage, RuntimeError, Verdict,
};
use aod_ports::log_stream::Output;
use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, watch};

/// The image of capsules that exist only as canned answers.
pub const IMAGE: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";

/// The prefix of names of stand-ins, which have no container.
const NAME_PREFIX: &str = "stand-in-";

/// Maximum time between a call and the test's [`StandIns::add`], which needs the response with the id of the root.
const SCRIPT_PATIENCE: Duration = Duration::from_secs(30);

/// The file in `/io` with the answers of models, for the root.
const MODEL_SCRIPT: &str = "script.yaml";

/// The variable that overrides the model of agent.yaml. Source: the SDK,
/// `capsules/sdk/src/aod/agent/choice.py`.
const MODEL_VARIABLE: &str = "AOD_MODEL";

/// The exit code of a stand-in that answers with an error.
const EXIT_CODE_ERROR: i32 = 1;

/// The error code of a call without a canned answer.
const UNANSWERED: &str = "no_canned_answer";

/// A canned answer, used once.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Members that the arguments must contain; more are allowed.
    pub when: Map<String, Value>,
    /// The output, or the error.
    pub result: Result<Value, Value>,
    /// Files of the answer: name in the output, path on this machine.
    pub files: Vec<(FileName, PathBuf)>,
}

/// The canned answers for one tree of runs, and the answers of models for its root.
#[derive(Debug, Default)]
pub struct Script {
    model: Option<Vec<u8>>,
    /// By the name of the callee; a used answer becomes none.
    answers: Mutex<BTreeMap<String, Vec<Option<Answer>>>>,
    unanswered: Mutex<Vec<(String, Value)>>,
}

impl Script {
    /// `answers` by the name of the callee; `model` is a script of the SDK.
    pub fn new(answers: BTreeMap<String, Vec<Answer>>, model: Option<Vec<u8>>) -> Self {
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

    /// Whether the script replaces the capsule `callee`.
    fn has(&self, callee: &str) -> bool {
        lock(&self.answers).contains_key(callee)
    }

    /// Takes the first unused answer that matches; records a call without one.
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

    /// Calls without an answer: callee and arguments.
    pub fn unanswered(&self) -> Vec<(String, Value)> {
        lock(&self.unanswered).clone()
    }

    /// Unused answers: callee and index in its list.
    pub fn unused(&self) -> Vec<(String, usize)> {
        let answers = lock(&self.answers);
        let left = answers.iter().flat_map(|(callee, slots)| {
            let slots = slots.iter().enumerate();
            let left = slots.filter(|(_, slot)| slot.is_some());
            left.map(|(index, _)| (callee.clone(), index))
        });
        left.collect()
    }
}

/// An output schema for `answers`: any object, with a declaration of each text that names a file of an answer. AOD
/// renames only declared files if the caller already has a file of that name.
pub fn schema_of(answers: &[&Answer]) -> Value {
    let mut schema = json!({"type": "object"});
    for answer in answers {
        let names: Vec<&str> = answer.files.iter().map(|(name, _)| name.as_str()).collect();
        if let Ok(output) = &answer.result {
            declare(output, &names, &mut schema);
        }
    }
    schema
}

/// Declares in `schema` each text of `value` that is one of `names`.
fn declare(value: &Value, names: &[&str], schema: &mut Value) {
    // The schema of a new member.
    if schema.is_null() {
        *schema = json!({});
    }
    match value {
        Value::String(text) if names.contains(&text.as_str()) => {
            schema["format"] = json!("file_path");
        }
        Value::Object(members) => {
            for (key, value) in members {
                declare(value, names, &mut schema["properties"][key]);
            }
        }
        Value::Array(items) => {
            for item in items {
                declare(item, names, &mut schema["items"]);
            }
        }
        _ => (),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether `value` contains `wanted`, at any depth; lists must be equal.
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
pub struct StandIns {
    scripts: watch::Sender<BTreeMap<RunId, Arc<Script>>>,
}

impl StandIns {
    /// Sets the script for calls below `root`. Every root must get one.
    pub fn add(&self, root: RunId, script: Arc<Script>) {
        self.scripts.send_modify(|scripts| {
            scripts.insert(root, script);
        });
    }

    /// Waits for the script of the tree of `run`.
    async fn script_for(&self, run: RunId) -> Result<Arc<Script>, RuntimeError> {
        let root = run.root();
        let mut scripts = self.scripts.subscribe();
        let found = scripts.wait_for(|scripts| scripts.contains_key(&root));
        let found = tokio::time::timeout(SCRIPT_PATIENCE, found).await;
        let script = found.ok().and_then(Result::ok);
        let script = script.and_then(|scripts| scripts.get(&root).cloned());
        script.ok_or_else(|| {
            broken(io::Error::other(format!(
                "no canned answers were added for {root}"
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

/// A container engine that also runs stand-ins.
pub struct StandInRuntime {
    engine: Arc<dyn ContainerRuntime>,
    stand_ins: Arc<StandIns>,
}

impl StandInRuntime {
    /// Runs all but the callees with canned answers on `engine`.
    pub fn new(engine: Arc<dyn ContainerRuntime>, stand_ins: Arc<StandIns>) -> Self {
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

    async fn named_image(&self, reference: &str) -> Result<Option<NamedImage>, RuntimeError> {
        self.engine.named_image(reference).await
    }

    async fn pull_image(
        &self,
        reference: &str,
        progress: mpsc::Sender<String>,
    ) -> Result<(), RuntimeError> {
        self.engine.pull_image(reference, progress).await
    }

    async fn build_image(&self, build: ImageBuild<'_>) -> Result<String, RuntimeError> {
        self.engine.build_image(build).await
    }

    async fn store_image(&self, push: ImagePush<'_>) -> Result<Image, RuntimeError> {
        self.engine.store_image(push).await
    }

    async fn fetch_image(
        &self,
        image: &Image,
        artifacts: &Arc<dyn ArtifactStore>,
    ) -> Result<u64, RuntimeError> {
        self.engine.fetch_image(image, artifacts).await
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

/// Makes the container use the script `model` in place of all models.
async fn with_model(mut spec: ContainerSpec, model: &[u8]) -> io::Result<ContainerSpec> {
    tokio::fs::write(spec.io.io.join(MODEL_SCRIPT), model).await?;
    let value = format!("script//io/{MODEL_SCRIPT}");
    spec.environment.push((MODEL_VARIABLE.to_owned(), value));
    Ok(spec)
}

/// Writes the answer in place of the capsule.
fn answer(spec: &ContainerSpec, script: &Script) -> io::Result<Ended> {
    let arguments: Value = serde_json::from_slice(&fs::read(&spec.io.input_json)?)?;
    let (output, code, said) = match script.take(&spec.capsule, arguments) {
        None => {
            let message = format!(
                "no unused canned answer of {} matches the call",
                spec.capsule
            );
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

/// A stand-in that has written its answer.
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
    fn schema_declares_files_of_canned_answers() {
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
    fn each_canned_answer_is_used_once_by_the_first_matching_call() {
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
