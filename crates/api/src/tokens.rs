//! Bearer tokens as people make and see them.

use aod_domain::access::{Role, Token};
use aod_domain::event::Recorded;
use aod_domain::id::TokenId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The body of `POST /v1/tokens`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateToken {
    /// 1 to 63 of a-z, 0-9 and -; events name it.
    pub name: String,
    /// What it permits: `read`, `run`, `operate` or `admin`.
    pub role: String,
    /// Whose things it opens; the tenant of whoever asks unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Whether it opens those of all tenants, and what is of the whole cluster.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all_tenants: bool,
    /// Days until it counts no more, from 1 to 3650; for ever unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_days: Option<u32>,
}

/// A token without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenView {
    #[schema(value_type = String)]
    pub id: TokenId,
    pub name: String,
    /// None if it opens what all tenants have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    #[schema(value_type = String)]
    pub role: Role,
    #[schema(value_type = String, format = DateTime)]
    pub issued_at: Timestamp,
    pub issued_by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
}

impl From<&Recorded<Token>> for TokenView {
    fn from(recorded: &Recorded<Token>) -> Self {
        let token = &recorded.event;
        Self {
            id: token.id,
            name: token.name.to_string(),
            tenant: token.tenant.as_ref().map(ToString::to_string),
            role: token.role,
            issued_at: recorded.time,
            issued_by: token.requested_by.clone(),
            expires_at: token.expires_at,
        }
    }
}

/// A token that was made just now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedToken {
    #[serde(flatten)]
    pub view: TokenView,
    /// The token itself: told here and never again.
    pub token: String,
}

/// Tokens that were issued and not revoked, the earliest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenList {
    pub items: Vec<TokenView>,
}
