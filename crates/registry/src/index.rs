//! Indexes: lists of images for several platforms, and the list of a layout.

use aod_domain::capsule::Blob;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::manifest::{
    DOCKER_MANIFEST, Descriptor, Manifest, ManifestError, OCI_MANIFEST, check_version, quoted, read,
};

/// Source: OCI image specification 1.1, "Media Types", and moby, `distribution/pull_v2.go`.
pub const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";

/// The annotation with the tag of an image in a layout. Source: OCI image specification 1.1, "Annotations".
pub const TAG_ANNOTATION: &str = "org.opencontainers.image.ref.name";

/// Maximum number of platforms that an error names.
const PLATFORMS_NAMED_MAX: usize = 10;

/// Maximum length of the operating system and of the processor in an error, in characters.
const PLATFORM_LENGTH_MAX: usize = 32;

/// What a registry or a layout has under the name of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    Image(Manifest),
    Index(Index),
}

/// A list of images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    pub entries: Vec<Entry>,
}

/// An image, or another index, in an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub blob: Blob,
    /// As in `linux/amd64`.
    pub platform: Option<String>,
    /// Its tag, in the index of a layout.
    pub tag: Option<String>,
}

/// The lists that a document has.
#[derive(Deserialize)]
struct Probe {
    #[serde(default)]
    manifests: Option<IgnoredAny>,
    #[serde(default)]
    layers: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    schema_version: u32,
    #[serde(default)]
    media_type: Option<String>,
    manifests: Vec<WireEntry>,
}

#[derive(Deserialize)]
struct WireEntry {
    #[serde(flatten)]
    descriptor: Descriptor,
    #[serde(default)]
    platform: Option<Platform>,
    #[serde(default)]
    annotations: Option<Annotations>,
}

#[derive(Deserialize)]
struct Platform {
    architecture: String,
    os: String,
}

#[derive(Deserialize)]
struct Annotations {
    #[serde(rename = "org.opencontainers.image.ref.name", default)]
    tag: Option<String>,
}

impl Document {
    /// Parses a manifest or an index. A document that is both is refused, because tools would differ in which of the
    /// two they use. Source: OCI image specification, advisory GHSA-77vh-xpmg-72qh.
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        let probe: Probe = read(bytes)?;
        match (probe.manifests, probe.layers) {
            (Some(_), Some(_)) => Err(ManifestError::Ambiguous),
            (Some(_), None) => Index::parse(bytes).map(Self::Index),
            (None, _) => Manifest::parse(bytes).map(Self::Image),
        }
    }
}

impl Index {
    /// Parses an index of at most [`MANIFEST_BYTES_MAX`](crate::manifest::MANIFEST_BYTES_MAX). Entries of other kinds than
    /// images and indexes are left out.
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        let wire: Wire = read(bytes)?;
        check_version(wire.schema_version)?;
        if let Some(found) = wire.media_type
            && ![OCI_INDEX, DOCKER_INDEX].contains(&found.as_str())
        {
            return Err(ManifestError::MediaType {
                place: "index".into(),
                found: quoted(&found),
                expected: "an index of images",
            });
        }
        let entries = wire.manifests.into_iter().enumerate();
        let entries = entries.filter(|(_, entry)| is_image_or_index(&entry.descriptor.media_type));
        let entries = entries.map(|(number, entry)| entry.check(number));
        Ok(Self {
            entries: entries.collect::<Result<_, _>>()?,
        })
    }

    /// The image for `linux` on this host's processor or, without one, for `linux/amd64`; an index of one image
    /// without a platform has only this image.
    pub fn choose(&self) -> Result<Blob, ManifestError> {
        let wanted = [here(), "linux/amd64".to_owned()];
        for platform in &wanted {
            let mut entries = self.entries.iter();
            if let Some(entry) = entries.find(|entry| entry.platform.as_ref() == Some(platform)) {
                return Ok(entry.blob);
            }
        }
        if let [entry] = &self.entries[..]
            && entry.platform.is_none()
        {
            return Ok(entry.blob);
        }
        let found = self.entries.iter().take(PLATFORMS_NAMED_MAX);
        let found = found.map(|entry| entry.platform.as_deref().unwrap_or("no platform"));
        let [expected, _] = wanted;
        Err(ManifestError::Platform {
            expected,
            found: found.collect::<Vec<_>>().join(", "),
        })
    }

    /// The tags of the images in the index of a layout.
    pub fn tags(&self) -> Vec<String> {
        let tags = self.entries.iter().filter_map(|entry| entry.tag.clone());
        tags.collect()
    }
}

impl WireEntry {
    fn check(self, number: usize) -> Result<Entry, ManifestError> {
        let place = format!("manifests[{number}]");
        let blob = self
            .descriptor
            .check(&place, is_image_or_index, "an image or an index")?;
        let short = |text: String| text.chars().take(PLATFORM_LENGTH_MAX).collect::<String>();
        let platform = self.platform;
        Ok(Entry {
            blob,
            platform: platform.map(|it| format!("{}/{}", short(it.os), short(it.architecture))),
            tag: self.annotations.and_then(|it| it.tag),
        })
    }
}

fn is_image_or_index(media_type: &str) -> bool {
    [OCI_MANIFEST, DOCKER_MANIFEST, OCI_INDEX, DOCKER_INDEX].contains(&media_type)
}

/// The platform of this host, with the names of Go.
fn here() -> String {
    let processor = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("linux/{processor}")
}

#[cfg(test)]
mod tests {
    use aod_domain::digest::Digest;
    use serde_json::{Value, json};

    use super::*;
    use crate::manifest::MANIFEST_BYTES_MAX;

    fn entry(text: &str, platform: Option<&str>) -> Value {
        let mut entry = json!({
            "mediaType": OCI_MANIFEST,
            "size": 7,
            "digest": format!("sha256:{}", Digest::of(text)),
        });
        if let Some((os, architecture)) = platform.and_then(|it| it.split_once('/')) {
            entry["platform"] = json!({"os": os, "architecture": architecture, "variant": "v8"});
        }
        entry
    }

    fn index(entries: &[Value]) -> Result<Index, ManifestError> {
        let text = json!({"schemaVersion": 2, "manifests": entries}).to_string();
        match Document::parse(text.as_bytes())? {
            Document::Index(index) => Ok(index),
            Document::Image(image) => panic!("{image:?}"),
        }
    }

    fn chosen(entries: &[Value]) -> Result<Digest, String> {
        let index = index(entries).unwrap();
        let chosen = index.choose().map_err(|error| error.to_string())?;
        Ok(chosen.digest)
    }

    #[test]
    fn image_of_this_host_is_chosen_then_amd64() {
        let here = here();
        let other = entry("other", Some("linux/s390x"));
        let amd64 = entry("amd64", Some("linux/amd64"));
        let own = entry("own", Some(&here));
        let attestation = entry("signature", Some("unknown/unknown"));
        let all = [other.clone(), attestation.clone(), own];
        assert_eq!(chosen(&all), Ok(Digest::of("own")));
        assert_eq!(chosen(&[other.clone(), amd64]), Ok(Digest::of("amd64")));
        let error = chosen(&[other, attestation]).unwrap_err();
        assert!(
            error.contains(&here) && error.contains("linux/s390x, unknown/unknown"),
            "{error}"
        );
    }

    #[test]
    fn only_image_without_a_platform_is_chosen() {
        let plain = entry("plain", None);
        let text = entry("other", None);
        assert_eq!(
            chosen(std::slice::from_ref(&plain)),
            Ok(Digest::of("plain"))
        );
        assert!(chosen(&[plain, text]).is_err());
        assert!(chosen(&[]).is_err());
    }

    #[test]
    fn entries_of_unknown_kinds_are_left_out() {
        let mut other = entry("other", None);
        other["mediaType"] = json!("application/vnd.example+json");
        other["digest"] = json!("sha512:0");
        let mut tagged = entry("tagged", None);
        tagged["annotations"] = json!({TAG_ANNOTATION: "1", "other": "2"});
        let index = index(&[other, tagged]).unwrap();
        assert_eq!(index.tags(), ["1"]);
        assert_eq!(index.entries.len(), 1);
    }

    #[test]
    fn unusable_indexes_are_refused() {
        let both = json!({"schemaVersion": 2, "manifests": [], "layers": []}).to_string();
        assert_eq!(
            Document::parse(both.as_bytes()),
            Err(ManifestError::Ambiguous)
        );
        let mut wrong = entry("wrong", None);
        wrong["digest"] = json!("sha256:../../etc/passwd");
        let error = index(&[wrong]).unwrap_err().to_string();
        assert!(error.starts_with("manifests[0].digest"), "{error}");
        let mut foreign = entry("foreign", None);
        foreign["urls"] = json!(["https://elsewhere.example"]);
        let error = index(&[foreign]).unwrap_err().to_string();
        assert!(error.contains("foreign"), "{error}");
        let old = json!({"schemaVersion": 1, "manifests": []}).to_string();
        assert!(Document::parse(old.as_bytes()).is_err());
        let large = vec![b' '; MANIFEST_BYTES_MAX + 1];
        assert_eq!(
            Document::parse(&large),
            Err(ManifestError::TooLarge(large.len()))
        );
    }
}
