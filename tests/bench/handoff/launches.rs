//! Launches per second by four workers: through the product, compared with create, start, follow logs, wait and remove
//! with the bare API. Both count until the last container is removed.

use std::time::Instant;

use futures::future::try_join_all;
use serde_json::Value;

use super::containers::{Bed, WORKERS};
use crate::docker::Docker;
use crate::report::Measurement;

/// Launches of each worker in a round.
const LAUNCHES_PER_WORKER: usize = 6;

/// Rounds, after the warm-up.
const ROUNDS: usize = 10;

pub(super) async fn measure() -> anyhow::Result<Vec<Measurement>> {
    let bed = Bed::make().await?;
    let (mut product, mut bare) = (Vec::new(), Vec::new());
    // The first round is the warm-up.
    for round in 0..=ROUNDS {
        let (one, other) = (through_product(&bed).await?, by_hand(&bed.bare).await?);
        if round > 0 {
            product.push(one);
            bare.push(other);
        }
    }
    let note = format!(
        "{WORKERS} workers, {} launches a round, until the last container is removed",
        WORKERS * LAUNCHES_PER_WORKER
    );
    Ok(vec![
        Measurement::new("launches", "/s", &product)?
            .beside("docker_api_launches", &product, &bare)?
            .bounded("ratio >= 0.90")?
            .noted(&note),
    ])
}

async fn through_product(bed: &Bed) -> anyhow::Result<f64> {
    let mut clients = try_join_all((0..WORKERS).map(|_| bed.site.client())).await?;
    let mut docker = Docker::connect().await?;
    let began = Instant::now();
    let workers = clients.iter_mut().map(|client| async move {
        for _ in 0..LAUNCHES_PER_WORKER {
            bed.run(client).await?;
        }
        anyhow::Ok(())
    });
    try_join_all(workers).await?;
    bed.wait_for_removal(&mut docker).await?;
    Ok(per_second(began))
}

async fn by_hand(body: &Value) -> anyhow::Result<f64> {
    let mut connections = try_join_all((0..WORKERS).map(|_| Docker::connect())).await?;
    let began = Instant::now();
    let workers = connections.iter_mut().map(|docker| async move {
        for _ in 0..LAUNCHES_PER_WORKER {
            let id = docker.create(body).await?;
            docker.start(&id).await?;
            docker.follow_logs(&id).await?;
            docker.wait(&id).await?;
            docker.remove(&id).await?;
        }
        anyhow::Ok(())
    });
    try_join_all(workers).await?;
    Ok(per_second(began))
}

fn per_second(began: Instant) -> f64 {
    let launches = u32::try_from(WORKERS * LAUNCHES_PER_WORKER).expect("a round is small");
    f64::from(launches) / began.elapsed().as_secs_f64()
}
