//! Follows the events of runs while admission needs them.

use std::time::Duration;

use aod_domain::error_code::ErrorCode;
use aod_domain::subject;
use aod_ports::event_log::{Followed, From};
use futures::StreamExt as _;
use jiff::SignedDuration;

use super::{RETRY_PAUSE, pause};
use crate::context::Context;
use crate::error::{Error, Result};
use aod_services::error::chain;

/// Time between two checks for runs that wait although there are no rules.
const LEFT_OVER_INTERVAL: Duration = Duration::from_secs(5);

/// Maximum time by which the clocks of programs that end runs may be behind this clock.
const CLOCKS_APART_MAX: SignedDuration = SignedDuration::from_secs(60);

/// Follows runs while there are rules, or runs that wait or are in a bucket.
pub(crate) async fn follow_runs(context: &Context) {
    while context
        .shutdown
        .run_until_cancelled(is_needed(context))
        .await
        .is_some()
    {
        if let Err(error) = follow_while_needed(context).await {
            tracing::warn!(
                problem = error.problem().detail,
                "cannot admit runs now; retrying"
            );
            pause(context, RETRY_PAUSE).await;
        }
        context.admitter.is_following.send_replace(false);
    }
}

/// Waits until there are rules, or runs that wait for a removed rule: a gateway that did not know of the removal may
/// have stored the request, or all gateways may have restarted since.
async fn is_needed(context: &Context) {
    let mut rules = context.admitter.rules_applied.subscribe();
    loop {
        let has_rules = rules.wait_for(|_| !context.admitter.flow().rules().is_empty());
        if tokio::time::timeout(LEFT_OVER_INTERVAL, has_rules)
            .await
            .is_ok()
        {
            return;
        }
        match context.read_model.has_requested().await {
            Ok(true) => return,
            Ok(false) => (),
            Err(error) => tracing::warn!(
                error = chain(&error),
                "cannot check for runs that wait for admission; retrying"
            ),
        }
    }
}

async fn follow_while_needed(context: &Context) -> Result<()> {
    let (admitter, log) = (&context.admitter, context.runs.log());
    let from = first_sequence(context).await?;
    let last = log.read_last(subject::ADMISSIONS).await?;
    let last = last.map(|stored| stored.decode());
    let last = last.transpose().map_err(|error| {
        Error::new(ErrorCode::Internal, "the last admission is damaged").because(error)
    })?;
    {
        let mut flow = admitter.flow();
        *flow = flow.begin(from, last.as_ref());
    }
    let stored = log.read_last(subject::ALL).await?;
    let caught_up_at = stored.map_or(0, |stored| stored.sequence);
    let begin = |is_caught_up: bool| {
        if is_caught_up && !admitter.is_following.send_replace(true) {
            admitter.changed.notify_one();
        }
        is_caught_up
    };
    begin(caught_up_at < from);
    let mut followed = log
        .follow(subject::ALL, From::After(from.saturating_sub(1)))
        .await?;
    while let Some(Some(followed)) = context.shutdown.run_until_cancelled(followed.next()).await {
        let Followed::Event(stored) = followed else {
            continue;
        };
        admitter.take(&stored);
        let is_caught_up = begin(stored.sequence >= caught_up_at);
        let flow = admitter.flow();
        if is_caught_up && flow.rules().is_empty() && flow.is_idle() {
            return Ok(());
        }
    }
    Ok(())
}

/// First sequence to follow: all runs that have not ended begin there or later, and so do all runs that a rate counts,
/// because a run admitted within its period has not ended, or has ended within the period.
async fn first_sequence(context: &Context) -> Result<u64> {
    let needed = context.read_model.first_needed().await?;
    let Some(seconds) = context.admitter.flow().rate_seconds_max() else {
        return Ok(needed);
    };
    let time = SignedDuration::from_secs(seconds.into()) + CLOCKS_APART_MAX;
    let since = context.ports.clock.now() - time;
    let counted = context.read_model.first_ended_since(since).await?;
    Ok(counted.map_or(needed, |first| needed.min(first)))
}
