//! Between nodes and gateways: a run calls, asks whom it may call, and gives a call up.
//!
//! A node speaks for one run with the token of its current lease, and for no other.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use aod_api::RUN_ID_HEADER;
use aod_api::internal::{
    CALL_MEDIA_TYPE, CallLine, CallRequest, CancelCall, Target, Targets, WHITE_SPACE_SECONDS,
};
use aod_domain::capsule::Handoffs;
use aod_domain::digest::{Digest, Hasher};
use aod_domain::error_code::{ErrorCode, ErrorSource};
use aod_domain::file_name::Directory;
use aod_domain::handoff::{DEPTH_MAX, TREE_RUNS_MAX};
use aod_domain::id::RunId;
use aod_domain::placement::Requirements;
use aod_domain::rerun::{Callee, again, callee};
use aod_domain::run::{
    ATTEMPTS_LOST_MAX, Ended, Holder, LIMIT_SECONDS_MAX, Outcome, Parent, RETRIES_MAX, Rerun,
    Reuses, Run, TOTAL_SECONDS_DEFAULT, Work,
};
use aod_domain::spending::Budget;
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use jiff::SignedDuration;
use serde::de::DeserializeOwned;

use crate::catalogue::Registered;
use crate::context::{Context, Shared};
use crate::http::access::{bearer, is_same};
use crate::http::body;
use crate::http::error::{ApiError, ApiResult};
use crate::http::parameters::Parameters;
use crate::launch::{self, Checked, Origin, Started, Wanted};
use crate::reading;
use crate::rerun;
use crate::routes::runs::{TIMEOUT_SECONDS_MAX, run_id};
use crate::stopping;
use crate::views::node_of;
use crate::waiters::RunEnd;

/// How often a call whose callee failed by our fault may be made anew by later attempts: no run
/// has more attempts than it may lose, and may fail of each kind, and one.
const RENEWALS_MAX: u32 = ATTEMPTS_LOST_MAX + 2 * RETRIES_MAX + 1;

/// A run calls a capsule: answers with the callee's id at once and with its result at its end.
pub(super) async fn call(
    State(context): State<Shared>,
    Path(run): Path<String>,
    headers: HeaderMap,
    request: Request,
) -> ApiResult<Response> {
    let bytes = body::json(&headers, request.into_body()).await?;
    let request: CallRequest = read(&bytes)?;
    let (caller, tree_runs) = tokio::join!(
        caller(&context, &run, request.attempt, &headers),
        tree_runs(&context, run_id(&run)?)
    );
    let (caller, call_key) = (caller?, request.call_key);
    let recorded = rerun::recorded_callee(&context, &caller, call_key).await?;
    let callee = match admit(&context, &caller, &request.target, tree_runs?).await {
        Ok(target) => start_callee(&context, &caller, target, recorded, request).await?,
        // Whatever has changed since: a callee that is there is waited for, and ends first.
        Err(refusal) => find_callee(&context, caller.id, call_key)
            .await?
            .ok_or(refusal)?,
    };
    Ok(answer(context, callee))
}

/// How many runs the tree of `run` has, as this gateway was told: a moment behind.
async fn tree_runs(context: &Context, run: RunId) -> ApiResult<u64> {
    match context.waiters.tree_runs(run.root()) {
        Some(count) => Ok(count),
        None => context.read_model.count_tree(run, TREE_RUNS_MAX).await,
    }
}

/// Whether `caller` may call `target` now.
async fn admit(
    context: &Context,
    caller: &Run,
    target: &str,
    tree_runs: u64,
) -> ApiResult<Registered> {
    check_wanted(caller)?;
    let target = context
        .capsules
        .get(&caller.launched.event.tenant, target)
        .await?;
    check_allowed(context, caller, &target)?;
    check_tree(caller, tree_runs)?;
    Ok(target)
}

/// Who is cancelled calls nobody.
fn check_wanted(caller: &Run) -> ApiResult<()> {
    let Some(cancel) = &caller.cancel else {
        return Ok(());
    };
    let detail = format!("{} was cancelled by {}", caller.id, cancel.requested_by);
    Err(ApiError::new(ErrorCode::Cancelled, detail))
}

/// A cancel goes down the tree: a caller that it has not reached yet must not make anew what it has
/// ended. At most [`DEPTH_MAX`] reads, and only where an earlier attempt's callee failed.
async fn check_all_above_wanted(context: &Context, caller: RunId) -> ApiResult<()> {
    let mut next = Some(caller);
    while let Some(id) = next {
        let run = context.runs.load(id).await?;
        let run = run.ok_or_else(|| reading::unknown(id))?;
        check_wanted(&run)?;
        next = run.launched.event.parent.map(|parent| parent.run);
    }
    Ok(())
}

/// The callee that `call_key` has started, the latest if it was made anew.
async fn find_callee(
    context: &Context,
    caller: RunId,
    call_key: Digest,
) -> ApiResult<Option<Started>> {
    match latest_callee(context, caller, call_key).await? {
        Some(run) => launch::join(context, run.id).await,
        None => Ok(None),
    }
}

/// As [`find_callee`], without waiting for it.
pub(crate) async fn latest_callee(
    context: &Context,
    caller: RunId,
    call_key: Digest,
) -> ApiResult<Option<Run>> {
    let mut found = None;
    for renewal in 0..=RENEWALS_MAX {
        let id = caller.child(&renewed_key(call_key, renewal));
        match context.runs.load(id).await? {
            Some(run) => found = Some(run),
            None => break,
        }
    }
    Ok(found)
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> ApiResult<T> {
    serde_json::from_slice(bytes)
        .map_err(|error| ApiError::malformed(format!("the body is not as expected: {error}")))
}

/// The run that a node speaks for: it must hold the lease of `attempt`, and know its token. It may have lost
/// it a moment ago: what is told of a run is enough to say yes where nothing is lost by that, not to say no.
async fn caller(context: &Context, run: &str, attempt: u32, headers: &HeaderMap) -> ApiResult<Run> {
    let token = Digest::of(bearer(headers)?);
    match context.waiters.known(run_id(run)?) {
        Some(known) if holds(&known, attempt, &token) => Ok(known),
        _ => caller_by_log(context, run, attempt, headers).await,
    }
}

/// As [`caller`], by what the log has now.
async fn caller_by_log(
    context: &Context,
    run: &str,
    attempt: u32,
    headers: &HeaderMap,
) -> ApiResult<Run> {
    let token = Digest::of(bearer(headers)?);
    let run = context.runs.load(run_id(run)?).await?;
    run.filter(|run| holds(run, attempt, &token))
        .ok_or_else(|| {
            let text = "the token is not that of the run's current attempt";
            ApiError::new(ErrorCode::Unauthorized, text)
        })
}

fn holds(run: &Run, attempt: u32, token: &Digest) -> bool {
    let lease = run.lease().filter(|lease| lease.event.attempt == attempt);
    match lease.map(|lease| &lease.event.holder) {
        Some(Holder::Node { token_sha256, .. }) => is_same(token_sha256, token),
        _ => false,
    }
}

/// By the list that was registered with the caller's own image.
fn check_allowed(context: &Context, caller: &Run, target: &Registered) -> ApiResult<()> {
    let handoffs = handoffs(caller);
    let tenant = &caller.launched.event.tenant;
    if context.capsules.allows(tenant, handoffs, &target.event) {
        return Ok(());
    }
    let allowed = match handoffs {
        Handoffs::Listed(grants) if grants.is_empty() => {
            "it may call nobody, since its tools.yaml lists no capsules".into()
        }
        Handoffs::Listed(grants) => {
            let names: Vec<_> = grants.iter().map(|grant| grant.target.as_str()).collect();
            format!("its tools.yaml lists {}", names.join(", "))
        }
        Handoffs::Open => String::new(),
    };
    let detail = format!(
        "{} may not call {}: {allowed}",
        caller.launched.event.work.name(),
        target.event.name
    );
    Err(ApiError::new(ErrorCode::TargetNotAllowed, detail))
}

/// A build calls nobody.
fn handoffs(caller: &Run) -> &Handoffs {
    const NOBODY: &Handoffs = &Handoffs::Listed(Vec::new());
    match &caller.launched.event.work {
        Work::Capsule { handoffs, .. } => handoffs,
        Work::Build { .. } => NOBODY,
    }
}

/// The bounds of the whole tree.
fn check_tree(caller: &Run, tree_runs: u64) -> ApiResult<()> {
    if caller.launched.event.lineage.depth() >= DEPTH_MAX {
        let detail =
            format!("calls may be nested {DEPTH_MAX} deep, and the caller is as deep as that");
        return Err(ApiError::new(ErrorCode::CallTooDeep, detail));
    }
    if tree_runs >= TREE_RUNS_MAX {
        let detail = format!(
            "the tree of {} has {TREE_RUNS_MAX} runs, and may not have more",
            caller.id.root()
        );
        return Err(ApiError::new(ErrorCode::TooManyCalls, detail));
    }
    Ok(())
}

/// As [`repeated`], but that a result that was collected is made again.
async fn repeated_whole(
    context: &Context,
    caller: &Run,
    recorded: Option<&Run>,
    signature: Digest,
) -> ApiResult<(Option<Rerun>, Option<Reuses>)> {
    let (rerun, reuses) = repeated(caller, recorded, signature);
    if let (Some(_), Some(recorded)) = (reuses, recorded)
        && !rerun::is_whole(context, recorded).await?
    {
        let repeats = caller.launched.event.rerun.as_deref();
        return Ok((repeats.map(|repeats| again(repeats, recorded)), None));
    }
    Ok((rerun, reuses))
}

/// Checks the call and stores the launch of the callee, or joins the one that is there.
async fn start_callee(
    context: &Context,
    caller: &Run,
    target: Registered,
    recorded: Option<Run>,
    request: CallRequest,
) -> ApiResult<Started> {
    check_bounds(&request)?;
    let target = rerun::as_recorded(context, caller, recorded.as_ref(), target).await?;
    let wanted = Wanted {
        target: request.target,
        arguments: request.arguments,
        files: request.files,
        label: request.label,
        requirements: Requirements::default(),
        timeout_seconds: request.timeout_seconds,
        retries: request.retries,
        limits: request.limits,
        // Its caller's, below.
        budget: Budget::default(),
    };
    let checked = launch::check(context, target, &wanted, Directory::Outgoing, "/args").await?;
    let lineage = caller
        .launched
        .event
        .lineage
        .descend(checked.signature)
        .map_err(|code| {
            let detail = "the same capsule is called with the same arguments and files further up";
            ApiError::new(code, detail)
        })?;
    let recorded = match recorded {
        None => rerun::recorded_elsewhere(context, caller, checked.signature).await?,
        by_key => by_key,
    };
    let (rerun, reuses) =
        repeated_whole(context, caller, recorded.as_ref(), checked.signature).await?;
    let latest =
        context.ports.clock.now() + SignedDuration::from_secs(TOTAL_SECONDS_DEFAULT.cast_signed());
    let caller_admission = caller.launched.event.admission.as_deref();
    let origin = |call_key| Origin {
        tenant: caller.launched.event.tenant.clone(),
        parent: Some(Parent {
            run: caller.id,
            attempt: request.attempt,
            call_key,
            event: caller.last.hash,
        }),
        rerun: rerun.clone(),
        reuses,
        lineage: lineage.clone(),
        budget: caller.launched.event.budget,
        deadline: caller.deadline().min(latest),
        requested_by: caller.id.to_string(),
        trace: caller.launched.event.trace,
        labels: std::collections::BTreeMap::new(),
        priority: caller_admission.map_or(0, |admission| admission.priority),
        shared: caller_admission.map_or_else(Vec::new, |had| had.shared_below(caller.id)),
        near: caller
            .lease()
            .and_then(|lease| node_of(&lease.event.holder)),
    };
    let started = launch_or_join(
        context,
        caller.id,
        request.attempt,
        request.call_key,
        &checked,
        origin,
    )
    .await?;
    rerun::take_over(context, started).await
}

/// What a call with `signature` repeats in a rerun, or whose result it takes over; nothing elsewhere.
fn repeated(
    caller: &Run,
    recorded: Option<&Run>,
    signature: Digest,
) -> (Option<Rerun>, Option<Reuses>) {
    let Some(rerun) = &caller.launched.event.rerun else {
        return (None, None);
    };
    match callee(rerun, recorded, signature) {
        Callee::Started(rerun) => (Some(rerun), None),
        Callee::Reused(reuses) => (None, Some(reuses)),
    }
}

fn check_bounds(request: &CallRequest) -> ApiResult<()> {
    if request
        .timeout_seconds
        .is_some_and(|seconds| !(1..=TIMEOUT_SECONDS_MAX).contains(&seconds))
    {
        let detail = format!("`timeout_seconds` must be from 1 to {TIMEOUT_SECONDS_MAX}");
        return Err(ApiError::malformed(detail));
    }
    if request.retries.capsule > RETRIES_MAX || request.retries.time > RETRIES_MAX {
        let detail = format!("`retries` must be at most {RETRIES_MAX} of each kind");
        return Err(ApiError::malformed(detail));
    }
    if !request.limits.are_possible() {
        let detail = format!("`limits` must be from 1 to {LIMIT_SECONDS_MAX} seconds each");
        return Err(ApiError::malformed(detail));
    }
    Ok(())
}

/// What an earlier attempt of the caller had called is joined, unless it failed by our fault: then
/// the call is made anew under a key of its own.
async fn launch_or_join(
    context: &Context,
    caller: RunId,
    attempt: u32,
    call_key: Digest,
    checked: &Checked,
    origin: impl Fn(Digest) -> Origin,
) -> ApiResult<Started> {
    for renewal in 0..=RENEWALS_MAX {
        let key = renewed_key(call_key, renewal);
        let started = launch::launch(context, caller.child(&key), checked, origin(key)).await?;
        let callee = &started.run;
        let is_of_this_attempt = callee
            .launched
            .event
            .parent
            .as_ref()
            .is_some_and(|parent| parent.attempt >= attempt);
        if is_of_this_attempt || callee.ended().is_none_or(|ended| is_final(&ended.event)) {
            return Ok(started);
        }
        check_all_above_wanted(context, caller).await?;
    }
    Err(ApiError::new(
        ErrorCode::TooManyCalls,
        "the call was made anew too often",
    ))
}

/// What a later attempt may take for its own: successes, and failures that are the capsule's.
fn is_final(ended: &Ended) -> bool {
    let is_of_capsule = ended
        .error
        .as_ref()
        .is_some_and(|error| error.source == ErrorSource::Capsule);
    match ended.outcome {
        Outcome::Succeeded => true,
        Outcome::Failed => is_of_capsule,
        Outcome::TimedOut | Outcome::Cancelled => false,
    }
}

fn renewed_key(call_key: Digest, renewal: u32) -> Digest {
    if renewal == 0 {
        return call_key;
    }
    let mut hasher = Hasher::new();
    hasher.field(b"renewed");
    hasher.field(call_key.as_bytes());
    hasher.field(&renewal.to_be_bytes());
    hasher.finish()
}

/// Where an answer is.
enum Progress {
    Accepted(Box<Started>),
    Waiting(Pin<Box<dyn Future<Output = Option<RunEnd>> + Send>>),
    Over,
}

/// The lines of the answer: one at once, white space meanwhile, one at the end. If the gateway
/// ends before, the last line is missing, and the node asks another gateway.
fn answer(context: Shared, callee: Started) -> Response {
    let id = callee.run.id;
    let lines = stream::unfold(Progress::Accepted(Box::new(callee)), move |progress| {
        let context = Arc::clone(&context);
        async move {
            match progress {
                Progress::Accepted(callee) => {
                    let wait = async move { callee.end(context.runs.log().as_ref(), None).await };
                    Some((
                        line(&CallLine::Accepted { run_id: id }),
                        Progress::Waiting(Box::pin(wait)),
                    ))
                }
                Progress::Waiting(mut wait) => tokio::select! {
                    biased;
                    end = &mut wait => {
                        let end = end?;
                        let ended = CallLine::Ended { ended: Box::new(end.ended.event.clone()), hash: end.ended.hash };
                        Some((line(&ended), Progress::Over))
                    }
                    () = tokio::time::sleep(Duration::from_secs(WHITE_SPACE_SECONDS)) => {
                        Some((Bytes::from_static(b"\n"), Progress::Waiting(wait)))
                    }
                },
                Progress::Over => None,
            }
        }
    });
    let mut response = Body::from_stream(lines.map(Ok::<_, Infallible>)).into_response();
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static(CALL_MEDIA_TYPE),
    );
    headers.insert(
        RUN_ID_HEADER,
        HeaderValue::from_str(&id.to_string()).expect("an id is a plain word"),
    );
    response
}

fn line(line: &CallLine) -> Bytes {
    let mut text = serde_json::to_vec(line).expect("a line is plain data");
    text.push(b'\n');
    text.into()
}

/// Whom a run may call, with their schemas.
pub(super) async fn targets(
    State(context): State<Shared>,
    Path(run): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> ApiResult<Json<Targets>> {
    let mut parameters = Parameters::of(&uri)?;
    let attempt = parameters
        .value("attempt", "the number of the attempt")
        .unwrap_or_default();
    parameters.finish()?;
    let caller = caller(&context, &run, attempt, &headers).await?;
    let handoffs = handoffs(&caller);
    let mut targets = Vec::new();
    let tenant = &caller.launched.event.tenant;
    for registered in context.capsules.all(tenant) {
        let registration = &registered.event;
        if !context.capsules.allows(tenant, handoffs, registration) {
            continue;
        }
        let schema = context.capsules.schema(registration).await?;
        targets.push(Target {
            name: registration.name.clone(),
            title: registration.title.clone(),
            aliases: registration.aliases.clone(),
            description: registration.description.clone(),
            schema: schema.document.clone(),
            content: registration.content,
            image: registration.image.config_digest.clone(),
        });
    }
    Ok(Json(Targets { targets }))
}

/// A run gives a call up: its callee ends, with everything below it.
pub(super) async fn cancel(
    State(context): State<Shared>,
    Path((run, child)): Path<(String, String)>,
    headers: HeaderMap,
    request: Request,
) -> ApiResult<StatusCode> {
    let bytes = body::json(&headers, request.into_body()).await?;
    let request: CancelCall = read(&bytes)?;
    // An attempt that was superseded must not end what the next one waits for.
    let caller = caller_by_log(&context, &run, request.attempt, &headers).await?;
    let child = run_id(&child)?;
    let callee = context
        .runs
        .load(child)
        .await?
        .ok_or_else(|| reading::unknown(child))?;
    if callee
        .launched
        .event
        .parent
        .as_ref()
        .is_none_or(|parent| parent.run != caller.id)
    {
        return Err(reading::unknown(child));
    }
    if callee.ended().is_none() {
        match stopping::cancel(&context, child, &caller.id.to_string(), &request.reason).await {
            // It ended by itself just before.
            Err(error) if error.problem().code == ErrorCode::RunEnded.as_str() => (),
            other => drop(other?),
        }
    }
    Ok(StatusCode::NO_CONTENT)
}
