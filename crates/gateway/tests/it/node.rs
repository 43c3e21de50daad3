//! A node without containers: it pulls, leases and ends runs as the test requires.

use std::sync::Arc;
use std::time::Duration;

use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_domain::id::{IncarnationId, NodeId, RunId};
use aod_domain::run::{Command, Ended, Holder, Outcome, Payload, Run, RunError, Work};
use aod_domain::subject::{Class, Pool};
use aod_ports::clock::{Clock as _, SystemClock};
use aod_ports::work_queue::Delivery;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::harness::{Cluster, PATIENCE, image};

/// The behaviour of a node for a run that it has leased.
type Behaviour = Arc<dyn Fn(Taken) -> BoxFuture<'static, Ended> + Send + Sync>;

/// A run that the node holds.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    pub(crate) run: Run,
    pub(crate) attempt: u32,
    /// The token of the run for requests to gateways.
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

    /// The result of a capsule that returns `output`.
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

    /// Returns its arguments; for a build, an image.
    pub(crate) fn echo(&self) -> Ended {
        match &self.run.launched.event.work {
            Work::Capsule { .. } => self.succeed(self.arguments()),
            Work::Build { name, .. } => self.succeed(json!(image(name.as_str()))),
        }
    }
}

/// A node that pulls until it is dropped.
pub(crate) struct ScriptedNode(Vec<JoinHandle<()>>);

impl Drop for ScriptedNode {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
}

impl ScriptedNode {
    /// A node with this `behaviour`, for any number of concurrent runs.
    pub(crate) async fn start<F>(
        cluster: &Cluster,
        behaviour: impl Fn(Taken) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Ended> + Send + 'static,
    {
        let behaviour: Behaviour = Arc::new(move |taken| Box::pin(behaviour(taken)));
        ensure(cluster, &Pool::any()).await;
        let tasks = [Class::Child, Class::Root].map(|class| {
            let (ports, runs) = (cluster.ports.clone(), cluster.runs.clone());
            let behaviour = Arc::clone(&behaviour);
            tokio::spawn(async move {
                loop {
                    let Ok(deliveries) = ports
                        .queue
                        .pull(&Pool::any(), class, 16, Duration::from_secs(2))
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

    /// A node on which every capsule echoes.
    pub(crate) async fn echo(cluster: &Cluster) -> Self {
        Self::start(cluster, async |taken: Taken| taken.echo()).await
    }

    /// A node on which every capsule echoes, or fails with `out_of_memory` if its arguments contain `fails`.
    pub(crate) async fn echo_or_fail(cluster: &Cluster) -> Self {
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

/// Makes the queue of `pool`. Like a node, this tries again while the broker restarts.
async fn ensure(cluster: &Cluster, pool: &Pool) {
    let ensuring = async {
        while cluster.ports.queue.ensure(pool).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let ensured = tokio::time::timeout(PATIENCE, ensuring).await;
    ensured.expect("the broker makes the queue");
}

/// The next launch of `class` that the queue delivers.
pub(crate) async fn pull(cluster: &Cluster, class: Class) -> Delivery {
    let (queue, pool) = (&cluster.ports.queue, Pool::any());
    ensure(cluster, &pool).await;
    let pulled = queue.pull(&pool, class, 1, PATIENCE).await;
    pulled.unwrap().remove(0)
}

/// Leases the run of a delivery, unless the run must not start.
pub(crate) async fn lease(runs: &aod_services::runs::Runs, delivery: &Delivery) -> Option<Taken> {
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
