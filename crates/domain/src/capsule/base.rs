//! The images that the image of a capsule is based on: which ones a build uses.
//!
//! The registered version pins them: the next version is built on the same images, on whichever node, even if their
//! names have moved on.

use serde::{Deserialize, Serialize};

use super::{Image, ImageContent};
use crate::digest::Digest;

/// Maximum number of base images that a capsule pins, so that its event stays small; a build names further ones itself.
pub const BASES_MAX: usize = 32;

/// Maximum size of all pins of a capsule, in bytes of JSON: an event has room for them beside 125 layers.
pub const BASES_BYTES_MAX: usize = 8 * 1024;

/// Size of a [`StoredBase`] in JSON, in bytes: two digests, a number and names.
const STORED_BYTES: usize = 200;

/// An image outside of the `Dockerfile` that a build has used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// As the `Dockerfile` names it, with the values of its variables.
    pub reference: String,
    /// Its id on the engine, `sha256:…`.
    pub image: String,
    /// Its name in the registry of the reference, `name@sha256:…`; none if it was made on a host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Its parts in the artifact store; none if the image of the capsule has other layers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<StoredBase>,
}

/// The parts of a base image besides its layers, which are the first ones of the capsule's image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredBase {
    pub manifest: Digest,
    /// The configuration, if the id of the base image is not its digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<Digest>,
    /// The number of its layers.
    pub layers: usize,
}

impl Base {
    /// The base image in the artifact store, if the layers of the capsule's `image` begin with its layers.
    pub fn stored(&self, image: &Image) -> Option<Image> {
        let stored = self.stored?;
        let ImageContent::Layers { layers, .. } = &image.content else {
            return None;
        };
        Some(Image {
            config_digest: self.image.clone(),
            content: ImageContent::Layers {
                manifest: stored.manifest,
                config: stored.config,
                layers: layers.get(..stored.layers)?.to_vec(),
            },
        })
    }

    /// Its size in an event, in bytes of JSON.
    pub fn size_bytes(&self) -> usize {
        let json = serde_json::to_vec(self).expect("texts and numbers are JSON");
        // Its stored parts are added after the build.
        json.len() + STORED_BYTES
    }

    /// The artifacts of the base image that the capsule's image does not name.
    pub fn artifacts(&self) -> Vec<Digest> {
        let Some(stored) = self.stored else {
            return Vec::new();
        };
        let config = Image {
            config_digest: self.image.clone(),
            content: ImageContent::Layers {
                manifest: stored.manifest,
                config: stored.config,
                layers: Vec::new(),
            },
        };
        config.artifacts()
    }
}

impl StoredBase {
    /// How a capsule with `image` names the stored `base`; none unless its layers are the first ones of `image`.
    pub fn of(base: &Image, image: &Image) -> Option<Self> {
        let ImageContent::Layers {
            manifest,
            config,
            layers: own,
        } = &base.content
        else {
            return None;
        };
        let ImageContent::Layers { layers, .. } = &image.content else {
            return None;
        };
        layers.starts_with(own).then_some(Self {
            manifest: *manifest,
            config: *config,
            layers: own.len(),
        })
    }
}

/// The pin of `reference`.
pub fn pin<'a>(bases: &'a [Base], reference: &str) -> Option<&'a Base> {
    bases.iter().find(|base| base.reference == reference)
}

/// Whether a build that used `bases` used the pinned image of each reference for which there is a pin.
pub fn respects(bases: &[Base], pins: &[Base]) -> bool {
    bases
        .iter()
        .all(|base| pin(pins, &base.reference).is_none_or(|pin| pin.image == base.image))
}

/// Of the names that an engine knows for an image in registries, the one in the registry and the repository of
/// `reference`: for another one, a node may lack address or credentials.
pub fn digest_of<'a>(reference: &str, digests: &'a [String]) -> Option<&'a str> {
    let wanted = repository(reference);
    let mut digests = digests.iter().map(String::as_str);
    digests.find(|digest| repository(digest) == wanted)
}

/// The name without tag and digest, in its short form. Source: distribution/reference, `normalize.go`.
fn repository(reference: &str) -> &str {
    let (name, _) = reference.split_once('@').unwrap_or((reference, ""));
    let name = match name.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => name,
        _ => name,
    };
    let name = name.strip_prefix("docker.io/").unwrap_or(name);
    name.strip_prefix("library/").unwrap_or(name)
}

/// What a node knows about a base image of a build.
#[derive(Clone, Debug, Default)]
pub struct Situation<'a> {
    /// The image of the registered version for the same reference.
    pub pin: Option<&'a Base>,
    /// The author wants the images that the names refer to now.
    pub is_update: bool,
    /// Id of the pinned image on this engine: the same id, or the same digest in the registry.
    pub pinned: Option<String>,
    /// Id of the image to which the reference refers on this engine.
    pub named: Option<String>,
    /// The store may have the pinned image.
    pub is_stored: bool,
    /// The steps that the node has tried, whether they succeeded or not.
    pub tried: Vec<Step>,
}

/// What a node does next about a base image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Builds on the image with this id.
    Use { image: String, reason: Reason },
    /// Pulls the pinned image from its registry, by this digest.
    PullPin { digest: String },
    /// Fetches the pinned image from the artifact store.
    Fetch,
    /// Pulls the image to which the reference refers.
    Pull,
    /// Lets the builder look for the image, which reports what is wrong.
    Leave,
}

/// Why a build uses an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The registered version has it. `named` is another image to which the reference refers now.
    Pinned { named: Option<String> },
    /// The registered version has no image for this reference.
    New,
    /// The author has asked for it; `from` is the image of the registered version.
    Updated { from: Option<String> },
    /// The pinned image is nowhere: the build uses the one to which the reference refers here.
    Missing { pinned: String },
}

impl Situation<'_> {
    /// The next step; never one that was tried.
    pub fn next(&self) -> Step {
        let pin = self.pin.filter(|_| !self.is_update);
        if let Some(pin) = pin {
            return self.next_pinned(pin);
        }
        let pull = Step::Pull;
        if (self.is_update || self.named.is_none()) && self.may_try(&pull) {
            return pull;
        }
        let from = self.pin.map(|pin| pin.image.clone());
        self.use_named(if self.is_update {
            Reason::Updated { from }
        } else {
            Reason::New
        })
    }

    fn next_pinned(&self, pin: &Base) -> Step {
        if let Some(image) = &self.pinned {
            let named = self.named.clone().filter(|named| named != image);
            let reason = Reason::Pinned { named };
            let image = image.clone();
            return Step::Use { image, reason };
        }
        let digest = pin.digest.clone();
        let pull_pin = digest.map(|digest| Step::PullPin { digest });
        let fetch = self.is_stored.then_some(Step::Fetch);
        let pull = self.named.is_none().then_some(Step::Pull);
        let steps = [pull_pin, fetch, pull];
        let mut steps = steps.into_iter().flatten();
        if let Some(step) = steps.find(|step| self.may_try(step)) {
            return step;
        }
        let pinned = pin.image.clone();
        self.use_named(Reason::Missing { pinned })
    }

    fn may_try(&self, step: &Step) -> bool {
        !self.tried.contains(step)
    }

    fn use_named(&self, reason: Reason) -> Step {
        match self.named.clone() {
            Some(image) => Step::Use { image, reason },
            None => Step::Leave,
        }
    }
}

/// The line of a build's output about a base image, of which the build uses `image`.
pub fn line(reference: &str, image: &str, reason: &Reason) -> String {
    let image = short(image);
    match reason {
        Reason::Pinned { named: None } => {
            format!("Base image {reference}: {image}, pinned by the registered version")
        }
        Reason::Pinned { named: Some(named) } => format!(
            "Base image {reference}: {image}, pinned by the registered version; the name now refers to {} on this node: \
             use --update-bases to update",
            short(named)
        ),
        Reason::New => format!("Base image {reference}: {image}, new; later versions use it, too"),
        Reason::Updated { from: Some(from) } if short(from) != image => {
            format!(
                "Base image {reference}: {image}, updated from {}",
                short(from)
            )
        }
        Reason::Updated { from: Some(_) } => {
            format!(
                "Base image {reference}: {image}, as before: the name refers to it on this node"
            )
        }
        Reason::Updated { from: None } => {
            format!("Base image {reference}: {image}, new; later versions use it, too")
        }
        Reason::Missing { pinned } => format!(
            "Warning: base image {reference}: {image}, the image of this name on this node; the registered version uses \
             {}, which is neither on this node nor in a registry or the artifact store",
            short(pinned)
        ),
    }
}

/// Digits of an id in a line: as many as Docker prints.
const ID_LENGTH: usize = 12;

/// The first digits of an image id.
pub fn short(id: &str) -> &str {
    let digits = id.strip_prefix("sha256:").unwrap_or(id);
    digits.get(..ID_LENGTH).unwrap_or(digits)
}

#[cfg(test)]
mod tests;
