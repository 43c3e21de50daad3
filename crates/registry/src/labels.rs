//! The labels of an image that contain a capsule.

use serde::Deserialize;

/// The name of the capsule.
pub const NAME: &str = "dev.aod.name";

/// The complete `schema.json`, `agent.yaml` and `tools.yaml`.
pub const SCHEMA: &str = "dev.aod.schema";
pub const AGENT: &str = "dev.aod.agent";
pub const TOOLS: &str = "dev.aod.tools";

/// The labels of a capsule, of an image that anybody may have made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct CapsuleLabels {
    #[serde(rename = "dev.aod.name", default)]
    pub name: Option<String>,
    #[serde(rename = "dev.aod.schema", default)]
    pub schema: Option<String>,
    #[serde(rename = "dev.aod.agent", default)]
    pub agent: Option<String>,
    #[serde(rename = "dev.aod.tools", default)]
    pub tools: Option<String>,
}

/// The part of a configuration with the labels. Source: OCI image specification 1.1, "OCI Image Configuration".
#[derive(Deserialize)]
struct Configuration {
    #[serde(default)]
    config: Option<Settings>,
}

#[derive(Deserialize)]
struct Settings {
    #[serde(rename = "Labels", default)]
    labels: Option<CapsuleLabels>,
}

impl CapsuleLabels {
    /// The labels in the configuration of an image, of at most
    /// [`CONFIG_BYTES_MAX`](crate::manifest::CONFIG_BYTES_MAX). All other labels are skipped.
    ///
    /// # Errors
    /// The bytes are not the configuration of an image.
    pub fn of(configuration: &[u8]) -> Result<Self, serde_json::Error> {
        let configuration: Configuration = serde_json::from_slice(configuration)?;
        let labels = configuration.config.and_then(|settings| settings.labels);
        Ok(labels.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn labels_of_a_capsule_are_read_and_others_are_skipped() {
        let read = |configuration: Value| CapsuleLabels::of(configuration.to_string().as_bytes());
        let labels = json!({NAME: "a", SCHEMA: "b", AGENT: "c", TOOLS: "d", "x": "e"});
        let found = read(json!({"config": {"Labels": labels}, "os": "linux"})).unwrap();
        let all = [found.name, found.schema, found.agent, found.tools];
        assert_eq!(all, ["a", "b", "c", "d"].map(|text| Some(text.to_owned())));
        for without in [
            json!({}),
            json!({"config": null}),
            json!({"config": {"Labels": null}}),
        ] {
            assert_eq!(read(without).unwrap(), CapsuleLabels::default());
        }
        assert!(read(json!({"config": {"Labels": {NAME: 1}}})).is_err());
        assert!(CapsuleLabels::of(b"\x1f\x8b").is_err());
    }
}
