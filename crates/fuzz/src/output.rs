//! `output.json`, as a node collects it.

use std::collections::BTreeSet;

use aod_domain::contract::Contract;
use aod_domain::digest::Digest;
use aod_domain::event::{CloudEvent, Header};
use aod_domain::file_name::FileName;
use aod_domain::id::EventId;
use aod_domain::run::{Ended, Event, Outcome, RunError};
use aod_node::fuzzing::{error_of_output, output};
use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;

use crate::parts;

/// The files of the capsule.
const FILES: [&str; 4] = ["a", "chart.png", "data/table.csv", "report-2.pdf"];

/// A schema and, after the separator, an output.
pub fn check(bytes: &[u8]) {
    let [schema, document] = parts(bytes);
    if let Some(error) = error_of_output(document) {
        check_error(error);
    }
    let Ok(contract) = Contract::parse(schema) else {
        return;
    };
    let names: BTreeSet<FileName> = FILES.map(|name| name.parse().expect("a file name")).into();
    match output(document, &contract, &names) {
        (Some(answer), None) => {
            assert!(answer.is_object());
            let text = serde_json::to_vec(&answer).expect("JSON");
            // References are bare file names by now: if the schema accepts those too, nothing changes.
            if let (again, None) = output(&text, &contract, &names) {
                assert_eq!(again, Some(answer));
            }
        }
        // An invalid output is stored unchanged.
        (Some(kept), Some(error)) => {
            assert_eq!(serde_json::from_slice::<Value>(document).ok(), Some(kept));
            check_error(error);
        }
        (None, Some(error)) => check_error(error),
        (None, None) => panic!("neither an answer nor an error"),
    }
}

/// The error has a text, and fits into the final event of the run.
fn check_error(error: RunError) {
    assert!(
        !error.code.is_empty() || !error.message.is_empty(),
        "{error:?}"
    );
    let ended = Ended::without_start(1, Outcome::Failed, error.bounded());
    let header = Header {
        id: EventId::new(Uuid::from_u128(1)),
        source: "/node/node_00000000000000000000000004".into(),
        time: Timestamp::UNIX_EPOCH,
    };
    let event = Event::Ended(Box::new(ended));
    let event = CloudEvent::new(header, "run".into(), Some(Digest::of("previous")), event);
    let bytes = event.encode().expect("an error fits an event");
    assert_eq!(CloudEvent::decode(&bytes).expect("an event is read"), event);
}
