use jiff::SignedDuration;
use uuid::Uuid;

use super::*;
use crate::chain::Chain as _;
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

/// Stores all decisions.
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
        let recorded = Recorded::decode(sequence, &bytes).expect("what was just written");
        let Ok(()) = self.0.apply(recorded);
        Ok(())
    }

    fn issue(&mut self, token: Token, by: &Principal) -> Result<(), Rejection> {
        self.handle(&Command::Issue(token), by)
    }

    /// The principal of the token with this number.
    fn found(&self, number: u128) -> Option<String> {
        let sha256 = Digest::of(number.to_be_bytes());
        let token = self.0.find(&sha256, NOW)?;
        Some(token.principal().name)
    }
}

#[test]
fn each_role_includes_the_roles_before_it() {
    for (index, needed) in Role::ALL.into_iter().enumerate() {
        for (place, found) in Role::ALL.into_iter().enumerate() {
            let need = Need {
                role: needed,
                reach: Reach::Tenant,
                compatibility: false,
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
fn tenant_token_cannot_change_the_cluster() {
    let need = Need {
        role: Role::Operate,
        reach: Reach::Cluster,
        compatibility: false,
    };
    assert_eq!(admin().check(need), Ok(()));
    let acme = of_tenant("acme", Role::Admin);
    assert_eq!(acme.check(need), Err(Refusal::Cluster(acme.tenant())));
}

#[test]
fn cluster_principal_can_act_for_a_tenant() {
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
fn token_is_valid_until_it_is_revoked() {
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
fn token_is_valid_until_it_expires() {
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
    let reissued = Command::Issue(token(2, Some("acme"), "ci"));
    assert!(decide(&log.0, &reissued, &admin(), then).is_ok());
}

#[test]
fn tenant_issues_and_sees_only_its_own_tokens() {
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
fn subject_of_a_token_contains_its_tenant() {
    let of = |tenant| Event::Issued(token(1, tenant, "ci")).subject().to_string();
    assert!(of(Some("acme")).starts_with("ev.acme.token."));
    assert!(of(None).starts_with("ev.default.token."));
}

#[test]
fn token_limit_applies_to_each_tenant_without_expired_tokens() {
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
fn reserved_principal_names_are_refused() {
    let mut log = Log::default();
    for (number, name) in [OPERATOR, DEVELOPMENT, AGENT_ON_DEMAND]
        .into_iter()
        .enumerate()
    {
        let number = number as u128;
        let refused = log.issue(token(number, None, name), &admin());
        assert_eq!(refused, Err(Rejection::NameTaken(name.into())));
        let of_tenant = token(number, Some("acme"), name);
        log.issue(of_tenant, &admin()).expect("it is acme's");
    }
}

#[test]
fn unreadable_token_event_is_skipped() {
    let mut log = Log::default();
    log.0.skip(7, Digest::of("unknown"));
    assert_eq!(log.0.last(), Some((7, Digest::of("unknown"))));
    log.0.skip(3, Digest::of("old"));
    assert_eq!(log.0.sequence(), 7);
    log.issue(token(1, Some("acme"), "ci"), &admin())
        .expect("it goes on");
}
