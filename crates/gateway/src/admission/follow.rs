//! The runs, which a gateway takes in while they are of interest to admission.

use std::time::Duration;

use aod_domain::error_code::ErrorCode;
use aod_domain::subject;
use aod_ports::event_log::{From, Told};
use futures::StreamExt as _;
use jiff::SignedDuration;

use super::{RETRY_PAUSE, pause};
use crate::context::Context;
use crate::http::error::{ApiError, ApiResult, chain};

/// How often runs are looked for that wait although there are no rules.
const LEFT_OVER_LOOK: Duration = Duration::from_secs(5);

/// How far the clocks of those who end runs may be behind this one.
const CLOCKS_APART_MAX: SignedDuration = SignedDuration::from_secs(60);

/// Follows the runs while there are rules, or somebody waits or is in a room still.
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
                "runs are not admitted here now"
            );
            pause(context, RETRY_PAUSE).await;
        }
        context.admitter.is_following.send_replace(false);
    }
}

/// Waits until there are rules, or somebody waits by one that is gone: a gateway that had not heard of that may have
/// stored the request, or all gateways may have been started anew since.
async fn is_needed(context: &Context) {
    let mut rules = context.admitter.rules_applied.subscribe();
    loop {
        let has_rules = rules.wait_for(|_| context.admitter.flow().has_rules());
        if tokio::time::timeout(LEFT_OVER_LOOK, has_rules)
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
                "who waits for admission cannot be looked for"
            ),
        }
    }
}

async fn follow_while_needed(context: &Context) -> ApiResult<()> {
    let (admitter, log) = (&context.admitter, context.runs.log());
    let from = first_sequence(context).await?;
    let last = log.read_last(subject::ADMISSIONS).await?;
    let last = last.map(|stored| stored.decode());
    let last = last.transpose().map_err(|error| {
        ApiError::new(ErrorCode::Internal, "the last admission is damaged").because(error)
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
    let mut told = log
        .follow(subject::ALL, From::After(from.saturating_sub(1)))
        .await?;
    while let Some(Some(told)) = context.shutdown.run_until_cancelled(told.next()).await {
        let Told::Event(stored) = told else { continue };
        admitter.take(&stored);
        let is_caught_up = begin(stored.sequence >= caught_up_at);
        let flow = admitter.flow();
        if is_caught_up && !flow.has_rules() && flow.is_idle() {
            return Ok(());
        }
    }
    Ok(())
}

/// From where on runs are followed: all that has not ended begins there or later, and so does all that a rate
/// counts, since what was admitted within its time has not ended or did so within it.
async fn first_sequence(context: &Context) -> ApiResult<u64> {
    let needed = context.read_model.first_needed().await?;
    let Some(seconds) = context.admitter.flow().rate_seconds_max() else {
        return Ok(needed);
    };
    let time = SignedDuration::from_secs(seconds.into()) + CLOCKS_APART_MAX;
    let since = context.ports.clock.now() - time;
    let counted = context.read_model.first_ended_since(since).await?;
    Ok(counted.map_or(needed, |first| needed.min(first)))
}
