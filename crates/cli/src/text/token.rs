//! Access tokens, without their secrets.

use aod_api::tokens::TokenView;
use jiff::Timestamp;

use super::table::{finish, nothing, plain};

/// The tokens as a table.
pub(crate) fn table(tokens: &[TokenView], now: Timestamp) -> String {
    if tokens.is_empty() {
        return nothing("tokens");
    }
    let mut table = plain(&["TOKEN", "NAME", "TENANT", "ROLE", "ISSUED BY", "EXPIRES"]);
    for token in tokens {
        table.add_row([
            token.id.to_string(),
            token.name.clone(),
            tenant(token).to_owned(),
            token.role.to_string(),
            token.issued_by.clone(),
            expiry(token, now),
        ]);
    }
    finish(&mut table)
}

/// A new token as a sentence.
pub(crate) fn sentence(token: &TokenView) -> String {
    let until = match token.expires_at {
        Some(at) => format!(", until {}", at.strftime("%Y-%m-%d %H:%M:%SZ")),
        None => String::new(),
    };
    format!(
        "{} ({}): for {}, role {}{until}; copy the token now, `aod` cannot show it again",
        token.id,
        token.name,
        tenant(token),
        token.role
    )
}

fn tenant(token: &TokenView) -> &str {
    token.tenant.as_deref().unwrap_or("all tenants")
}

fn expiry(token: &TokenView, now: Timestamp) -> String {
    match token.expires_at {
        None => "never".to_owned(),
        Some(at) if at <= now => "expired".to_owned(),
        Some(at) => at.strftime("%Y-%m-%d").to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tokens_are_listed_with_tenant_role_and_expiry() {
        let id = |digit: &str| format!("token_000000000000000000000000{digit}0");
        let views = json!([
            {"id": id("1"), "name": "ci", "tenant": "acme", "role": "run", "issued_at": "2026-01-02T03:04:05Z",
             "issued_by": "operator", "expires_at": "2026-02-02T03:04:05Z"},
            {"id": id("2"), "name": "metrics", "role": "read", "issued_at": "2026-01-02T03:04:05Z",
             "issued_by": "operator"},
            {"id": id("3"), "name": "old", "tenant": "acme", "role": "admin", "issued_at": "2026-01-02T03:04:05Z",
             "issued_by": "acme/ada", "expires_at": "2026-01-03T03:04:05Z"},
        ]);
        let views: Vec<TokenView> = serde_json::from_value(views).expect("tokens");
        let now = "2026-01-10T00:00:00Z".parse().expect("a time");
        let shown = table(&views, now);
        let lines: Vec<Vec<&str>> = shown
            .lines()
            .skip(1)
            .map(|line| {
                line.split("  ")
                    .map(str::trim)
                    .filter(|cell| !cell.is_empty())
                    .collect()
            })
            .collect();
        assert_eq!(
            lines[0][1..],
            ["ci", "acme", "run", "operator", "2026-02-02"]
        );
        assert_eq!(
            lines[1][1..],
            ["metrics", "all tenants", "read", "operator", "never"]
        );
        assert_eq!(
            lines[2][1..],
            ["old", "acme", "admin", "acme/ada", "expired"]
        );
        assert_eq!(
            sentence(&views[0]),
            format!(
                "{} (ci): for acme, role run, until 2026-02-02 03:04:05Z; copy the token now, `aod` cannot show it again",
                id("1")
            )
        );
    }
}
