//! `/v1/tokens`: creates, lists and revokes access tokens.

use aod_api::problem::Problem;
use aod_api::tokens::{CreateToken, CreatedToken, NewToken, TokenList, TokenView};
use aod_domain::access::{Command, Token, secret_text};
use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_domain::id::TokenId;
use axum::Json;
use axum::extract::{Extension, Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use jiff::{SignedDuration, Timestamp};

use crate::context::{Context, Shared};
use crate::error::{Error, Result};
use crate::http::access::Principal;
use crate::http::body;
use crate::http::sequence;
use crate::tokens;

/// Lists tokens without their secrets; a token of a tenant sees only tokens of its tenant.
#[utoipa::path(
    get, path = "/v1/tokens", tag = "tokens", operation_id = "list_tokens",
    responses(
        (status = 200, body = TokenList, description = "All tokens that the caller may see"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn list(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
) -> Json<TokenList> {
    let tokens = context.tokens.tokens();
    let items = tokens.seen_by(&principal).map(TokenView::from).collect();
    Json(TokenList { items })
}

/// Creates a token. Only this answer contains the secret: AOD stores its hash.
#[utoipa::path(
    post, path = "/v1/tokens", tag = "tokens", operation_id = "create_token",
    request_body = CreateToken,
    responses(
        (status = 201, body = CreatedToken, description = "The new token with its secret"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn create(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    request: Request,
) -> Result<Response> {
    let headers = request.headers().clone();
    context.log_room.admit(context.runs.log().as_ref()).await?;
    let bytes = body::json(&headers, request.into_body()).await?;
    let secret = secret_text(&context.ports.clock.fresh_secret());
    let token = read(&context, &bytes, &principal, Digest::of(&secret))?;
    let (id, command) = (token.id, Command::Issue(token));
    let (tokens, sequence) = tokens::handle(&context, &command, &principal).await?;
    let header = sequence::header(sequence);
    let issued = tokens.get(id).expect("it was just issued");
    let view = TokenView::from(issued);
    let created = CreatedToken {
        view,
        token: secret,
    };
    Ok((StatusCode::CREATED, [header], Json(created)).into_response())
}

/// Revokes a token: from now on, all gateways reject it. Events keep its name.
#[utoipa::path(
    delete, path = "/v1/tokens/{token}", tag = "tokens", operation_id = "revoke_token",
    params(("token" = String, Path, description = "Id of the token, from the list")),
    responses(
        (status = 204, description = "Revoked"),
        (status = "default", body = Problem, content_type = "application/problem+json", description = super::PROBLEM),
    ),
)]
pub(super) async fn revoke(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(token): Path<String>,
) -> Result<Response> {
    let id: TokenId = token
        .parse()
        .map_err(|error| Error::new(ErrorCode::UnknownToken, format!("{error}")))?;
    let (_, sequence) = tokens::handle(&context, &Command::Revoke(id), &principal).await?;
    let header = sequence::header(sequence);
    Ok((StatusCode::NO_CONTENT, [header]).into_response())
}

/// Reads the body strictly.
fn read(context: &Context, bytes: &[u8], principal: &Principal, sha256: Digest) -> Result<Token> {
    let NewToken {
        name,
        role,
        tenant,
        expires_days,
    } = CreateToken::read(&principal.scope, bytes)?;
    let clock = &context.ports.clock;
    Ok(Token {
        id: TokenId::new(clock.fresh_uuid()),
        name,
        tenant,
        role,
        sha256,
        expires_at: expires_days.map(|days| after(clock.now(), days)),
        requested_by: principal.name.clone(),
    })
}

fn after(now: Timestamp, days: u32) -> Timestamp {
    now + SignedDuration::from_hours(24 * i64::from(days))
}
