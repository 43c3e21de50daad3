//! Prepares a capsule and starts its container.

use aod_domain::contract::Contract;
use aod_domain::error_code::ErrorCode;
use aod_domain::placement::Devices;
use aod_domain::run::RunError;
use aod_ports::container_runtime::{Container, ContainerSpec, RuntimeError};
use futures::future::try_join3;
use jiff::Timestamp;

use super::Active;
use super::devices::{device_environment, device_files};
use super::environment::{contract_environment, proxy_environment};
use super::prepare::prepare;
use super::task::{Task, TaskEnd};
use crate::attempt::Finish;
use crate::attempt::refusal::{is_refusal, refuse};
use crate::files::snapshot;
use crate::record::notes::Phase;
use crate::secrets::{Gathered, gather};
use crate::work::common::{runtime_error, within};
use aod_services::error::chain;

/// A capsule in its container.
pub(super) struct Started {
    pub(super) container: Box<dyn Container>,
    pub(super) contract: Contract,
    pub(super) at: Timestamp,
    pub(super) task: Option<Task>,
    /// Set when the task has ended.
    pub(super) task_end: Option<TaskEnd>,
}

/// What a capsule needs before its container can start.
struct Prepared {
    contract: Contract,
    secrets: Gathered,
    task: Option<Task>,
}

impl Active<'_> {
    pub(super) async fn start(&self, devices: &Devices) -> Result<Started, Finish> {
        let attempt = self.attempt;
        let text = "the run was cancelled before its capsule started";
        let Prepared {
            contract,
            secrets,
            task,
        } = match attempt.unless_over(text, self.prepare()).await? {
            Ok(prepared) => prepared,
            Err(error) => return Err(self.unstarted(error).await),
        };
        // The capsule may run, and call capsules, before the engine confirms its start: cancellations wait for the
        // confirmation. Without a lease the gate kills the capsule.
        let started = attempt
            .lease
            .lost()
            .run_until_cancelled_owned(self.start_container(secrets, devices))
            .await;
        match started.ok_or(Finish::Fenced)? {
            Ok(container) => Ok(Started {
                container,
                contract,
                task,
                task_end: None,
                at: attempt.shared.runs.clock().now(),
            }),
            Err(error) => Err(self.unstarted(error).await),
        }
    }

    /// The end of an attempt without a container. A node that lacks something refuses the run: a retry would fail too.
    async fn unstarted(&self, error: RunError) -> Finish {
        if is_refusal(&error) {
            return refuse(self.attempt, error).await;
        }
        self.attempt.failed(error)
    }

    async fn prepare(&self) -> Result<Prepared, RunError> {
        let shared = &self.attempt.shared;
        let launched = &self.attempt.run.launched.event;
        let text = format!("{}, {} files", launched.work.name(), launched.files.len());
        self.records.notes.tell(Phase::Preparing(text));
        let paths = self.directory.paths();
        let prepared = prepare(
            shared,
            launched,
            self.capsule,
            paths,
            &self.services.fetched,
        );
        let wanted = &self.capsule.needs.secrets;
        let keys = shared.config.models.keys();
        let store = shared.ports.secrets.as_ref();
        let secrets = gather(&launched.tenant, wanted, store, &keys, &shared.config.host);
        let prepared = try_join3(prepared, secrets, self.prepare_task());
        let prepared = within(launched.limits.preparation(), prepared).await;
        let prepared = prepared.unwrap_or_else(|| {
            let seconds = launched.limits.preparation_seconds.unwrap_or_default();
            let text = format!("the node did not have the image and the files within {seconds} s");
            Err(RunError::new(ErrorCode::PreparationTimedOut, text))
        });
        let (contract, secrets, task) = prepared?;
        Ok(Prepared {
            contract,
            secrets,
            task,
        })
    }

    /// Loads the task, if it is one, and restores its workspace.
    async fn prepare_task(&self) -> Result<Option<Task>, RunError> {
        let Some(workflow) = self.capsule.workflow else {
            return Ok(None);
        };
        let task = Task::load(self.attempt, workflow).await?;
        if let Some(snapshot) = task.snapshot() {
            let workspace = self.directory.paths().workspace.clone();
            let artifacts = self.attempt.shared.ports.artifacts.as_ref();
            let restored = snapshot::restore(snapshot, workspace, artifacts).await;
            restored.map_err(|error| RunError::new(ErrorCode::InputUnavailable, chain(&error)))?;
        }
        Ok(Some(task))
    }

    async fn start_container(
        &self,
        secrets: Gathered,
        devices: &Devices,
    ) -> Result<Box<dyn Container>, RunError> {
        let (attempt, shared) = (self.attempt, &self.attempt.shared);
        let launched = &attempt.run.launched.event;
        // The variables of the contract override those of `agent.yaml`.
        let needs = self.capsule.needs;
        let mut environment = needs.env.clone();
        environment.extend(contract_environment(&attempt.run, attempt.number));
        environment.extend(secrets.variables);
        environment.extend(device_environment(devices));
        // Also without egress: the proxy's refusal tells the capsule and its operator what is missing.
        environment.extend(proxy_environment());
        self.records
            .redaction
            .begin(secrets.files.iter().map(|file| &file.value));
        let spec = ContainerSpec {
            run: attempt.run.id,
            attempt: attempt.number,
            capsule: launched.work.name().to_string(),
            image: self.capsule.image.config_digest.clone(),
            io: self.directory.paths().clone(),
            environment: environment.into_iter().collect(),
            secrets: secrets.files,
            devices: device_files(devices)?,
            resources: launched.resources.clone(),
            holds: self.capsule.workflow.is_some(),
            lease_until: attempt.lease.renewals(),
        };
        shared.ports.runtime.start(spec).await.map_err(|error| {
            if matches!(error, RuntimeError::Engine { .. }) {
                shared.host.doubt.notify_one();
            }
            runtime_error(&error)
        })
    }
}
