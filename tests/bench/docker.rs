//! The bare Docker API over its socket: the floor of all measurements with containers.

use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;

use crate::http::Connection;

/// The socket of Docker.
pub(crate) const SOCKET: &str = "/var/run/docker.sock";

/// A connection to the engine.
#[derive(Debug)]
pub(crate) struct Docker {
    connection: Connection,
}

impl Docker {
    pub(crate) async fn connect() -> anyhow::Result<Self> {
        let connection = Connection::unix(Path::new(SOCKET))
            .await
            .context("Docker does not answer")?;
        Ok(Self { connection })
    }

    /// Sends a request that must succeed.
    pub(crate) async fn ask(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Value> {
        self.connection
            .send(method, path, &[], body)
            .await?
            .success()
            .with_context(|| format!("Docker: {method} {path}"))
    }

    /// Creates a container and returns its id.
    pub(crate) async fn create(&mut self, body: &Value) -> anyhow::Result<String> {
        let created = self.ask("POST", "/containers/create", Some(body)).await?;
        Ok(created["Id"]
            .as_str()
            .context("a created container has an id")?
            .to_owned())
    }

    pub(crate) async fn start(&mut self, id: &str) -> anyhow::Result<()> {
        self.ask("POST", &format!("/containers/{id}/start"), None)
            .await
            .map(drop)
    }

    /// Reads the output of a container, to the end of both streams.
    pub(crate) async fn follow_logs(&mut self, id: &str) -> anyhow::Result<()> {
        let path = format!("/containers/{id}/logs?follow=1&stdout=1&stderr=1");
        self.ask("GET", &path, None).await.map(drop)
    }

    /// Waits for the end of a container, which must succeed.
    pub(crate) async fn wait(&mut self, id: &str) -> anyhow::Result<()> {
        let ended = self
            .ask("POST", &format!("/containers/{id}/wait"), None)
            .await?;
        anyhow::ensure!(
            ended["StatusCode"] == 0,
            "the container of the floor ended with {ended}"
        );
        Ok(())
    }

    pub(crate) async fn remove(&mut self, id: &str) -> anyhow::Result<()> {
        self.ask("DELETE", &format!("/containers/{id}?v=1&force=1"), None)
            .await
            .map(drop)
    }

    /// The ids of the containers with all of the `labels`, each `name=value`, running or not.
    pub(crate) async fn list(&mut self, labels: &[&str]) -> anyhow::Result<Vec<String>> {
        let labels: Vec<String> = labels
            .iter()
            .map(|label| format!("%22{}%22", label.replace('=', "%3D")))
            .collect();
        let filters = format!("%7B%22label%22%3A%5B{}%5D%7D", labels.join(","));
        let found = self
            .ask(
                "GET",
                &format!("/containers/json?all=1&filters={filters}"),
                None,
            )
            .await?;
        let containers = found.as_array().context("a list is a list")?;
        Ok(containers
            .iter()
            .filter_map(|container| container["Id"].as_str())
            .map(str::to_owned)
            .collect())
    }
}
