//! The catalogue of a tenant, and removals from it.

use uuid::Uuid;

use super::base::StoredBase;
use super::*;
use crate::artifacts::named_by_registration;
use crate::event::{CloudEvent, Header};
use crate::id::EventId;
use crate::run::fixtures::{NOW, image, registration};

fn recorded(sequence: u64, event: Event) -> Recorded<Event> {
    let header = Header {
        id: EventId::new(Uuid::from_u128(sequence.into())),
        source: "/test".into(),
        time: NOW,
    };
    let event = CloudEvent::new(header, "about".into(), None, event);
    let bytes = event.encode().expect("a small event");
    Recorded::decode(sequence, &bytes).expect("the same event")
}

fn registered(sequence: u64, name: &str, content: &str) -> Recorded<Event> {
    let registration = registration(name, content);
    recorded(sequence, Event::Registered(Box::new(registration)))
}

fn catalogue(events: impl IntoIterator<Item = Recorded<Event>>) -> Catalogue {
    let mut catalogue = Catalogue::default();
    for event in events {
        catalogue.apply(event);
    }
    catalogue
}

fn names(catalogue: &Catalogue) -> Vec<&str> {
    let registered = catalogue.iter();
    registered.map(|one| one.event.name.as_str()).collect()
}

fn chain(events: impl IntoIterator<Item = Recorded<Event>>) -> CapsuleChain {
    let acme = "acme".parse().expect("a tenant");
    let mut chain = CapsuleChain::new(acme, "chart".parse().expect("a name"));
    for event in events {
        let Ok(()) = chain.apply(event);
    }
    chain
}

fn removed(sequence: u64) -> Recorded<Event> {
    let event = remove(&chain([registered(1, "chart", "a")]), "ada");
    recorded(sequence, event.expect("it is registered"))
}

#[test]
fn removed_capsule_is_not_in_the_catalogue() {
    let mut found = catalogue([registered(1, "chart", "a"), registered(2, "map", "b")]);
    found.apply(removed(3));
    assert_eq!(names(&found), ["map"]);
}

#[test]
fn removed_capsule_can_be_registered_again() {
    let mut found = catalogue([registered(1, "chart", "a")]);
    found.apply(removed(2));
    found.apply(registered(3, "chart", "b"));
    let name = "chart".parse().expect("a name");
    let latest = found.get(&name).expect("it is registered");
    assert_eq!(latest.event.content, Digest::of("b"));
}

#[test]
fn removal_is_guarded_by_all_events_of_the_capsule() {
    let chain = chain([registered(7, "chart", "a")]);
    let event = remove(&chain, "ada").expect("it is registered");
    let subject = chain.subject(&event).to_string();
    assert_eq!(subject, "ev.acme.capsule.chart.removed");
    assert_eq!(chain.filter(), "ev.acme.capsule.chart.>");
    assert_eq!(chain.last().map(|(sequence, _)| sequence), Some(7));
}

#[test]
fn removed_capsule_cannot_be_removed_again() {
    let again = remove(&chain([registered(1, "chart", "a"), removed(2)]), "ada");
    assert_eq!(again, Err(NotRegistered("chart".parse().expect("a name"))));
}

#[test]
fn registration_names_the_parts_of_its_base_images() {
    let [manifest, config] = ["manifest", "config"].map(Digest::of);
    let base = Base {
        reference: "python:3.11-slim".into(),
        image: "sha256:0".into(),
        digest: None,
        stored: Some(StoredBase {
            manifest,
            config: Some(config),
            layers: 1,
        }),
    };
    let registration = Registration {
        bases: vec![base.clone()],
        ..registration("chart", "one")
    };
    let named = named_by_registration(&registration);
    for part in [manifest, config] {
        assert!(named.iter().any(|named| named.digest == part), "{named:?}");
    }
    let built = Built {
        image: image(),
        bases: vec![base],
    };
    assert!(built.artifacts().ends_with(&[manifest, config]));
    let stored = serde_json::to_value(&built).expect("JSON");
    assert_eq!(
        serde_json::from_value::<Built>(stored).expect("a result"),
        built
    );
}

#[test]
fn result_of_a_build_from_before_bases_is_read() {
    let stored = serde_json::to_value(image()).expect("JSON");
    let built = Built {
        image: image(),
        bases: Vec::new(),
    };
    assert_eq!(serde_json::to_value(&built).expect("JSON"), stored);
    assert_eq!(
        serde_json::from_value::<Built>(stored).expect("a result"),
        built
    );
}
