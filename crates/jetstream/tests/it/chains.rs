//! Writers of one chain on a real server.

use std::sync::Arc;

use aod_domain::flow::{Event, RULES_MAX, Rejection, Rule, Rules, check};
use aod_ports::clock::SystemClock;
use aod_services::writer::{ChangeError, Writer, catch_up};
use tokio::task::JoinSet;

use crate::support::start;

/// Rules that do not fit.
const EXCESS: usize = 8;

fn set(number: usize) -> Event {
    let rule: Rule = serde_json::from_value(serde_json::json!({ "name": format!("r{number}") }))
        .expect("the other fields have defaults");
    Event::Set {
        rule,
        requested_by: "operator".into(),
    }
}

#[tokio::test]
async fn concurrent_writers_never_exceed_the_number_of_rules() {
    let (_server, broker) = start().await;
    let log = Arc::new(broker.event_log());
    let writer = |name: &str| Writer::new(log.clone(), Arc::new(SystemClock), name);
    let mut tasks = JoinSet::new();
    for (writer, offset) in [(writer("/gateway/a"), 0), (writer("/gateway/b"), 1)] {
        tasks.spawn(async move {
            let mut rejected = 0;
            // Neither writer reads what the other one stored, until a guard fails.
            let mut rules = Rules::default();
            for number in (offset..RULES_MAX + EXCESS).step_by(2) {
                let event = set(number);
                let decide = |rules: &Rules, _| check(rules, &event).map(|()| Some(event.clone()));
                match writer.change(&mut rules, decide).await {
                    Ok(sequence) => assert!(sequence.is_some()),
                    Err(ChangeError::Rejected { rejection, .. }) => {
                        assert_eq!(rejection, Rejection::TooMany);
                        rejected += 1;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            rejected
        });
    }
    let rejected: usize = tasks.join_all().await.into_iter().sum();
    assert_eq!(rejected, EXCESS);
    let mut rules = Rules::default();
    catch_up(log.as_ref(), &mut rules)
        .await
        .expect("all events are readable");
    assert_eq!(rules.iter().count(), RULES_MAX);
}
