//! What each part of a cluster may say to the broker, and the configuration that holds it to that.
//!
//! Each part has an account of its own; the streams lie in another, [`OWNER`], of which it imports exactly
//! what it needs. Lists of subjects alone would not do: a server sends an answer to whatever reply subject a
//! request names without asking whether the requester may publish there, so that in one account who may read a
//! stream that it also writes may write everything. An answer never leaves the account that asked.
//!
//! The one exception are consumers that push: they deliver into [`OWNER`], and to make one is to change another
//! one of this name. So only gateways make consumers; nodes hear the places of events that they wait for.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use aod_domain::subject::{CANCELS, LAUNCHES, PLACEMENTS};
use aod_domain::writer::Writer;

use crate::config::inbox;
use crate::streams::{EVENTS, FILES, LOG_PREFIX, LOGS, PRESENCE, PRESENCE_PREFIX, WORK, told};
use crate::work_queue::OFFERS;

/// The account that the streams lie in.
pub const OWNER: &str = "AOD";

/// The streams of a cluster, which its first gateway makes.
const STREAMS: [&str; 5] = [EVENTS, WORK, LOGS, PRESENCE, FILES];

/// What nodes look for in the log while it goes on: cancellations, what operators ask of them, and what queues
/// require.
const FOLLOWED_BY_NODES: [&str; 3] = [CANCELS, "ev.*.node.*.>", PLACEMENTS];

/// A part of a cluster, as the broker knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Whoever looks after the broker: may do everything but look after the server itself.
    Admin,
    Gateway,
    Node,
}

/// How often something that is asked for is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Answers {
    Once,
    Often,
}

/// What a part may say, and how often it is answered.
type Rights = BTreeMap<String, Answers>;

/// A user of the broker.
#[derive(Clone, Debug)]
pub struct User {
    /// Letters, digits, `-` and `_`.
    pub name: String,
    pub password: String,
    pub part: Part,
}

/// The subjects that `part` may publish to; none for whoever may publish to all.
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

/// Makes streams and changes their settings, as a new version does, and as old events are let go that the archive
/// has; reads and follows everything.
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
    // What uploads that were cut off have left.
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
    // Ends of runs, which gateways share: to seal them, to tell them as traces.
    once(format!("$JS.ACK.{EVENTS}.>"));
    once(format!("{PRESENCE_PREFIX}.gateway.*"));
    rights.insert(
        format!("$JS.API.CONSUMER.MSG.NEXT.{EVENTS}.*"),
        Answers::Often,
    );
    rights
}

/// Takes launches and tells what became of them; makes and removes nothing that others rely on.
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
    // To import this keeps the server from answering for an account that has no streams itself.
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

/// What users of `part` hear of the log while it goes on.
fn heard(part: &Part) -> Vec<String> {
    match part {
        Part::Node => FOLLOWED_BY_NODES.map(told).to_vec(),
        Part::Admin | Part::Gateway => Vec::new(),
    }
}

/// What users of `part` may say to each other, in their own account: nodes hand on launches.
fn among_themselves(part: &Part) -> Vec<String> {
    match part {
        Part::Node => vec![OFFERS.to_owned()],
        Part::Admin | Part::Gateway => Vec::new(),
    }
}

/// The fragment of a configuration of nats-server that makes `users`, each with the rights of its part.
pub fn configuration(users: &[User]) -> String {
    let mut exports = Rights::new();
    for user in users {
        exports.extend(rights(&user.part));
    }
    let mut text = String::from(
        "# Made by aod. Who changes it by hand loses that when it is made anew.\n\
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
    let told: BTreeSet<String> = users.iter().flat_map(|user| heard(&user.part)).collect();
    for subject in told {
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
    let (told, own) = (heard(&user.part), among_themselves(&user.part));
    let mut said = [subjects.clone(), own.clone()].concat();
    if !own.is_empty() {
        // Where what is said among them is answered.
        said.push(inbox.clone());
    }
    let from_owner = [vec![inbox], told].concat();
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

/// Where answers and deliveries for `user` come in.
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
    fn nobody_removes_or_changes_what_cannot_be_made_again() {
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
    fn nodes_make_and_remove_nothing() {
        for subject in subjects(&Part::Node) {
            for verb in ["CREATE", "UPDATE", "DELETE", "PURGE", "DURABLE"] {
                assert!(!subject.contains(&format!(".{verb}.")), "{subject}");
            }
        }
    }

    #[test]
    fn subjects_that_are_answered_often_and_once_do_not_overlap() {
        // A server looks for the export of an import in no order.
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
