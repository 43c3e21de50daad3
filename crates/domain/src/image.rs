//! The image of a capsule in the artifact store.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::manifest::CapsuleName;

/// Maximum number of layers of an image. Source: moby `layer/layer_store.go`, `maxLayerDepth` 125; Docker starts no
/// container on more.
pub const LAYERS_MAX: usize = 125;

/// The image of a capsule, by digests that stay the same on every host.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Image {
    /// Docker's image id: the digest of the image's configuration, `sha256:…`. An engine with the image store of
    /// containerd has the digest of the manifest instead.
    pub config_digest: String,
    /// The image in the artifact store, for hosts that did not build it.
    #[serde(flatten)]
    pub content: ImageContent,
}

/// How the artifact store has an image.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ImageContent {
    /// OCI content: each blob is an artifact under its own digest, so images share layers.
    Layers {
        manifest: Digest,
        /// The configuration, if the id of the image is not its digest.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        config: Option<Digest>,
        /// From the base up, compressed.
        layers: Vec<Blob>,
    },
    /// One archive in the format of `docker save`: how images were stored before.
    Archive {
        archive: Digest,
        archive_size_bytes: u64,
    },
}

/// A part of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Blob {
    pub digest: Digest,
    pub size_bytes: u64,
}

impl Image {
    /// The artifact of the configuration; none if neither the event nor the id of the image names it.
    pub fn config(&self) -> Option<Digest> {
        if let ImageContent::Layers {
            config: Some(config),
            ..
        } = self.content
        {
            return Some(config);
        }
        self.config_digest.strip_prefix("sha256:")?.parse().ok()
    }

    /// The image that an engine calls `id`; none if that is the digest of neither its configuration nor its manifest.
    pub fn named(self, id: &str) -> Option<Self> {
        if self.config_digest == id {
            return Some(self);
        }
        let is_manifest = matches!(&self.content, ImageContent::Layers { manifest, .. }
            if id == format!("sha256:{manifest}"));
        let named_config = self.config();
        let ImageContent::Layers {
            manifest, layers, ..
        } = self.content
        else {
            return None;
        };
        is_manifest.then(|| Self {
            config_digest: id.to_owned(),
            content: ImageContent::Layers {
                manifest,
                config: named_config,
                layers,
            },
        })
    }

    /// The artifacts of the image.
    pub fn artifacts(&self) -> Vec<Digest> {
        match &self.content {
            ImageContent::Archive { archive, .. } => vec![*archive],
            ImageContent::Layers {
                manifest, layers, ..
            } => {
                let first = [Some(*manifest), self.config()].into_iter().flatten();
                first
                    .chain(layers.iter().map(|layer| layer.digest))
                    .collect()
            }
        }
    }

    /// The layers from the base up, or the archive.
    pub fn parts(&self) -> Cow<'_, [Blob]> {
        match &self.content {
            ImageContent::Layers { layers, .. } => layers.into(),
            ImageContent::Archive {
                archive,
                archive_size_bytes,
            } => vec![Blob {
                digest: *archive,
                size_bytes: *archive_size_bytes,
            }]
            .into(),
        }
    }

    /// The bytes that a host without any of its layers fetches, except manifest and configuration.
    pub fn size_bytes(&self) -> u64 {
        let parts = self.parts();
        let sizes = parts.iter().map(|part| part.size_bytes);
        sizes.fold(0, u64::saturating_add)
    }
}

/// Length of a digest in a tag: enough to distinguish versions, short enough to read.
const TAG_LENGTH: usize = 12;

/// The tag of a capsule's image, for people: the capsule's name and the first digits of its version.
pub fn image_tag(name: &CapsuleName, content: Digest) -> String {
    format!("aod/{name}:{}", &content.to_string()[..TAG_LENGTH])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn image_has_layers_or_an_archive() {
        let [manifest, layer, config] = ["m", "l", "c"].map(Digest::of);
        let id = format!("sha256:{config}");
        let layers = json!({
            "config_digest": id,
            "manifest": manifest,
            "layers": [{"digest": layer, "size_bytes": 7}],
        });
        let image: Image = serde_json::from_value(layers.clone()).unwrap();
        assert_eq!(image.artifacts(), [manifest, config, layer]);
        assert_eq!(image.size_bytes(), 7);
        assert_eq!(serde_json::to_value(&image).unwrap(), layers);

        let by_manifest = format!("sha256:{manifest}");
        let renamed = image.clone().named(&by_manifest).unwrap();
        assert_eq!(renamed.config_digest, by_manifest);
        assert_eq!(renamed.artifacts(), image.artifacts());
        assert_eq!(image.clone().named(&id), Some(image.clone()));
        assert_eq!(image.named("sha256:0"), None);

        let archive = json!({"config_digest": id, "archive": layer, "archive_size_bytes": 9});
        let image: Image = serde_json::from_value(archive.clone()).unwrap();
        assert_eq!(image.artifacts(), [layer]);
        assert_eq!(image.size_bytes(), 9);
        assert_eq!(serde_json::to_value(&image).unwrap(), archive);
    }
}
