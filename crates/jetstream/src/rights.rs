//! The rights of each part of a cluster at the broker, and the configuration that enforces them.
//!
//! Each part has its own account. The streams are in a separate account, [`OWNER`], from which a part imports
//! exactly the necessary subjects. Lists of subjects alone are not enough: a server sends an answer to the reply
//! subject of a request without a check of the requester's rights, so within one account a program that may read
//! and write a stream may write everything. An answer never leaves the account of its request.
//!
//! The only exception are push consumers: they deliver into [`OWNER`], and the right to create one is also the
//! right to change another one of that name. So only gateways create consumers; nodes receive announcements of
//! events.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use aod_domain::subject::{CANCELS, CAPSULES, LAUNCHES, PEERS, PLACEMENTS};
use aod_domain::writer::Writer;

use crate::config::inbox;
use crate::streams::{EVENTS, FILES, LOG_PREFIX, LOGS, PRESENCE, PRESENCE_PREFIX, WORK, announced};
use crate::work_queue::OFFERS;

/// The account of the streams.
pub const OWNER: &str = "AOD";

/// The streams of a cluster, created by its first gateway.
const STREAMS: [&str; 5] = [EVENTS, WORK, LOGS, PRESENCE, FILES];

/// Events that nodes follow in the log: cancellations, orders of operators to nodes, requirements of queues, and
/// registrations of capsules.
const FOLLOWED_BY_NODES: [&str; 4] = [CANCELS, "ev.*.node.*.>", PLACEMENTS, CAPSULES];

/// A part of a cluster, with its rights at the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The operator of the broker: all rights except the administration of the server itself.
    Admin,
    Gateway,
    Node,
}

/// Number of answers to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Answers {
    Once,
    Often,
}

/// The subjects that a part may publish to, with the number of answers.
type Rights = BTreeMap<String, Answers>;

/// A user of the broker.
#[derive(Clone, Debug)]
pub struct User {
    /// Letters, digits, `-` and `_`.
    pub name: String,
    pub password: String,
    pub part: Part,
}

/// The subjects that `part` may publish to; none means all.
pub fn subjects(part: &Part) -> Vec<String> {
    rights(part).into_keys().collect()
}

fn rights(part: &Part) -> Rights {
    match part {
        Part::Admin => Rights::new(),
        Part::Gateway => gateway(),
        Part::Node => node(),
    }
}

/// Creates streams and changes their settings (for new versions, and to release archived events); reads and
/// follows everything.
fn gateway() -> Rights {
    let mut rights = common(Writer::Gateway);
    let mut once = |subject: String| {
        rights.insert(subject, Answers::Once);
    };
    for stream in STREAMS {
        once(format!("$JS.API.STREAM.INFO.{stream}"));
        once(format!("$JS.API.STREAM.CREATE.{stream}"));
        once(format!("$JS.API.STREAM.UPDATE.{stream}"));
    }
    // Left-overs of interrupted uploads.
    once(format!("$JS.API.STREAM.PURGE.{FILES}"));
    once(format!("$JS.API.CONSUMER.DELETE.{FILES}.*"));
    for (stream, filter) in [
        (EVENTS, "ev.>"),
        (WORK, LAUNCHES),
        (LOGS, "log.>"),
        (FILES, "obj.>"),
    ] {
        once(format!("$JS.API.CONSUMER.CREATE.{stream}.*.{filter}"));
    }
    for stream in [EVENTS, LOGS, FILES] {
        once(format!("$JS.FC.{stream}.>"));
    }
    for stream in [EVENTS, WORK] {
        once(format!("$JS.API.CONSUMER.INFO.{stream}.*"));
    }
    once(format!("$JS.API.CONSUMER.DELETE.{WORK}.*"));
    // Ends of runs, which gateways share: for seals and traces.
    once(format!("$JS.ACK.{EVENTS}.>"));
    once(format!("{PRESENCE_PREFIX}.gateway.*"));
    rights.insert(
        format!("$JS.API.CONSUMER.MSG.NEXT.{EVENTS}.*"),
        Answers::Often,
    );
    rights
}

/// Takes launches and reports their results; creates and removes nothing shared.
fn node() -> Rights {
    let mut rights = common(Writer::Node);
    let mut once = |subject: String| {
        rights.insert(subject, Answers::Once);
    };
    for stream in [EVENTS, FILES] {
        once(format!("$JS.API.STREAM.INFO.{stream}"));
    }
    once(format!("{LOG_PREFIX}.>"));
    once(format!("{PRESENCE_PREFIX}.node.*"));
    once(format!("$JS.API.CONSUMER.INFO.{WORK}.*"));
    once(format!("$JS.ACK.{WORK}.>"));
    let next = format!("$JS.API.CONSUMER.MSG.NEXT.{WORK}.*");
    rights.insert(next, Answers::Often);
    rights
}

/// Appends its events, stores artifacts, and reads.
fn common(writer: Writer) -> Rights {
    let mut rights = Rights::new();
    let mut once = |subject: String| {
        rights.insert(subject, Answers::Once);
    };
    writer.subjects().into_iter().for_each(&mut once);
    // Without this import, the server itself answers for an account without streams.
    once("$JS.API.INFO".to_owned());
    once("obj.artifacts.>".to_owned());
    once(format!("$JS.API.CONSUMER.LIST.{WORK}"));
    for stream in [EVENTS, PRESENCE, FILES] {
        once(format!("$JS.API.STREAM.MSG.GET.{stream}"));
    }
    once(format!("$JS.API.DIRECT.GET.{FILES}.>"));
    for stream in [EVENTS, PRESENCE] {
        rights.insert(format!("$JS.API.DIRECT.GET.{stream}"), Answers::Often);
    }
    rights
}

/// Announcements of the log that users of `part` receive.
fn heard(part: &Part) -> Vec<String> {
    match part {
        Part::Node => FOLLOWED_BY_NODES.map(announced).to_vec(),
        Part::Admin | Part::Gateway => Vec::new(),
    }
}

/// Subjects that users of `part` may use among themselves, in their own account: nodes offer launches, and fetch
/// artifacts from each other.
fn among_themselves(part: &Part) -> Vec<String> {
    match part {
        Part::Node => vec![OFFERS.to_owned(), PEERS.to_owned()],
        Part::Admin | Part::Gateway => Vec::new(),
    }
}

/// The part of a nats-server configuration that creates `users`, each with the rights of its part.
pub fn configuration(users: &[User]) -> String {
    let mut exports = Rights::new();
    for user in users {
        exports.extend(rights(&user.part));
    }
    let mut text = String::from(
        "# Generated by aod, which overwrites manual changes when it generates the file again.\n\
         accounts {\n",
    );
    // Writing to memory does not fail.
    let _ = writeln!(text, "  {OWNER} {{\n    jetstream: enabled\n    users: [");
    for user in users.iter().filter(|user| user.part == Part::Admin) {
        let _ = writeln!(text, "      {}", login(user, ""));
    }
    text.push_str("    ]\n    exports: [\n");
    for (subject, answers) in &exports {
        let often = match answers {
            Answers::Once => "",
            Answers::Often => ", response_type: stream",
        };
        let _ = writeln!(text, "      {{ service: \"{subject}\"{often} }}");
    }
    let announced: BTreeSet<String> = users.iter().flat_map(|user| heard(&user.part)).collect();
    for subject in announced {
        let _ = writeln!(text, "      {{ stream: \"{subject}\" }}");
    }
    let others = || users.iter().filter(|user| user.part != Part::Admin);
    for user in others() {
        let (inbox, name) = (inboxes(user), &user.name);
        let _ = writeln!(
            text,
            "      {{ stream: \"{inbox}\", accounts: [\"{name}\"] }}"
        );
    }
    text.push_str("    ]\n  }\n");
    for user in others() {
        write_account(&mut text, user);
    }
    text.push_str("}\n");
    text
}

fn write_account(text: &mut String, user: &User) {
    let (subjects, inbox) = (subjects(&user.part), inboxes(user));
    let (announced, own) = (heard(&user.part), among_themselves(&user.part));
    let mut said = [subjects.clone(), own.clone()].concat();
    if !own.is_empty() {
        // The reply subjects of these requests.
        said.push(inbox.clone());
    }
    let from_owner = [vec![inbox], announced].concat();
    let listened = [own, from_owner.clone()].concat();
    let permissions = format!(
        ",\n        permissions: {{ subscribe: [{}\n        ], publish: [{}\n        ] }}",
        listed(&listened),
        listed(&said)
    );
    let name = &user.name;
    let _ = writeln!(
        text,
        "  \"{name}\" {{\n    users: [\n      {}\n    ]\n    imports: [",
        login(user, &permissions)
    );
    for subject in subjects {
        let _ = writeln!(
            text,
            "      {{ service: {{ account: {OWNER}, subject: \"{subject}\" }} }}"
        );
    }
    for subject in from_owner {
        let _ = writeln!(
            text,
            "      {{ stream: {{ account: {OWNER}, subject: \"{subject}\" }} }}"
        );
    }
    text.push_str("    ]\n  }\n");
}

fn listed(subjects: &[String]) -> String {
    let lines = subjects
        .iter()
        .map(|subject| format!("\n          \"{subject}\""));
    lines.collect()
}

fn login(user: &User, permissions: &str) -> String {
    let (name, password) = (&user.name, &user.password);
    format!("{{ user: \"{name}\", password: \"{password}\"{permissions} }}")
}

/// The reply and delivery subjects of `user`.
fn inboxes(user: &User) -> String {
    format!("{}.>", inbox(&user.name))
}

#[cfg(test)]
mod tests {
    use aod_domain::subject::is_under;

    use super::*;

    fn may(part: &Part, subject: &str) -> bool {
        subjects(part)
            .iter()
            .any(|filter| is_under(subject, filter))
    }

    #[test]
    fn no_part_may_remove_or_change_irreplaceable_data() {
        for part in [Part::Gateway, Part::Node] {
            for subject in [
                "$JS.API.STREAM.DELETE.EVENTS",
                "$JS.API.STREAM.PURGE.EVENTS",
                "$JS.API.STREAM.MSG.DELETE.EVENTS",
                "$JS.API.STREAM.RESTORE.EVENTS",
                "$JS.API.STREAM.DELETE.FILES",
                "$JS.API.STREAM.CREATE.OTHER",
                "$JS.API.ACCOUNT.PURGE.AOD",
                "$SYS.REQ.SERVER.PING",
                "$SYS.REQ.ACCOUNT.AOD.CONNZ",
                "anything",
            ] {
                assert!(!may(&part, subject), "{part:?} {subject}");
            }
        }
    }

    #[test]
    fn nodes_may_create_and_remove_nothing() {
        for subject in subjects(&Part::Node) {
            for verb in ["CREATE", "UPDATE", "DELETE", "PURGE", "DURABLE"] {
                assert!(!subject.contains(&format!(".{verb}.")), "{subject}");
            }
        }
    }

    #[test]
    fn subjects_with_one_and_many_answers_do_not_overlap() {
        // A server searches the export of an import in no order.
        let all: Rights = [Part::Gateway, Part::Node]
            .iter()
            .flat_map(rights)
            .collect();
        for (often, _) in all
            .iter()
            .filter(|(_, answers)| **answers == Answers::Often)
        {
            let literal = often.replace(['*', '>'], "x");
            let others = all.keys().filter(|other| *other != often);
            for other in others {
                assert!(!is_under(&literal, other), "{often} {other}");
            }
        }
    }

    #[test]
    fn the_configuration_has_an_account_for_each_user() {
        let user = |name: &str, part| User {
            name: name.to_owned(),
            password: "secret".to_owned(),
            part,
        };
        insta::assert_snapshot!(configuration(&[
            user("admin", Part::Admin),
            user("gateway", Part::Gateway),
            user("node-berlin", Part::Node),
        ]));
    }
}
