//! Whom a launch is better off with: a node that has its files or its image, where this one would have to fetch them.
//!
//! That node is asked whether it takes the launch, once and for a short time, and knows better than anybody whether it
//! has room. If it has none, or does not answer, the launch stays here. A launch that needs nothing from elsewhere costs
//! no thought.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aod_domain::id::NodeId;
use aod_domain::placement::{LOCALITY_BYTES_MIN, Near, Spot, fits, preferred};
use aod_domain::run::{Event, Placement, Work};
use aod_ports::presence::{Member, NodeMember, image_key};
use aod_ports::work_queue::Offer;
use futures::StreamExt as _;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::agent::Readiness;
use crate::attempt::Delivered;
use crate::calls::chain;
use crate::shared::Shared;

/// How long the other may take to answer. It is there, and has nothing to look up; a host whose processors are all busy
/// takes its time all the same.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long it is believed who is there: as long as between two announcements of one node.
const MEMBERS_FRESH: Duration = Duration::from_secs(1);

/// Pause before offers that cannot be heard are listened for again.
const RETRY: Duration = Duration::from_millis(500);

/// The other nodes, as they were a moment ago.
#[derive(Debug, Default)]
pub(crate) struct Neighbours(Mutex<Option<(Instant, Arc<[NodeMember]>)>>);

impl Neighbours {
    /// All nodes but this one; none if presence does not answer.
    pub(crate) async fn others(&self, shared: &Shared) -> Arc<[NodeMember]> {
        let known = self.lock().clone();
        if let Some((at, others)) = known
            && at.elapsed() < MEMBERS_FRESH
        {
            return others;
        }
        let members = match shared.ports.presence.members().await {
            Ok(members) => members,
            Err(error) => {
                debug!(error = %chain(&error), "the other nodes are not known");
                return Arc::default();
            }
        };
        let others = members.into_iter().filter_map(|member| match member {
            Member::Node(node) if node.node != shared.id => Some(node),
            Member::Node(_) | Member::Gateway(_) => None,
        });
        let others: Arc<[NodeMember]> = others.collect();
        *self.lock() = Some((Instant::now(), Arc::clone(&others)));
        others
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<(Instant, Arc<[NodeMember]>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a launch needs from elsewhere, if it needs so much that another node may be better.
pub(crate) struct Missing {
    placement: Placement,
    near: Option<Near>,
    /// Its digest and its size.
    image: (String, u64),
}

impl Missing {
    /// Of an admitted launch only the files are known.
    pub(crate) fn of(shared: &Shared, delivered: &Delivered) -> Option<Self> {
        let (placement, image) = match &delivered.launch.as_ref()?.event {
            Event::Launched(launched) => {
                let image = match &launched.work {
                    Work::Capsule { image, .. } => Some(image),
                    Work::Build { .. } => None,
                };
                (&launched.placement, image)
            }
            Event::Admitted(admitted) => (&admitted.placement, None),
            _ => return None,
        };
        let image = image.filter(|image| !shared.image_uses.is_here(&image.config_digest));
        let image_bytes = image.map_or(0, |image| image.archive_size_bytes);
        let near = placement.near;
        let far = near.filter(|near| near.node != shared.id);
        let bytes = far.map_or(0, |near| near.bytes).saturating_add(image_bytes);
        (bytes >= LOCALITY_BYTES_MIN).then(|| Self {
            placement: placement.clone(),
            near,
            image: image.map_or_else(Default::default, |image| {
                (image.config_digest.clone(), image_bytes)
            }),
        })
    }
}

/// Hands the launch to whom it is better off with; gives it back if it stays here.
pub(crate) async fn hand_over(
    shared: &Shared,
    delivered: Delivered,
    missing: &Missing,
) -> Option<Delivered> {
    let others = shared.neighbours.others(shared).await;
    let Some(to) = better(shared, missing, &others) else {
        return Some(delivered);
    };
    let held = shared
        .runs
        .clock()
        .since_boot()
        .saturating_sub(delivered.received);
    let delivery = &delivered.delivery;
    match shared.ports.queue.offer(to, delivery, held, PATIENCE).await {
        Ok(true) => {
            debug!(run = %delivery.run, %to, "handed over");
            None
        }
        Ok(false) => Some(delivered),
        Err(error) => {
            warn!(run = %delivery.run, %to, error = %chain(&error), "not handed over");
            Some(delivered)
        }
    }
}

fn better(shared: &Shared, missing: &Missing, others: &[NodeMember]) -> Option<NodeId> {
    let (digest, image_bytes) = &missing.image;
    let here = Spot {
        node: shared.id,
        has_image: digest.is_empty(),
        running: 0,
        slots: 1,
    };
    let Placement {
        label,
        class,
        requirements,
        ..
    } = &missing.placement;
    let open = others.iter().filter(|node| {
        node.takes(*class) && fits(label, requirements, &node.labels, &node.place.equipment).is_ok()
    });
    let spots = open.map(|node| Spot {
        node: node.node,
        has_image: digest.is_empty() || has_image(node, digest),
        // It may have room by now although it had none when it was announced: it is asked.
        running: if missing.near.is_some_and(|near| near.node == node.node) {
            0
        } else {
            node.running
        },
        slots: node.slots,
    });
    preferred(missing.near, *image_bytes, &here, spots)
}

fn has_image(node: &NodeMember, digest: &str) -> bool {
    let key = image_key(digest);
    node.place.images.iter().any(|image| image == key)
}

/// Takes what others hand over, as long as there is room at once.
pub(crate) async fn listen(
    shared: &Arc<Shared>,
    readiness: Readiness,
    start: impl Fn(Delivered) -> Option<Delivered>,
) {
    loop {
        match shared.ports.queue.offers(shared.id).await {
            Ok(mut offers) => {
                while let Some(offer) = offers.next().await {
                    let is_ready = readiness.borrow().takes(offer.delivery.class);
                    take(shared, offer, is_ready, &start);
                }
            }
            Err(error) => warn!(error = %chain(&error), "what others hand over cannot be heard"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

fn take(
    shared: &Shared,
    offer: Offer,
    is_ready: bool,
    start: &impl Fn(Delivered) -> Option<Delivered>,
) {
    let now = shared.runs.clock().since_boot();
    let Some(received) = now.checked_sub(offer.held) else {
        return;
    };
    let delivered = Delivered::read(offer.delivery, received);
    let is_fit = is_ready
        && shared.disks.look(now).room.takes(delivered.delivery.class)
        && fits_here(shared, &delivered);
    let is_taken = is_fit && start(delivered).is_none();
    // Whoever does not hear it takes the launch too, and the log decides.
    let _ = offer.answer.send(is_taken);
}

fn fits_here(shared: &Shared, delivered: &Delivered) -> bool {
    let Some(placement) = delivered.placement() else {
        return false;
    };
    let (labels, equipment) = (&shared.config.labels, &shared.config.equipment);
    fits(&placement.label, &placement.requirements, labels, equipment).is_ok()
}
