//! What the image of a capsule shares with the images of other capsules.

use std::collections::BTreeSet;

use super::{Blob, CapsuleName, Image};

/// The layers of one image, compared with the images of other registered capsules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// From the base up; each digest once.
    pub layers: Vec<Compared>,
}

/// A layer, and who else has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared {
    pub layer: Blob,
    /// Whether the image of another capsule, of any tenant, has this layer.
    pub is_shared: bool,
    /// The other capsules of the same tenant that have this layer.
    pub shared_with: BTreeSet<CapsuleName>,
}

/// A registered capsule that the image is compared with.
#[derive(Clone, Debug)]
pub struct Other {
    /// None for a capsule of another tenant, whose name stays unknown.
    pub name: Option<CapsuleName>,
    pub image: Image,
}

impl Comparison {
    /// Compares `image` with the images of `others`. An image that is stored as an archive shares nothing, and has one
    /// part: the archive.
    pub fn of(image: &Image, others: &[Other]) -> Self {
        let mut layers: Vec<Compared> = Vec::new();
        for &layer in image.parts().iter() {
            if layers.iter().any(|seen| seen.layer.digest == layer.digest) {
                continue;
            }
            let having: Vec<&Other> = others
                .iter()
                .filter(|other| other.image.parts().contains(&layer))
                .collect();
            let names = having.iter().filter_map(|other| other.name.clone());
            layers.push(Compared {
                layer,
                is_shared: !having.is_empty(),
                shared_with: names.collect(),
            });
        }
        Self { layers }
    }

    /// The bytes of all layers.
    pub fn size_bytes(&self) -> u64 {
        self.layers.iter().map(|it| it.layer.size_bytes).sum()
    }

    /// The bytes of the layers that no other capsule has: what the store can free after the capsule is removed.
    pub fn own_bytes(&self) -> u64 {
        let own = self.layers.iter().filter(|it| !it.is_shared);
        own.map(|it| it.layer.size_bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::ImageContent;
    use super::*;
    use crate::digest::Digest;

    fn image(layers: &[(&str, u64)]) -> Image {
        let blob = |&(text, size_bytes): &(&str, u64)| Blob {
            digest: Digest::of(text),
            size_bytes,
        };
        Image {
            config_digest: "sha256:0".into(),
            content: ImageContent::Layers {
                manifest: Digest::of("manifest"),
                config: None,
                layers: layers.iter().map(blob).collect(),
            },
        }
    }

    fn other(name: Option<&str>, layers: &[(&str, u64)]) -> Other {
        Other {
            name: name.map(|name| name.parse().unwrap()),
            image: image(layers),
        }
    }

    #[test]
    fn layers_of_other_capsules_are_shared_and_those_of_other_tenants_stay_unnamed() {
        let image = image(&[("base", 100), ("python", 30), ("own", 2), ("base", 100)]);
        let others = [
            other(Some("chart"), &[("base", 100), ("python", 30)]),
            other(Some("map"), &[("base", 100)]),
            other(None, &[("python", 30)]),
        ];
        let compared = Comparison::of(&image, &others);
        let shown: Vec<(u64, bool, Vec<&str>)> = compared
            .layers
            .iter()
            .map(|it| {
                let names = it.shared_with.iter().map(CapsuleName::as_str).collect();
                (it.layer.size_bytes, it.is_shared, names)
            })
            .collect();
        assert_eq!(
            shown,
            [
                (100, true, vec!["chart", "map"]),
                (30, true, vec!["chart"]),
                (2, false, vec![]),
            ]
        );
        assert_eq!((compared.size_bytes(), compared.own_bytes()), (132, 2));
        let of_tenant = Comparison::of(&image, &others[2..]);
        assert_eq!(of_tenant.own_bytes(), 102);
        assert!(of_tenant.layers[1].is_shared && of_tenant.layers[1].shared_with.is_empty());
    }

    #[test]
    fn archive_is_one_part() {
        let mut archive = image(&[]);
        archive.content = ImageContent::Archive {
            archive: Digest::of("archive"),
            archive_size_bytes: 9,
        };
        let compared = Comparison::of(&archive, &[other(Some("chart"), &[("base", 1)])]);
        assert_eq!((compared.size_bytes(), compared.own_bytes()), (9, 9));
    }
}
