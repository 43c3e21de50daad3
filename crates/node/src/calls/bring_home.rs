//! The answer of a callee with its files, as its caller finds them.

use std::collections::BTreeMap;
use std::sync::Arc;

use aod_api::problem::{Problem, ProblemItem};
use aod_domain::contract::{Contract, FileKind, rewrite};
use aod_domain::error_code::ErrorCode;
use aod_domain::file_name::FileName;
use aod_domain::id::RunId;
use aod_domain::run::Ended;
use serde_json::Value;

use super::{Answer, CallEnd, Calls, chain};
use crate::deliver::{deliver, final_names};
use crate::grants::resolve;
use crate::payload::load_payload;

impl Calls {
    /// Puts the callee's files into `incoming/`; afterwards its answer may name them.
    pub(super) async fn bring_home(&self, run: RunId, ended: Ended, target: &str) -> Answer {
        let files = final_names(
            ended.files.iter().map(|file| file.name.clone()),
            &mut self.state().incoming_taken,
        );
        let name_of = |name: &FileName| files.get(name).unwrap_or(name).clone();
        let delivered = deliver(
            &ended.files,
            name_of,
            &self.incoming,
            self.artifacts.as_ref(),
            &self.fetched,
        )
        .await;
        if let Err(error) = delivered {
            let text = format!(
                "the files of {run} cannot be brought back: {}",
                chain(&error)
            );
            return Answer::Refused(Box::new(Problem::new(ErrorCode::StoreUnavailable, text)));
        }
        let loaded = match &ended.output {
            Some(payload) => load_payload(payload, self.artifacts.as_ref())
                .await
                .map(Some),
            None => Ok(None),
        };
        let output = match loaded {
            Ok(output) => output,
            Err(error) => {
                let text = format!("the output of {run} cannot be read: {}", chain(&error));
                return Answer::Refused(Box::new(Problem::new(ErrorCode::StoreUnavailable, text)));
            }
        };
        let renamed = files.iter().any(|(name, chosen)| name != chosen);
        let output = match output {
            Some(output) if renamed => match self.rewrite(output, target, &files).await {
                Ok(output) => Some(output),
                Err(problem) => return Answer::Refused(problem),
            },
            output => output,
        };
        Answer::Ended(Arc::new(CallEnd {
            run,
            ended,
            output,
            files,
        }))
    }

    /// `output` with its declared references set to the names that the files have here.
    async fn rewrite(
        &self,
        output: Value,
        target: &str,
        files: &BTreeMap<FileName, FileName>,
    ) -> Result<Value, Box<Problem>> {
        let targets = self.gateways.targets(&self.speaker).await?;
        let called = resolve(target, &targets.targets);
        let mut candidates = targets.targets.iter();
        let callee = candidates.find(|candidate| Some(&candidate.name) == called);
        let schema = callee
            .map(|callee| callee.schema.to_string())
            .unwrap_or_default();
        let invalid = |errors: Vec<aod_domain::contract::Problem>| {
            let items = errors
                .iter()
                .map(|problem| ProblemItem::within("/output", problem))
                .collect();
            let text =
                "a returned file needs another name, as incoming/ has one of its name already";
            Box::new(Problem::new(ErrorCode::ArgumentsInvalid, text).with_errors(items))
        };
        let contract = Contract::parse(schema.as_bytes()).map_err(&invalid)?;
        let exists = |name: &str| files.contains_key(name).then_some(FileKind::File);
        let checked = contract.check_output(output, &exists).map_err(&invalid)?;
        let final_name = |name: &FileName| files.get(name).unwrap_or(name).clone();
        rewrite(checked.payload, &checked.references, &final_name).map_err(invalid)
    }
}
