//! Delivers the answer of a callee and its files to the caller.

use std::collections::BTreeMap;
use std::sync::Arc;

use aod_api::problem::{Problem, ProblemItem};
use aod_domain::contract::{Contract, FileKind, rewrite};
use aod_domain::error_code::ErrorCode;
use aod_domain::file_name::FileName;
use aod_domain::id::RunId;
use aod_domain::run::Ended;
use serde_json::Value;

use super::grants::resolve;
use super::{Answer, CallEnd, Calls};
use crate::files::deliver::final_names;
use crate::lock::lock;

impl Calls {
    /// Puts the callee's files into `incoming/` before the answer names them.
    pub(super) async fn bring_home(&self, run: RunId, ended: Ended, target: &str) -> Answer {
        let files = final_names(
            ended.files.iter().map(|file| file.name.clone()),
            &mut lock(&self.book).incoming_taken,
        );
        self.files.deliver(run, &ended.files, &files).await?;
        let mut output = self.files.load(run, ended.output.as_ref()).await?;
        let is_renamed = files.iter().any(|(name, chosen)| name != chosen);
        if is_renamed && let Some(written) = output {
            output = Some(self.rewrite(written, target, &files).await?);
        }
        Ok(Arc::new(CallEnd {
            run,
            ended,
            output,
            files,
        }))
    }

    /// `output` with its declared references set to the names in `incoming/`.
    async fn rewrite(
        &self,
        output: Value,
        target: &str,
        files: &BTreeMap<FileName, FileName>,
    ) -> Result<Value, Box<Problem>> {
        let targets = self.speaker.targets().await?;
        let called = resolve(target, &targets.targets);
        let mut candidates = targets.targets.iter();
        let callee = candidates.find(|candidate| Some(&candidate.name) == called);
        let schema = callee.map_or_else(String::new, |callee| callee.schema.to_string());
        let invalid = |errors: Vec<aod_domain::contract::Problem>| {
            let items = errors
                .iter()
                .map(|problem| ProblemItem::within("/output", problem))
                .collect();
            let text = "a returned file needs a new name: incoming/ has a file of its name";
            Box::new(Problem::new(ErrorCode::ArgumentsInvalid, text).with_errors(items))
        };
        let contract = Contract::parse(schema.as_bytes()).map_err(&invalid)?;
        let exists = |name: &str| files.contains_key(name).then_some(FileKind::File);
        let checked = contract.check_output(output, &exists).map_err(&invalid)?;
        let final_name = |name: &FileName| files.get(name).unwrap_or(name).clone();
        rewrite(checked.payload, &checked.references, &final_name).map_err(invalid)
    }
}
