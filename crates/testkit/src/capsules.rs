//! Capsules that are registered without a build.

use aod_domain::capsule::{Event, Handoffs, Image, ImageContent, Needs, Registration, Resources};
use aod_domain::digest::Digest;
use aod_domain::event::{CloudEvent, Header};
use aod_domain::subject::Pool;
use aod_domain::tenant::Tenant;
use aod_ports::event_log::{Append, Guard};

/// The capsule `name`, which may call all capsules and needs few resources. Its image has the same name, and no node
/// fetches its archive: the test engines have it.
pub fn registration(name: &str, schema: Digest) -> Registration {
    Registration {
        name: name.parse().expect("a capsule's name"),
        title: None,
        description: None,
        aliases: Vec::new(),
        content: Digest::of(name),
        schema,
        agent: None,
        tools: None,
        workflow: None,
        image: Image {
            config_digest: name.to_owned(),
            content: ImageContent::Archive {
                archive: Digest::of(name),
                archive_size_bytes: 0,
            },
        },
        bases: Vec::new(),
        resources: Resources {
            memory_bytes: 1 << 20,
            ..Resources::default()
        },
        handoffs: Handoffs::Open,
        models: None,
        needs: Needs::default(),
        pool: Pool::any(),
        registered_by: "tests".into(),
    }
}

/// The registration that a gateway appends at the end of a build, for the default tenant.
pub fn registered(header: Header, registration: Registration) -> Append {
    registered_for(&Tenant::default(), header, registration)
}

/// The registration that a gateway appends at the end of a build, for `tenant`.
pub fn registered_for(tenant: &Tenant, header: Header, registration: Registration) -> Append {
    let about = format!("capsule/{}", registration.name);
    let event = Event::Registered(Box::new(registration));
    let subject = event.subject(tenant);
    let event = CloudEvent::new(header, about, None, event);
    Append::of(subject, Guard::None, &event).expect("a small event")
}
