//! The files of each tenant: those of its runs, capsules, model calls and uploads.

use aod_domain::audit::bundled_by;
use aod_domain::digest::Digest;
use aod_domain::subject::Subject;
use aod_domain::{capsule, file, run, spending};
use aod_ports::event_log::StoredEvent;
use rusqlite::{Connection, params};
use serde::de::DeserializeOwned;

/// Applies the files that an event names.
pub(super) fn take(connection: &Connection, stored: &StoredEvent) -> rusqlite::Result<()> {
    let named = named(stored);
    let Some(tenant) = Subject::tenant_of(&stored.subject).filter(|_| !named.is_empty()) else {
        return Ok(());
    };
    let sql = "INSERT OR IGNORE INTO files (tenant, digest) VALUES (?1, ?2)";
    let mut statement = connection.prepare_cached(sql)?;
    for digest in named {
        statement.execute(params![tenant.as_str(), digest.as_bytes()])?;
    }
    Ok(())
}

/// The files that an event names; none for an unreadable event, which [`super::feed`] logs.
fn named(stored: &StoredEvent) -> Vec<Digest> {
    let subject = stored.subject.as_str();
    if Subject::is_state(subject) {
        let event = read::<run::Event>(stored);
        let named = event.iter().flat_map(bundled_by);
        named.map(|named| named.digest).collect()
    } else if Subject::is_spending(subject) {
        match read(stored) {
            Some(spending::Event::Settled(settled)) => {
                let contents = settled.contents.into_iter();
                let kept = contents.flat_map(|contents| [contents.request, contents.answer]);
                kept.flatten().map(|kept| kept.digest).collect()
            }
            Some(spending::Event::Reserved { .. }) | None => Vec::new(),
        }
    } else if Subject::is_capsule(subject) {
        let registered = read(stored).and_then(capsule::Event::into_registration);
        registered.map_or_else(Vec::new, |registered| {
            let optional = [registered.agent, registered.tools];
            let always = [registered.content, registered.schema];
            always
                .into_iter()
                .chain(optional.into_iter().flatten())
                .collect()
        })
    } else if Subject::is_file(subject) {
        read::<file::Event>(stored).map_or_else(Vec::new, |event| vec![event.digest()])
    } else {
        Vec::new()
    }
}

fn read<E: DeserializeOwned>(stored: &StoredEvent) -> Option<E> {
    let recorded = stored.decode().ok();
    recorded.map(|recorded| recorded.event)
}
