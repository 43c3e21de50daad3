//! Runs a capsule: prepare, start, watch, stop if need be, collect.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aod_domain::capsule::Image;
use aod_domain::contract::Contract;
use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_domain::placement::Devices;
use aod_domain::run::{AttemptFailed, Ended, Exit, LogsSummary, Outcome, Retry, RunError, Usage};
use aod_domain::spending::Spent;
use aod_ports::container_runtime::{Container, ContainerSpec, RuntimeError, Verdict};
use aod_ports::program::blocking;
use futures::future::try_join;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::attempt::{Attempt, Finish, Leftover, stopped};
use crate::calls::{Calls, Permissions, chain};
use crate::channel::{self, Channel};
use crate::collect::{Collected, collect, own_error};
use crate::devices::{device_environment, device_files};
use crate::egress::Egress;
use crate::environment::{contract_environment, proxy_environment};
use crate::grants::Grants;
use crate::heartbeat::within;
use crate::ledger::Seat;
use crate::logs::Logs;
use crate::models::{Asker, ModelAccess};
use crate::notes::{Notes, Phase};
use crate::prepare::{prepare, runtime_error};
use crate::redaction::Redaction;
use crate::refusal::{is_refusal, refuse};
use crate::secrets::{Gathered, gather};
use crate::watch::{End, Stop, Watch, Watched};
use crate::workdir::WorkDirectory;

/// Characters of a log line in a failure's message: the whole is in the logs.
const LINE_LENGTH_MAX: usize = 400;

/// How long the end of a container whose gate could not speak waits for the engine's word.
const VERDICT_TIMEOUT: Duration = Duration::from_secs(10);

/// What an attempt has while it runs.
struct Room<'a> {
    attempt: &'a Attempt,
    directory: WorkDirectory,
    calls: Arc<Calls>,
    models: Arc<ModelAccess>,
    egress: Arc<Egress>,
    /// Bytes of files and image that came from the artifact store.
    fetched: Arc<AtomicU64>,
    notes: Notes,
    logs: Logs,
    redaction: Redaction,
    channel: CancellationToken,
    /// When it began, since the host's start.
    began: Duration,
    /// When outputs and logs must be stored, once the capsule has ended.
    collected_by: Option<Instant>,
}

/// Runs the capsule of `attempt`. What is left to clear away comes with the answer.
pub(crate) async fn run(
    attempt: &Attempt,
    image: &Image,
    schema: Digest,
    seat: Seat,
) -> (Finish, Leftover) {
    let room = match Room::open(attempt) {
        Ok(room) => room,
        Err(error) => {
            let text = format!("the directories of the run cannot be made: {error}");
            let finish = attempt.failed(RunError::new(ErrorCode::RuntimeFailed, text));
            return (finish, Leftover::of(seat));
        }
    };
    room.run(image, schema, seat).await
}

impl<'a> Room<'a> {
    fn open(attempt: &'a Attempt) -> std::io::Result<Self> {
        let shared = &attempt.shared;
        let directory = shared.directories.make(attempt.run.id, attempt.number)?;
        let paths = directory.paths();
        let redaction = Redaction::default();
        let notes = Notes::start(
            shared.runs.clone(),
            &attempt.run,
            attempt.number,
            redaction.clone(),
        );
        let permissions = Permissions {
            grants: Grants::of(&attempt.run.launched.event.work),
            refusals: notes.refusals(),
        };
        let fetched = Arc::new(AtomicU64::default());
        let calls = Calls::new(
            attempt.speaker.clone(),
            Arc::clone(&shared.gateways),
            Arc::clone(&shared.ports.artifacts),
            (paths.outgoing.clone(), paths.incoming.clone()),
            attempt.run.launched.event.resources.disk_bytes,
            permissions,
            Arc::clone(&fetched),
        );
        let logs = Logs::start(
            &directory.private("log"),
            attempt.run.id,
            attempt.number,
            shared.config.log_bytes_max,
            Arc::clone(&shared.ports.logs),
            Arc::clone(shared.runs.clock()),
            redaction.clone(),
        );
        let channel = CancellationToken::new();
        let served = Channel {
            calls,
            models: models(attempt, &notes, redaction.clone()),
            egress: egress(attempt, &notes),
        };
        channel::serve(directory.listener()?, served.clone(), channel.clone())?;
        Ok(Self {
            attempt,
            directory,
            calls: served.calls,
            models: served.models,
            egress: served.egress,
            fetched,
            notes,
            logs,
            redaction,
            channel,
            began: shared.runs.clock().since_boot(),
            collected_by: None,
        })
    }

    async fn run(mut self, image: &Image, schema: Digest, mut seat: Seat) -> (Finish, Leftover) {
        let started = match self.start(image, schema, seat.devices()).await {
            Ok(started) => started,
            Err(finish) => return self.leave(finish, None, seat).await,
        };
        let (mut container, contract) = started;
        let started_at = self.attempt.shared.runs.clock().now();
        let watched = Watch {
            attempt: self.attempt,
            calls: &self.calls,
            notes: &self.notes,
            paths: self.directory.paths(),
        }
        .run(container.as_mut(), &mut self.logs, &mut seat)
        .await;
        let watched = match watched {
            Ok(watched) => watched,
            Err(finish) => return self.leave(finish, Some(container), seat).await,
        };
        self.notes.tell(Phase::Collecting);
        let limits = &self.attempt.run.launched.event.limits;
        self.collected_by = limits.collection().map(|limit| Instant::now() + limit);
        let finish = self
            .finish(
                &watched,
                container.as_ref(),
                &contract,
                started_at,
                &mut seat,
            )
            .await;
        self.leave(finish, Some(container), seat).await
    }

    async fn start(
        &self,
        image: &Image,
        schema: Digest,
        devices: &Devices,
    ) -> Result<(Box<dyn Container>, Contract), Finish> {
        let attempt = self.attempt;
        let (lost, cancelled) = (attempt.lease.lost(), attempt.cancelled.clone());
        let prepared = tokio::select! {
            biased;
            () = lost.cancelled() => return Err(Finish::Fenced),
            () = attempt.shared.must_hand_back() => return Err(stopped()),
            () = cancelled.cancelled() => {
                let error = RunError::new(ErrorCode::Cancelled, "cancelled before it started");
                return Err(Finish::Ended(Box::new(attempt.ended(Outcome::Cancelled, Some(error)))));
            }
            prepared = self.prepare(image, schema) => prepared,
        };
        let (contract, secrets) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return Err(self.unstarted(error).await),
        };
        // The capsule may run, and call others, before its start is known to have succeeded: whoever
        // wants it to end waits for that. Without a lease its gate ends it.
        let started = lost
            .run_until_cancelled(self.start_container(image, secrets, devices))
            .await;
        match started.ok_or(Finish::Fenced)? {
            Ok(container) => Ok((container, contract)),
            Err(error) => Err(self.unstarted(error).await),
        }
    }

    /// How an attempt ends that came to no container. What this node lacks it lacks the next time too.
    async fn unstarted(&self, error: RunError) -> Finish {
        if is_refusal(&error) {
            return refuse(self.attempt, error).await;
        }
        self.attempt.failed(error)
    }

    async fn prepare(
        &self,
        image: &Image,
        schema: Digest,
    ) -> Result<(Contract, Gathered), RunError> {
        let shared = &self.attempt.shared;
        let launched = &self.attempt.run.launched.event;
        let text = format!("{}, {} files", launched.work.name(), launched.files.len());
        self.notes.tell(Phase::Preparing(text));
        let paths = self.directory.paths();
        let prepared = prepare(shared, launched, image, schema, paths, &self.fetched);
        let wanted = self.attempt.needs().map_or(&[][..], |needs| &needs.secrets);
        let keys = shared.config.models.keys();
        let store = shared.ports.secrets.as_ref();
        let secrets = gather(&launched.tenant, wanted, store, &keys, &shared.config.host);
        let prepared = within(launched.limits.preparation(), try_join(prepared, secrets)).await;
        prepared.unwrap_or_else(|| {
            let seconds = launched.limits.preparation_seconds.unwrap_or_default();
            let text = format!("image and files were not here within {seconds} s");
            Err(RunError::new(ErrorCode::PreparationTimedOut, text))
        })
    }

    async fn start_container(
        &self,
        image: &Image,
        secrets: Gathered,
        devices: &Devices,
    ) -> Result<Box<dyn Container>, RunError> {
        let (attempt, shared) = (self.attempt, &self.attempt.shared);
        let launched = &attempt.run.launched.event;
        // What the contract promises stands over what `agent.yaml` says.
        let needs = attempt.needs();
        let own = needs.map(|needs| needs.env.clone());
        let mut environment: BTreeMap<_, _> = own.unwrap_or_default();
        environment.extend(contract_environment(&attempt.run, attempt.number));
        environment.extend(secrets.variables);
        environment.extend(device_environment(devices));
        if needs.is_some_and(|needs| !needs.egress.is_empty()) {
            environment.extend(proxy_environment());
        }
        self.redaction
            .begin(secrets.files.iter().map(|file| &file.value));
        let spec = ContainerSpec {
            run: attempt.run.id,
            attempt: attempt.number,
            capsule: launched.work.name().to_string(),
            image: image.config_digest.clone(),
            io: self.directory.paths().clone(),
            environment: environment.into_iter().collect(),
            secrets: secrets.files,
            devices: device_files(devices)?,
            resources: launched.resources.clone(),
            lease_until: attempt.lease.renewals(),
        };
        shared.ports.runtime.start(spec).await.map_err(|error| {
            if matches!(error, RuntimeError::Engine { .. }) {
                shared.engine_doubt.notify_one();
            }
            runtime_error(&error)
        })
    }

    /// Turns the end of a container into the end of its run.
    async fn finish(
        &mut self,
        watched: &Watched,
        container: &dyn Container,
        contract: &Contract,
        started_at: jiff::Timestamp,
        seat: &mut Seat,
    ) -> Finish {
        let attempt = self.attempt;
        let shared = &attempt.shared;
        if let Err(error) = self.logs.end() {
            warn!(%error, "the end of the output is lost");
        }
        let judged = self.judge(watched, container).await;
        let error = match judged {
            Judgement::Fine => None,
            Judgement::Failed(error) => Some(error),
            Judgement::Lost(error) => return Finish::Lost(error),
        };
        let is_fine = error.is_none() && watched.stop.is_none();
        let launched = &attempt.run.launched.event;
        let collected = collect(
            self.directory.paths(),
            is_fine.then_some(contract),
            launched.resources.disk_bytes,
            &shared.ports.artifacts,
            &self.redaction,
        );
        let collected = match within(self.left_to_collect(), collected).await {
            Some(Ok(collected)) => collected,
            Some(Err(error)) => return Finish::Lost(error.into()),
            None => {
                let seconds = launched.limits.collection_seconds.unwrap_or_default();
                let text = format!("the outputs were not stored within {seconds} s");
                return Finish::Lost(RunError::new(ErrorCode::CollectionTimedOut, text));
            }
        };
        let mut ended = attempt.ended(Outcome::Succeeded, None);
        if let End::Exited { exit, .. } = watched.end {
            ended.exit = Some(exit);
        }
        ended.timings.started_at = Some(started_at);
        ended.timings.exited_at = Some(watched.exited_at);
        ended.timings.waiting_ms = u64::try_from(watched.waited.as_millis()).unwrap_or(u64::MAX);
        ended.usage = Usage {
            fetched_bytes: self.fetched.load(Ordering::Relaxed),
            input_bytes: launched.files.iter().map(|file| file.size_bytes).sum(),
            output_bytes: collected.files.iter().map(|file| file.size_bytes).sum(),
            calls: self.calls.count(),
            models: self.models_used().await,
            egress: self.egress.close().await,
        };
        self.conclude(&mut ended, watched.stop.as_ref(), error, collected);
        if ended.outcome == Outcome::Failed && watched.stop.is_none() && self.had_no_room() {
            let text = "the capsule failed while the disk of its node was full";
            return Finish::Lost(RunError::new(ErrorCode::RuntimeFailed, text));
        }
        if let Some(failed) = self.to_be_tried_again(&ended) {
            return Finish::Failed(Box::new(failed));
        }
        // A caller ends after its callees, also when it did not wait for them. Those of an attempt
        // that is lost or tried again live on: the next one joins them. A slot may be what they wait for.
        seat.set_waiting(true);
        let end_callees = self.calls.end_all("its caller has ended");
        let lost = attempt.lease.lost();
        let have_ended = lost.run_until_cancelled(end_callees).await;
        seat.set_waiting(false);
        if have_ended.is_none() {
            return Finish::Fenced;
        }
        Finish::Ended(Box::new(ended))
    }

    /// What the attempt took of models. Nobody speaks on its channel any more.
    async fn models_used(&self) -> Option<Spent> {
        self.channel.cancel();
        self.models.settled().await
    }

    /// Whether the node's disk was full at some time of this attempt: what a capsule could not write is
    /// not its own failure then.
    fn had_no_room(&self) -> bool {
        let shared = &self.attempt.shared;
        shared.disks.look(shared.runs.clock().since_boot());
        shared.disks.was_full(self.began)
    }

    /// How long outputs and logs may still take, if there is a limit.
    fn left_to_collect(&self) -> Option<Duration> {
        let until = self.collected_by?;
        Some(until.saturating_duration_since(Instant::now()))
    }

    /// The end of this attempt alone, if another is wanted instead of the end of the run.
    fn to_be_tried_again(&self, ended: &Ended) -> Option<AttemptFailed> {
        let error = ended.error.clone()?;
        let Retry { kind, pause } = self.attempt.retry_after(ended.outcome, &error)?;
        Some(AttemptFailed {
            attempt: ended.attempt,
            kind,
            outcome: ended.outcome,
            error,
            exit: ended.exit,
            logs: None,
            pause_ms: u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
        })
    }

    /// Sets outcome, error, output and files of `ended`.
    fn conclude(
        &self,
        ended: &mut Ended,
        stop: Option<&Stop>,
        error: Option<RunError>,
        collected: Collected,
    ) {
        (ended.outcome, ended.error) = match (stop, error) {
            (Some(stop), _) => {
                let (outcome, error) = stop.verdict(&self.attempt.run);
                (outcome, Some(error))
            }
            (None, Some(error)) => (
                Outcome::Failed,
                Some(own_error_of(&collected).unwrap_or(error)),
            ),
            (None, None) => match collected.error {
                Some(error) => (Outcome::Failed, Some(self.with_last_lines(error))),
                None => (Outcome::Succeeded, None),
            },
        };
        ended.error = ended.error.take().map(|error| self.redaction.error(error));
        ended.output = collected.output;
        ended.files = collected.files;
    }

    async fn judge(&self, watched: &Watched, container: &dyn Container) -> Judgement {
        if watched.stop.is_some() {
            return Judgement::Fine;
        }
        match &watched.end {
            End::Exited {
                exit: Exit { code: Some(0), .. },
                ..
            } => Judgement::Fine,
            End::Exited {
                out_of_memory: true,
                ..
            } => Judgement::Failed(self.out_of_memory()),
            // So does an engine that was killed, when it is back: whatever the capsule made of it.
            End::Exited {
                asked_from_outside: true,
                ..
            } => {
                let text =
                    "the container was asked to end by its engine, or by somebody on its host";
                Judgement::Lost(RunError::new(ErrorCode::RuntimeFailed, text))
            }
            End::Exited { exit, .. } => Judgement::Failed(self.bad_exit(*exit)),
            End::Unusable(text) => {
                Judgement::Failed(RunError::new(ErrorCode::CommandUnusable, text.clone()))
            }
            End::Lost => match self.verdict(container).await {
                Some(Verdict {
                    out_of_memory: true,
                    ..
                }) => Judgement::Failed(self.out_of_memory()),
                verdict => {
                    let code = verdict.and_then(|verdict| verdict.exit_code);
                    let text =
                        format!("the container ended without a report, with exit code {code:?}");
                    Judgement::Lost(RunError::new(ErrorCode::RuntimeFailed, text))
                }
            },
        }
    }

    fn bad_exit(&self, exit: Exit) -> RunError {
        let text = match exit {
            Exit {
                code: Some(code), ..
            } => format!("the capsule ended with exit code {code}"),
            Exit {
                signal: Some(signal),
                ..
            } => format!("the capsule was ended by signal {signal}"),
            Exit { .. } => "the capsule ended in an unknown way".to_owned(),
        };
        let error = RunError::new(ErrorCode::CapsuleExit, text);
        self.with_last_lines(error.with_detail(json!(exit)))
    }

    async fn verdict(&self, container: &dyn Container) -> Option<Verdict> {
        let verdict = tokio::time::timeout(VERDICT_TIMEOUT, container.gone())
            .await
            .ok()?;
        verdict
            .inspect_err(|error| warn!(error = %chain(error), "the engine has no verdict"))
            .ok()
    }

    fn out_of_memory(&self) -> RunError {
        let limit = self.attempt.run.launched.event.resources.memory_bytes;
        let text = format!("the capsule needed more than its {limit} bytes of memory");
        self.with_last_lines(RunError::new(ErrorCode::OutOfMemory, text))
    }

    fn with_last_lines(&self, mut error: RunError) -> RunError {
        let mut detail = error.detail.take().unwrap_or_else(|| json!({}));
        if let Some(fields) = detail.as_object_mut() {
            fields.insert(
                "last_lines".into(),
                json!(shortened(&self.logs.last_lines())),
            );
        }
        error.detail = Some(detail);
        error
    }

    /// Stores the logs, ends what the run has on the channel, and says what is left to clear away.
    async fn leave(
        self,
        finish: Finish,
        container: Option<Box<dyn Container>>,
        seat: Seat,
    ) -> (Finish, Leftover) {
        let left = self.left_to_collect();
        let Self {
            attempt,
            directory,
            calls,
            models,
            egress,
            notes,
            logs,
            channel,
            ..
        } = self;
        calls.stop();
        let children = calls.children();
        channel.cancel();
        egress.close().await;
        if !matches!(finish, Finish::Fenced) {
            models.settled().await;
        }
        let shared = Arc::clone(&attempt.shared);
        let notes = notes.finish().await;
        let finish = match finish {
            Finish::Ended(mut ended) => {
                ended.notes = notes;
                ended.logs = store(logs, &shared, left).await;
                Finish::Ended(ended)
            }
            Finish::Failed(mut failed) => {
                failed.logs = store(logs, &shared, left).await;
                Finish::Failed(failed)
            }
            other => other,
        };
        let clearing = Box::pin(async move {
            let is_gone = match container {
                Some(container) => clear_container(&shared, container).await,
                // What was being brought may still be written: not to be met by another run.
                None => false,
            };
            let cleared = blocking(move || {
                if is_gone {
                    shared.directories.take_back(directory)
                } else {
                    directory.remove()
                }
            });
            if let Err(error) = cleared.await {
                warn!(%error, "a directory of an ended run is left");
            }
        });
        (
            finish,
            Leftover {
                children,
                clearing: Some(clearing),
                seat: Some(seat),
            },
        )
    }
}

/// The way of `attempt` to models.
fn models(attempt: &Attempt, notes: &Notes, redaction: Redaction) -> Arc<ModelAccess> {
    let asker = Asker::of(&attempt.run, attempt.number);
    let models = Arc::clone(&attempt.shared.models);
    ModelAccess::new(models, asker, notes.refusals(), redaction)
}

/// The way out of `attempt`.
fn egress(attempt: &Attempt, notes: &Notes) -> Arc<Egress> {
    let shared = &attempt.shared;
    let wanted = attempt.needs().map(|needs| needs.egress.clone());
    let permitted = shared.config.egress.clone();
    let network = Arc::clone(&shared.ports.network);
    Egress::new(
        wanted.unwrap_or_default(),
        permitted,
        network,
        notes.egress(),
    )
}

/// The logs as an artifact. Without them a run ends all the same.
async fn store(
    mut logs: Logs,
    shared: &crate::shared::Shared,
    limit: Option<Duration>,
) -> Option<LogsSummary> {
    if let Err(error) = logs.end() {
        warn!(%error, "the logs cannot be written");
        return None;
    }
    let stored = within(limit, logs.store(shared.ports.artifacts.as_ref())).await;
    let Some(stored) = stored else {
        warn!("the logs were not stored in time");
        return None;
    };
    stored.unwrap_or_else(|error| {
        warn!(error = %chain(&error), "the logs cannot be stored");
        None
    })
}

enum Judgement {
    /// It ended as it should, or was made to end.
    Fine,
    Failed(RunError),
    /// The platform failed it.
    Lost(RunError),
}

/// Whether nothing of the container is left.
async fn clear_container(shared: &crate::shared::Shared, container: Box<dyn Container>) -> bool {
    let ended = container.gone().await;
    if let Err(error) = &ended {
        warn!(container = container.name(), error = %chain(error), "the end of a container is not known");
    }
    let removed = shared.ports.runtime.remove(container.name()).await;
    if let Err(error) = &removed {
        debug!(container = container.name(), error = %chain(error), "left to the reconciliation");
    }
    ended.is_ok() && removed.is_ok()
}

fn own_error_of(collected: &Collected) -> Option<RunError> {
    match collected.output.as_ref()? {
        aod_domain::run::Payload::Inline(output) => own_error(output),
        aod_domain::run::Payload::Artifact { .. } => None,
    }
}

/// Lines as an event can hold them.
pub(crate) fn shortened(lines: &[String]) -> Vec<String> {
    lines
        .iter()
        .map(|line| line.chars().take(LINE_LENGTH_MAX).collect())
        .collect()
}
