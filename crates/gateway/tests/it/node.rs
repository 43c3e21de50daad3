//! A node without containers: it pulls, leases, does what the test says, and ends runs.

use std::sync::Arc;
use std::time::Duration;

use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_domain::id::{IncarnationId, NodeId, RunId};
use aod_domain::run::{Command, Ended, Holder, Outcome, Payload, Run, RunError, Work};
use aod_domain::subject::{Class, Label};
use aod_ports::clock::{Clock as _, SystemClock};
use aod_ports::work_queue::Delivery;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::harness::{Cluster, PATIENCE, image};

/// What a node does with a run that it has leased.
type Behaviour = Arc<dyn Fn(Taken) -> BoxFuture<'static, Ended> + Send + Sync>;

/// A run that the node holds.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    pub(crate) run: Run,
    pub(crate) attempt: u32,
    /// With which the run speaks to gateways.
    pub(crate) token: String,
}

impl Taken {
    pub(crate) fn id(&self) -> RunId {
        self.run.id
    }

    pub(crate) fn arguments(&self) -> Value {
        match &self.run.launched.event.payload {
            Payload::Inline(value) => value.clone(),
            Payload::Artifact { .. } => json!(null),
        }
    }

    /// What a capsule ends with that returns `output`.
    pub(crate) fn succeed(&self, output: Value) -> Ended {
        let error = RunError::new(ErrorCode::Internal, "");
        Ended {
            output: Some(Payload::Inline(output)),
            files: self.run.launched.event.files.clone(),
            error: None,
            ..Ended::without_start(self.attempt, Outcome::Succeeded, error)
        }
    }

    pub(crate) fn fail(&self, code: ErrorCode) -> Ended {
        Ended::without_start(
            self.attempt,
            Outcome::Failed,
            RunError::new(code, "as the test wants it"),
        )
    }

    /// Returns what it was given; builds an image when that is what it is for.
    pub(crate) fn echo(&self) -> Ended {
        match &self.run.launched.event.work {
            Work::Capsule { .. } => self.succeed(self.arguments()),
            Work::Build { name, .. } => self.succeed(json!(image(name.as_str()))),
        }
    }
}

/// Pulls until it is dropped.
pub(crate) struct ScriptedNode(Vec<JoinHandle<()>>);

impl Drop for ScriptedNode {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
}

impl ScriptedNode {
    /// A node that does as `behaviour` says, any number of runs at a time.
    pub(crate) async fn start<F>(
        cluster: &Cluster,
        behaviour: impl Fn(Taken) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Ended> + Send + 'static,
    {
        let behaviour: Behaviour = Arc::new(move |taken| Box::pin(behaviour(taken)));
        let label = Label::any();
        cluster.ports.queue.ensure(&label).await.unwrap();
        let tasks = [Class::Child, Class::Root].map(|class| {
            let (ports, runs) = (cluster.ports.clone(), cluster.runs.clone());
            let behaviour = Arc::clone(&behaviour);
            tokio::spawn(async move {
                loop {
                    let Ok(deliveries) = ports
                        .queue
                        .pull(&Label::any(), class, 16, Duration::from_secs(2))
                        .await
                    else {
                        continue;
                    };
                    for delivery in deliveries {
                        let (ports, runs) = (ports.clone(), runs.clone());
                        let behaviour = Arc::clone(&behaviour);
                        tokio::spawn(async move {
                            if let Some(taken) = lease(&runs, &delivery).await {
                                let ended = behaviour(taken.clone()).await;
                                let command = Command::End(Box::new(ended));
                                runs.handle(taken.id(), &command, None).await.unwrap();
                            }
                            ports
                                .queue
                                .acknowledge(&delivery.ack_subject)
                                .await
                                .unwrap();
                        });
                    }
                }
            })
        });
        Self(Vec::from(tasks))
    }

    /// A node on which everything echoes.
    pub(crate) async fn echo(cluster: &Cluster) -> Self {
        Self::start(cluster, async |taken: Taken| taken.echo()).await
    }

    /// A node on which everything echoes, but fails for want of memory when its arguments say so.
    pub(crate) async fn echo_unless_told(cluster: &Cluster) -> Self {
        Self::start(cluster, async |taken: Taken| {
            if taken.arguments()["fails"] == true {
                taken.fail(ErrorCode::OutOfMemory)
            } else {
                taken.echo()
            }
        })
        .await
    }
}

/// The next launch of `class` that the queue delivers.
pub(crate) async fn pull(cluster: &Cluster, class: Class) -> Delivery {
    let (queue, label) = (&cluster.ports.queue, Label::any());
    queue.ensure(&label).await.unwrap();
    let pulled = queue.pull(&label, class, 1, PATIENCE).await;
    pulled.unwrap().remove(0)
}

/// Takes the run of a delivery on, unless it must not start.
pub(crate) async fn lease(runs: &aod_ports::runs::Runs, delivery: &Delivery) -> Option<Taken> {
    let token = hex(SystemClock.fresh_uuid().as_bytes());
    let holder = Holder::Node {
        node: NodeId::new(SystemClock.fresh_uuid()),
        incarnation: IncarnationId::new(SystemClock.fresh_uuid()),
        work: delivery.position,
        ack_subject: delivery.ack_subject.clone(),
        token_sha256: Digest::of(&token),
    };
    let run = runs
        .handle(
            delivery.run,
            &Command::Lease {
                holder,
                is_holder_gone: false,
            },
            None,
        )
        .await
        .ok()?;
    let attempt = run.attempts;
    if let Some((outcome, error)) = run.forbids_start(SystemClock.now()) {
        let ended = Ended::without_start(attempt, outcome, error);
        runs.handle(run.id, &Command::End(Box::new(ended)), None)
            .await
            .unwrap();
        return None;
    }
    Some(Taken {
        run,
        attempt,
        token,
    })
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}
