//! The manifest of an image: its configuration and its layers.

use std::collections::BTreeSet;

use aod_domain::capsule::{Blob, LAYERS_MAX};
use aod_domain::digest::Digest;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Maximum size of a manifest, in bytes: 125 layers need some 30 KiB.
pub const MANIFEST_BYTES_MAX: usize = 256 * 1_024;

/// Maximum size of the configuration of an image, in bytes.
pub const CONFIG_BYTES_MAX: u64 = 4 << 20;

/// Source: moby, `distribution/pull_v2.go`, and OCI image specification 1.1, "Media Types".
pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
pub const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";
pub const DOCKER_LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";
pub const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const DOCKER_LAYER_PLAIN: &str = "application/vnd.docker.image.rootfs.diff.tar";
const OCI_LAYERS: [&str; 2] = [
    "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.oci.image.layer.v1.tar+gzip",
];

/// A manifest of one image, as Docker or OCI tools write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The type under which it is served.
    pub media_type: String,
    pub config: Blob,
    /// From the base up.
    pub layers: Vec<Blob>,
}

/// Why a manifest is refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ManifestError {
    #[error("the manifest has {0} bytes, at most {MANIFEST_BYTES_MAX} are allowed")]
    TooLarge(usize),
    #[error("the manifest is not JSON of an image: {0}")]
    Malformed(String),
    #[error("{place}: unexpected media type {found:?}, expected {expected}")]
    MediaType {
        place: String,
        found: String,
        expected: &'static str,
    },
    #[error("{place}.digest: expected sha256: with 64 lower-case digits, not {found:?}")]
    Digest { place: String, found: String },
    #[error("{place}: foreign layers, which have addresses of their own, are not supported")]
    Foreign { place: String },
    #[error("the image has {0} layers; expected 1 to {LAYERS_MAX}, which is Docker's own limit")]
    Layers(usize),
    #[error("config.size: {0} bytes, at most {CONFIG_BYTES_MAX} are allowed")]
    Config(u64),
    #[error("the configuration is not JSON of an image: {0}")]
    Configuration(String),
    #[error("the manifest has both layers and manifests")]
    Ambiguous,
    #[error("the index has no image for {expected}, only for: {found}")]
    Platform { expected: String, found: String },
    #[error("indexes are nested more than {0} levels deep")]
    Nested(usize),
}

/// Maximum length of a text of others in an error, in characters.
const QUOTED_LENGTH_MAX: usize = 200;

/// The beginning of a text for an error.
pub(crate) fn quoted(text: &str) -> String {
    text.chars().take(QUOTED_LENGTH_MAX).collect()
}

impl ManifestError {
    /// An error of JSON may quote a value of any length.
    pub(crate) fn malformed(error: &serde_json::Error) -> Self {
        Self::Malformed(quoted(&error.to_string()))
    }
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    schema_version: u32,
    #[serde(default)]
    media_type: Option<String>,
    config: Descriptor,
    layers: Vec<Descriptor>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    pub(crate) media_type: String,
    size: u64,
    digest: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    urls: Option<Vec<String>>,
}

impl Manifest {
    /// Parses the bytes of a manifest and checks everything that needs no other artifact.
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        let wire: Wire = read(bytes)?;
        check_version(wire.schema_version)?;
        let media_type = wire.media_type.unwrap_or_else(|| OCI_MANIFEST.to_owned());
        if ![DOCKER_MANIFEST, OCI_MANIFEST].contains(&media_type.as_str()) {
            return Err(ManifestError::MediaType {
                place: "manifest".into(),
                found: quoted(&media_type),
                expected: "the manifest of one image",
            });
        }
        if !(1..=LAYERS_MAX).contains(&wire.layers.len()) {
            return Err(ManifestError::Layers(wire.layers.len()));
        }
        let is_config = |found: &str| [DOCKER_CONFIG, OCI_CONFIG].contains(&found);
        let config = wire
            .config
            .check("config", is_config, "the configuration of an image")?;
        if config.size_bytes > CONFIG_BYTES_MAX {
            return Err(ManifestError::Config(config.size_bytes));
        }
        let layers = wire.layers.iter().enumerate();
        let layers = layers.map(|(index, layer)| {
            let place = format!("layers[{index}]");
            layer.check(
                &place,
                is_layer,
                "a tar file, plain or compressed with gzip",
            )
        });
        Ok(Self {
            media_type,
            config,
            layers: layers.collect::<Result<_, _>>()?,
        })
    }

    /// The bytes of Docker's manifest for these parts.
    pub fn docker(config: Blob, layers: &[Blob]) -> Vec<u8> {
        let wire = Wire {
            schema_version: 2,
            media_type: Some(DOCKER_MANIFEST.to_owned()),
            config: Descriptor::of(config, DOCKER_CONFIG),
            layers: layers
                .iter()
                .map(|layer| Descriptor::of(*layer, DOCKER_LAYER))
                .collect(),
        };
        serde_json::to_vec(&wire).expect("texts and numbers are JSON")
    }

    /// The manifest in `bytes` with the media types of OCI, as layouts need them. Docker's configuration and layers have
    /// the formats of OCI under other names.
    pub(crate) fn to_oci(bytes: &[u8]) -> Result<Vec<u8>, ManifestError> {
        Self::parse(bytes)?;
        let mut wire: Wire =
            serde_json::from_slice(bytes).map_err(|error| ManifestError::malformed(&error))?;
        let rename = |media_type: &mut String| {
            *media_type = match media_type.as_str() {
                DOCKER_CONFIG => OCI_CONFIG.to_owned(),
                DOCKER_LAYER_PLAIN => OCI_LAYERS[0].to_owned(),
                DOCKER_LAYER => OCI_LAYERS[1].to_owned(),
                _ => return,
            };
        };
        wire.media_type = Some(OCI_MANIFEST.to_owned());
        rename(&mut wire.config.media_type);
        for layer in &mut wire.layers {
            rename(&mut layer.media_type);
        }
        Ok(serde_json::to_vec(&wire).expect("texts and numbers are JSON"))
    }

    /// Configuration and layers, each digest once.
    pub fn blobs(&self) -> impl Iterator<Item = Blob> {
        let mut seen = BTreeSet::new();
        let all = std::iter::once(self.config).chain(self.layers.iter().copied());
        all.filter(move |blob| seen.insert(blob.digest))
    }
}

/// Reads a document of at most [`MANIFEST_BYTES_MAX`].
pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ManifestError> {
    if bytes.len() > MANIFEST_BYTES_MAX {
        return Err(ManifestError::TooLarge(bytes.len()));
    }
    serde_json::from_slice(bytes).map_err(|error| ManifestError::malformed(&error))
}

pub(crate) fn check_version(found: u32) -> Result<(), ManifestError> {
    if found == 2 {
        return Ok(());
    }
    let text = format!("schemaVersion {found}, expected 2");
    Err(ManifestError::Malformed(text))
}

/// Every engine reads these. Docker before version 23 reads no layers that are compressed with zstd.
fn is_layer(media_type: &str) -> bool {
    [DOCKER_LAYER, DOCKER_LAYER_PLAIN].contains(&media_type) || OCI_LAYERS.contains(&media_type)
}

impl Descriptor {
    pub(crate) fn of(blob: Blob, media_type: &str) -> Self {
        Self {
            media_type: media_type.to_owned(),
            size: blob.size_bytes,
            digest: format!("sha256:{}", blob.digest),
            urls: None,
        }
    }

    pub(crate) fn check(
        &self,
        place: &str,
        is_expected: impl Fn(&str) -> bool,
        expected: &'static str,
    ) -> Result<Blob, ManifestError> {
        let is_foreign =
            self.media_type.contains("foreign") || self.media_type.contains("nondistributable");
        if is_foreign || self.urls.as_ref().is_some_and(|urls| !urls.is_empty()) {
            return Err(ManifestError::Foreign {
                place: place.to_owned(),
            });
        }
        if !is_expected(&self.media_type) {
            return Err(ManifestError::MediaType {
                place: place.to_owned(),
                found: quoted(&self.media_type),
                expected,
            });
        }
        let digest = parse_digest(&self.digest).ok_or_else(|| ManifestError::Digest {
            place: place.to_owned(),
            found: self.digest.chars().take(80).collect(),
        })?;
        Ok(Blob {
            digest,
            size_bytes: self.size,
        })
    }
}

/// The digest in `sha256:…`.
pub fn parse_digest(text: &str) -> Option<Digest> {
    text.strip_prefix("sha256:")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn blob(text: &str, size_bytes: u64) -> Blob {
        Blob {
            digest: Digest::of(text),
            size_bytes,
        }
    }

    fn wire(layers: usize) -> Value {
        let layers: Vec<Blob> = (0..layers as u64).map(|size| blob("layer", size)).collect();
        let bytes = Manifest::docker(blob("config", 9), &layers);
        serde_json::from_slice(&bytes).unwrap()
    }

    fn error(wire: &Value) -> String {
        Manifest::parse(wire.to_string().as_bytes())
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn own_manifest_is_read_back() {
        let layers = [blob("one", 1), blob("two", 2), blob("one", 1)];
        let bytes = Manifest::docker(blob("config", 9), &layers);
        let manifest = Manifest::parse(&bytes).unwrap();
        assert_eq!(manifest.layers, layers);
        assert_eq!(manifest.media_type, DOCKER_MANIFEST);
        let blobs: Vec<Blob> = manifest.blobs().collect();
        assert_eq!(blobs, [blob("config", 9), blob("one", 1), blob("two", 2)]);
    }

    #[test]
    fn manifest_of_oci_needs_no_media_type_of_its_own() {
        let mut wire = wire(1);
        wire.as_object_mut().unwrap().remove("mediaType");
        wire["config"]["mediaType"] = json!(OCI_CONFIG);
        for layer in OCI_LAYERS {
            wire["layers"][0]["mediaType"] = json!(layer);
            let manifest = Manifest::parse(wire.to_string().as_bytes()).unwrap();
            assert_eq!(manifest.media_type, OCI_MANIFEST);
        }
    }

    #[test]
    fn manifest_of_docker_gets_the_media_types_of_oci() {
        let layers = [blob("one", 1), blob("two", 2)];
        let docker = Manifest::docker(blob("config", 9), &layers);
        let oci = Manifest::to_oci(&docker).unwrap();
        let text = String::from_utf8(oci.clone()).unwrap();
        assert!(!text.contains("docker"), "{text}");
        let parsed = Manifest::parse(&oci).unwrap();
        assert_eq!(
            (parsed.config, &parsed.layers[..]),
            (blob("config", 9), &layers[..])
        );
        assert_eq!(Manifest::to_oci(&oci).unwrap(), oci);
    }

    #[test]
    fn unusable_manifests_are_refused_with_their_place() {
        assert!(error(&wire(1_000)).contains("1000 layers"));
        assert!(error(&wire(0)).contains("0 layers"));
        let change = |pointer: &str, value: Value| {
            let mut wire = wire(2);
            *wire.pointer_mut(pointer).unwrap() = value;
            error(&wire)
        };
        let foreign = "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip";
        assert!(change("/layers/1/mediaType", json!(foreign)).starts_with("layers[1]: foreign"));
        let zstd = "application/vnd.oci.image.layer.v1.tar+zstd";
        for unread in ["text/html", zstd] {
            let text = change("/layers/1/mediaType", json!(unread));
            assert!(
                text.starts_with("layers[1]: ") && text.contains("gzip"),
                "{text}"
            );
        }
        assert!(change("/layers/0/digest", json!("md5:1")).starts_with("layers[0].digest"));
        assert!(change("/config/mediaType", json!("x")).starts_with("config: "));
        assert!(change("/config/size", json!(1_u64 << 40)).starts_with("config.size"));
        assert!(change("/config/size", json!(-1)).contains("not JSON of an image"));
        assert!(change("/schemaVersion", json!(1)).contains("expected 2"));
        let list = "application/vnd.oci.image.index.v1+json";
        assert!(change("/mediaType", json!(list)).contains("one image"));
        let large = vec![b' '; MANIFEST_BYTES_MAX + 1];
        assert_eq!(
            Manifest::parse(&large),
            Err(ManifestError::TooLarge(MANIFEST_BYTES_MAX + 1))
        );
    }
}
