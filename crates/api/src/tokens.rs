//! Types of `/v1/tokens`.

use aod_domain::access::{EXPIRES_DAYS_MAX, Role, Scope, Token, TokenName};
use aod_domain::event::Recorded;
use aod_domain::id::TokenId;
use aod_domain::tenant::Tenant;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::strict::{Fields, Malformed, Result};

/// The body of `POST /v1/tokens`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateToken {
    /// Name of the token in events: 1 to 63 characters of a-z, 0-9 and -.
    pub name: String,
    /// Role: `read`, `run`, `operate` or `admin`.
    pub role: String,
    /// Tenant for which the token is valid; default: the tenant of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Whether the token is valid for all tenants and for the whole cluster.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all_tenants: bool,
    /// Days until the token expires, from 1 to 3650; default: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_days: Option<u32>,
}

/// A valid request for a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewToken {
    pub name: TokenName,
    pub role: Role,
    /// None for all tenants.
    pub tenant: Option<Tenant>,
    pub expires_days: Option<u32>,
}

impl CreateToken {
    /// Reads the body of a request by a token of `scope`.
    pub fn read(scope: &Scope, bytes: &[u8]) -> Result<NewToken> {
        let mut fields = Fields::parse(bytes)?;
        let name = fields.required_word("name");
        let role = fields.required_word("role");
        let tenant = read_tenant(&mut fields, scope);
        let expires_days = fields.number("expires_days", 1..=EXPIRES_DAYS_MAX);
        fields.finish()?;
        let (Some(name), Some(role)) = (name, role) else {
            // `fields.finish` has reported missing fields.
            return Err(Malformed::new("missing name or role"));
        };
        Ok(NewToken {
            name,
            role,
            tenant,
            expires_days,
        })
    }
}

/// The tenant of the token; none for all tenants, which the request must state.
fn read_tenant(fields: &mut Fields, scope: &Scope) -> Option<Tenant> {
    let text = fields.text("tenant");
    let tenant = text
        .as_ref()
        .and_then(|text| fields.parsed("/tenant", text));
    let is_for_all = fields.flag("all_tenants");
    if is_for_all {
        if tenant.is_some() {
            let message = "expected either `tenant` or `all_tenants`, not both";
            fields.error("/tenant", message);
        }
        return None;
    }
    let own = scope.tenant().cloned();
    if tenant.is_none() && own.is_none() && text.is_none() {
        fields.error("/tenant", "missing; expected a tenant, or `all_tenants`");
    }
    tenant.or(own)
}

/// A token without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenView {
    #[schema(value_type = String)]
    pub id: TokenId,
    pub name: String,
    /// Tenant for which the token is valid; missing if it is valid for all tenants.
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

/// A new token with its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedToken {
    #[serde(flatten)]
    pub view: TokenView,
    /// The secret; only this answer contains it.
    pub token: String,
}

/// Tokens that are not revoked, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenList {
    pub items: Vec<TokenView>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(scope: &Scope, body: &Value) -> Result<NewToken> {
        CreateToken::read(scope, body.to_string().as_bytes())
    }

    fn acme() -> Tenant {
        "acme".parse().expect("a name")
    }

    #[test]
    fn token_belongs_to_the_named_tenant_or_that_of_the_request() {
        let tenant = |scope: &Scope, body: Value| read(scope, &body).expect("a token").tenant;
        let own = Scope::Tenant(acme());
        assert_eq!(
            tenant(&own, json!({"name": "ci", "role": "run"})),
            Some(acme())
        );
        let named = json!({"name": "ci", "role": "run", "tenant": "acme"});
        assert_eq!(tenant(&Scope::Cluster, named), Some(acme()));
        let all = json!({"name": "ci", "role": "run", "all_tenants": true});
        assert_eq!(tenant(&Scope::Cluster, all), None);
    }

    #[test]
    fn token_of_the_cluster_states_its_tenant_or_all_once() {
        for body in [
            json!({"name": "ci", "role": "run"}),
            json!({"name": "ci", "role": "run", "tenant": null}),
            json!({"name": "ci", "role": "run", "tenant": "acme", "all_tenants": true}),
        ] {
            let errors = read(&Scope::Cluster, &body).expect_err("problems").errors;
            assert_eq!(errors.len(), 1, "{errors:?}");
            assert_eq!(errors[0].pointer, "/tenant");
        }
    }

    #[test]
    fn all_problems_of_a_token_are_reported() {
        let body = json!({
            "name": "C I",
            "role": "king",
            "tenant": "A b",
            "expires_days": EXPIRES_DAYS_MAX + 1,
            "days": 3,
        });
        let errors = read(&Scope::Cluster, &body).expect_err("problems").errors;
        let pointers: Vec<&str> = errors.iter().map(|error| error.pointer.as_str()).collect();
        let expected = ["/name", "/role", "/tenant", "/expires_days", "/days"];
        assert_eq!(pointers, expected, "{errors:?}");
        let errors = read(&Scope::Cluster, &json!({"tenant": "acme"}));
        assert_eq!(errors.expect_err("problems").errors.len(), 2);
    }
}
