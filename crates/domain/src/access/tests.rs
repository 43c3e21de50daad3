use jiff::SignedDuration;
use uuid::Uuid;

use super::*;
use crate::digest::Digest;
use crate::event::{CloudEvent, Header, Recorded};
use crate::id::{EventId, TokenId};
use crate::run::fixtures::NOW;

fn of_tenant(tenant: &str, role: Role) -> Principal {
    Principal {
        name: format!("{tenant}/ada"),
        role,
        scope: Scope::Tenant(tenant.parse().expect("a name")),
    }
}

fn admin() -> Principal {
    Principal::cluster_admin("operator")
}

fn token(number: u128, tenant: Option<&str>, name: &str) -> Token {
    Token {
        id: TokenId::new(Uuid::from_u128(number)),
        name: name.parse().expect("a name"),
        tenant: tenant.map(|tenant| tenant.parse().expect("a name")),
        role: Role::Run,
        sha256: Digest::of(number.to_be_bytes()),
        expires_at: None,
        requested_by: "operator".into(),
    }
}

/// All that is decided on is stored.
#[derive(Default)]
struct Log(Tokens);

impl Log {
    fn handle(&mut self, command: &Command, by: &Principal) -> Result<(), Rejection> {
        let event = decide(&self.0, command, by, NOW)?;
        let sequence = self.0.sequence() + 1;
        let header = Header {
            id: EventId::new(Uuid::from_u128(sequence.into())),
            source: "/test".into(),
            time: NOW,
        };
        let event = CloudEvent::new(header, "token".into(), None, event);
        let bytes = event.encode().expect("a small event");
        self.0
            .apply(Recorded::decode(sequence, &bytes).expect("what was just written"));
        Ok(())
    }

    fn issue(&mut self, token: Token, by: &Principal) -> Result<(), Rejection> {
        self.handle(&Command::Issue(token), by)
    }

    /// As what a token with this number counts.
    fn found(&self, number: u128) -> Option<String> {
        let sha256 = Digest::of(number.to_be_bytes());
        let token = self.0.find(&sha256, NOW)?;
        Some(token.principal().name)
    }
}

#[test]
fn each_role_may_do_what_those_before_it_may() {
    for (index, needed) in Role::ALL.into_iter().enumerate() {
        for (place, found) in Role::ALL.into_iter().enumerate() {
            let need = Need {
                role: needed,
                reach: Reach::Tenant,
            };
            let checked = of_tenant("acme", found).check(need);
            let refusal = Refusal::Role { needed, found };
            let expected = if place >= index { Ok(()) } else { Err(refusal) };
            assert_eq!(checked, expected);
        }
        assert_eq!(needed.as_str().parse(), Ok(needed));
    }
    assert!("root".parse::<Role>().is_err());
}

#[test]
fn what_is_of_the_cluster_no_tenant_touches() {
    let need = needed("POST", "/v1/nodes/{node}/drain").expect("it is in the table");
    assert_eq!(admin().check(need), Ok(()));
    let acme = of_tenant("acme", Role::Admin);
    assert_eq!(acme.check(need), Err(Refusal::Cluster(acme.tenant())));
}

#[test]
fn a_route_that_is_not_in_the_table_is_for_nobody() {
    assert_eq!(needed("GET", "/v1/secrets"), None);
    assert_eq!(needed("PATCH", "/v1/runs"), None);
    assert_eq!(needed("HEAD", "/v1/runs"), needed("GET", "/v1/runs"));
}

#[test]
fn whoever_is_of_no_tenant_can_act_for_one() {
    let acme: Tenant = "acme".parse().expect("a name");
    assert!(admin().sees(&acme));
    assert!(admin().tenant().is_default());
    let acting = admin().acting_for(acme.clone()).expect("it is for all");
    assert_eq!(acting.tenant(), acme);
    assert!(!acting.sees(&Tenant::default()));
    let refused = acting.acting_for(Tenant::default());
    assert_eq!(refused, Err(Refusal::OtherTenant { own: acme }));
}

#[test]
fn a_token_counts_until_it_is_revoked() {
    let mut log = Log::default();
    log.issue(token(1, Some("acme"), "ci"), &admin()).unwrap();
    log.issue(token(2, None, "metrics"), &admin()).unwrap();
    assert_eq!(log.found(1).as_deref(), Some("acme/ci"));
    assert_eq!(log.found(2).as_deref(), Some("metrics"));
    assert_eq!(log.found(3), None);
    let id = token(1, None, "ci").id;
    log.handle(&Command::Revoke(id), &admin()).unwrap();
    assert_eq!(log.found(1), None);
    assert_eq!(log.found(2).as_deref(), Some("metrics"));
    let again = log.handle(&Command::Revoke(id), &admin());
    assert_eq!(again, Err(Rejection::Unknown(id)));
    log.issue(token(4, Some("acme"), "ci"), &admin()).unwrap();
    assert_eq!(log.found(4).as_deref(), Some("acme/ci"));
}

#[test]
fn a_token_counts_until_its_time_is_over() {
    let mut log = Log::default();
    let expiring = Token {
        expires_at: Some(NOW + SignedDuration::from_secs(1)),
        ..token(1, Some("acme"), "ci")
    };
    log.issue(expiring.clone(), &admin()).unwrap();
    assert!(log.0.find(&expiring.sha256, NOW).is_some());
    let then = NOW + SignedDuration::from_secs(1);
    assert!(log.0.find(&expiring.sha256, then).is_none());
    let taken = log.issue(token(2, Some("acme"), "ci"), &admin());
    assert_eq!(taken, Err(Rejection::NameTaken("acme/ci".into())));
    let anew = Command::Issue(token(2, Some("acme"), "ci"));
    assert!(decide(&log.0, &anew, &admin(), then).is_ok());
}

#[test]
fn a_tenant_makes_and_sees_its_own_tokens_only() {
    let acme = of_tenant("acme", Role::Admin);
    let mut log = Log::default();
    log.issue(token(1, Some("acme"), "ci"), &acme).unwrap();
    for tenant in [None, Some("birds")] {
        let refused = log.issue(token(2, tenant, "ci"), &acme);
        assert_eq!(refused, Err(Rejection::OutOfScope));
        log.issue(token(2, tenant, "ci"), &admin()).unwrap();
        let id = token(2, None, "ci").id;
        let hidden = log.handle(&Command::Revoke(id), &acme);
        assert_eq!(hidden, Err(Rejection::Unknown(id)));
        assert_eq!(log.0.seen_by(&acme).count(), 1);
        assert_eq!(log.0.seen_by(&admin()).count(), 2);
        log.handle(&Command::Revoke(id), &admin()).unwrap();
    }
}

#[test]
fn where_a_token_is_stored_says_whose_it_is() {
    let of = |tenant| Event::Issued(token(1, tenant, "ci")).subject().to_string();
    assert!(of(Some("acme")).starts_with("ev.acme.token."));
    assert!(of(None).starts_with("ev.default.token."));
}

#[test]
fn a_full_tenant_keeps_no_other_from_tokens_and_what_expired_counts_no_more() {
    let mut log = Log::default();
    let full = TOKENS_MAX as u128;
    for number in 0..full {
        let mut token = token(number, Some("acme"), &format!("t{number}"));
        token.expires_at = (number == 0).then_some(NOW + SignedDuration::from_secs(1));
        log.issue(token, &admin()).expect("there is room");
    }
    let more = || token(full, Some("acme"), "more");
    assert_eq!(log.issue(more(), &admin()), Err(Rejection::TooMany));
    let other = token(full + 1, Some("birds"), "more");
    log.issue(other, &admin()).expect("another tenant has room");
    let later = NOW + SignedDuration::from_secs(2);
    decide(&log.0, &Command::Issue(more()), &admin(), later).expect("one has expired");
}

#[test]
fn nobody_is_called_as_who_has_no_token_of_their_own() {
    let mut log = Log::default();
    for (number, name) in [OPERATOR, DEVELOPMENT].into_iter().enumerate() {
        let number = number as u128;
        let refused = log.issue(token(number, None, name), &admin());
        assert_eq!(refused, Err(Rejection::NameTaken(name.into())));
        let of_tenant = token(number, Some("acme"), name);
        log.issue(of_tenant, &admin()).expect("it is acme's");
    }
}

#[test]
fn behind_an_event_that_cannot_be_read_it_goes_on() {
    let mut log = Log::default();
    log.0.skip(7, Digest::of("unknown"));
    assert_eq!(log.0.last(), Some((7, Digest::of("unknown"))));
    log.0.skip(3, Digest::of("old"));
    assert_eq!(log.0.sequence(), 7);
    log.issue(token(1, Some("acme"), "ci"), &admin())
        .expect("it goes on");
}
