//! `/v1/tokens`: who may do what.

use aod_api::SEQUENCE_HEADER;
use aod_api::problem::Problem;
use aod_api::tokens::{CreateToken, CreatedToken, TokenList, TokenView};
use aod_domain::access::{Command, Role, Token, TokenName, secret_text};
use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_domain::id::TokenId;
use aod_domain::tenant::Tenant;
use axum::Json;
use axum::extract::{Extension, Path, Request, State};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::context::{Context, Shared};
use crate::http::access::Principal;
use crate::http::body;
use crate::http::error::{ApiError, ApiResult};
use crate::http::fields::Fields;
use crate::tokens;

/// Longest time that a token can be given, in days: ten years. Without one it counts for ever.
const EXPIRES_DAYS_MAX: u32 = 3_650;

/// Lists the tokens, without their secrets: a tenant's token sees those of its tenant.
#[utoipa::path(
    get, path = "/v1/tokens", tag = "tokens",
    responses(
        (status = 200, body = TokenList),
        (status = "default", body = Problem, content_type = "application/problem+json"),
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

/// Makes a token. The answer has it; afterwards nobody can tell what it was: only its hash is stored.
#[utoipa::path(
    post, path = "/v1/tokens", tag = "tokens",
    request_body = CreateToken,
    responses(
        (status = 201, body = CreatedToken),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn create(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    request: Request,
) -> ApiResult<Response> {
    let headers = request.headers().clone();
    context.log_room.admit(context.runs.log().as_ref()).await?;
    let bytes = body::json(&headers, request.into_body()).await?;
    let secret = secret_text(&context.ports.clock.fresh_secret());
    let token = read(&context, &bytes, &principal, Digest::of(&secret))?;
    let command = Command::Issue(token.clone());
    let recorded = tokens::handle(&context, &command, &principal).await?;
    let sequence = HeaderValue::from(recorded.sequence);
    let view = TokenView::from(&recorded.map(|_| token));
    let created = CreatedToken {
        view,
        token: secret,
    };
    let headers = [(SEQUENCE_HEADER, sequence)];
    Ok((StatusCode::CREATED, headers, Json(created)).into_response())
}

/// Revokes a token: from now on no gateway knows it. Events go on to name it.
#[utoipa::path(
    delete, path = "/v1/tokens/{token}", tag = "tokens",
    params(("token" = String, Path, description = "Its id, as the list has it")),
    responses(
        (status = 204, description = "Stored"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn revoke(
    State(context): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(token): Path<String>,
) -> ApiResult<Response> {
    let id: TokenId = token
        .parse()
        .map_err(|error| ApiError::new(ErrorCode::UnknownToken, format!("{error}")))?;
    let recorded = tokens::handle(&context, &Command::Revoke(id), &principal).await?;
    let sequence = HeaderValue::from(recorded.sequence);
    Ok((StatusCode::NO_CONTENT, [(SEQUENCE_HEADER, sequence)]).into_response())
}

/// Reads the body strictly.
fn read(
    context: &Context,
    bytes: &[u8],
    principal: &Principal,
    sha256: Digest,
) -> ApiResult<Token> {
    let mut fields = Fields::parse(bytes)?;
    let name = read_word::<TokenName>(&mut fields, "name");
    let role = read_word::<Role>(&mut fields, "role");
    let tenant = read_tenant(&mut fields, principal);
    let days = fields.number("expires_days", 1, EXPIRES_DAYS_MAX);
    fields.finish()?;
    let (Some(name), Some(role)) = (name, role) else {
        // What is missing was told above.
        return Err(ApiError::malformed("the name or the role is missing"));
    };
    let clock = &context.ports.clock;
    Ok(Token {
        id: TokenId::new(clock.fresh_uuid()),
        name,
        tenant,
        role,
        sha256,
        expires_at: days.map(|days| after(clock.now(), days)),
        requested_by: principal.name.clone(),
    })
}

fn after(now: Timestamp, days: u32) -> Timestamp {
    now + SignedDuration::from_hours(24 * i64::from(days))
}

fn read_word<T>(fields: &mut Fields, key: &'static str) -> Option<T>
where
    T: std::str::FromStr<Err: std::fmt::Display>,
{
    match fields.required_text(key).parse() {
        Ok(word) => Some(word),
        Err(error) => {
            fields.error(format!("/{key}"), error.to_string());
            None
        }
    }
}

/// Whose things it opens; none for those of all tenants, which must be said.
fn read_tenant(fields: &mut Fields, principal: &Principal) -> Option<Tenant> {
    let given = fields.text("tenant");
    let is_for_all = match fields.take("all_tenants") {
        None => false,
        Some(Value::Bool(is_for_all)) => is_for_all,
        Some(other) => {
            let message = format!("{other} given; expected true or false");
            fields.error("/all_tenants", message);
            false
        }
    };
    match given.map(|text| text.parse()) {
        Some(Ok(_)) if is_for_all => {
            fields.error("/tenant", "expected none with `all_tenants`");
            None
        }
        Some(Ok(tenant)) => Some(tenant),
        Some(Err(error)) => {
            fields.error("/tenant", format!("{error}"));
            None
        }
        None if is_for_all => None,
        None if principal.scope.tenant().is_none() => {
            fields.error("/tenant", "missing; expected a tenant, or `all_tenants`");
            None
        }
        None => Some(principal.tenant()),
    }
}
