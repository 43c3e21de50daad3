use super::*;
use crate::capsule::Openness;
use crate::manifest::AgentManifest;

fn rule(text: &str) -> Rule {
    text.parse().expect("a rule")
}

fn host(text: &str) -> Host {
    Host::parse(text).expect("a host")
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

#[test]
fn address_classes_match_the_registries() {
    use AddressClass::{
        LinkLocal, Loopback, Metadata, Multicast, Private, Public, Reserved, Shared, Unspecified,
    };
    let table = [
        ("93.184.216.34", Public),
        ("1.1.1.1", Public),
        ("9.255.255.255", Public),
        ("11.0.0.0", Public),
        ("172.15.255.255", Public),
        ("172.32.0.0", Public),
        ("192.0.1.0", Public),
        ("223.255.255.255", Public),
        ("2606:4700::1111", Public),
        ("2001:200::1", Public),
        ("0.0.0.0", Unspecified),
        ("0.1.2.3", Unspecified),
        ("::", Unspecified),
        ("127.0.0.1", Loopback),
        ("127.255.255.254", Loopback),
        ("::1", Loopback),
        ("10.0.0.0", Private),
        ("10.255.255.255", Private),
        ("172.16.0.1", Private),
        ("172.31.255.255", Private),
        ("192.168.1.1", Private),
        ("fc00::1", Private),
        ("fd00:ec2::254", Private),
        ("169.254.169.254", LinkLocal),
        ("169.254.170.2", LinkLocal),
        ("fe80::1", LinkLocal),
        ("fec0::1", LinkLocal),
        ("168.63.129.16", Metadata),
        ("100.64.0.1", Shared),
        ("100.100.100.200", Shared),
        ("100.127.255.255", Shared),
        ("224.0.0.1", Multicast),
        ("239.255.255.255", Multicast),
        ("ff02::1", Multicast),
        ("192.0.0.8", Reserved),
        ("192.0.2.1", Reserved),
        ("192.88.99.1", Reserved),
        ("198.18.0.1", Reserved),
        ("198.19.255.255", Reserved),
        ("198.51.100.1", Reserved),
        ("203.0.113.1", Reserved),
        ("240.0.0.1", Reserved),
        ("255.255.255.255", Reserved),
        ("100::1", Reserved),
        ("2001::1", Reserved),
        ("2001:2::1", Reserved),
        ("2001:db8::1", Reserved),
        ("3fff::1", Reserved),
        ("4000::1", Reserved),
        ("5f00::1", Reserved),
    ];
    for (text, expected) in table {
        assert_eq!(class_of(address(text)), expected, "{text}");
    }
}

#[test]
fn embedded_address_has_the_class_of_the_inner_one() {
    use AddressClass::{LinkLocal, Loopback, Private, Public, Reserved, Unspecified};
    let table = [
        // Mapped.
        ("::ffff:127.0.0.1", Loopback),
        ("::ffff:10.0.0.1", Private),
        ("::ffff:169.254.169.254", LinkLocal),
        ("::ffff:0.0.0.0", Unspecified),
        ("::ffff:93.184.216.34", Public),
        // NAT64.
        ("64:ff9b::127.0.0.1", Loopback),
        ("64:ff9b::192.168.0.1", Private),
        ("64:ff9b::a9fe:a9fe", LinkLocal),
        ("64:ff9b::93.184.216.34", Public),
        // Its local forms belong to private networks.
        ("64:ff9b:1::10.0.0.1", Reserved),
        ("64:ff9b:1::93.184.216.34", Reserved),
        // 6to4.
        ("2002:7f00:1::1", Loopback),
        ("2002:a00:1::", Private),
        ("2002:a9fe:a9fe::", LinkLocal),
        ("2002:5db8:d822::1", Public),
        // Compatible, translated: deprecated.
        ("::127.0.0.1", Reserved),
        ("::ffff:0:127.0.0.1", Reserved),
        // Teredo.
        ("2001:0:5db8:d822::", Reserved),
    ];
    for (text, expected) in table {
        assert_eq!(class_of(address(text)), expected, "{text}");
    }
}

#[test]
fn a_rule_is_about_its_host_and_port_alone() {
    let one = rule("API.example.com.");
    let below = rule("*.example.com:8443");
    let table = [
        (&one, "api.example.com", 443, true),
        (&one, "API.EXAMPLE.COM", 443, true),
        (&one, "api.example.com.", 443, true),
        (&one, "api.example.com", 80, false),
        (&one, "x.api.example.com", 443, false),
        (&one, "example.com", 443, false),
        (&one, "api.example.com.evil.org", 443, false),
        (&below, "a.example.com", 8443, true),
        (&below, "a.b.example.com", 8443, true),
        (&below, "a.example.com", 443, false),
        (&below, "example.com", 8443, false),
        (&below, "notexample.com", 8443, false),
        (&below, "93.184.216.34", 8443, false),
    ];
    for (rule, text, port, expected) in table {
        assert_eq!(
            rule.is_for(&host(text), port),
            expected,
            "{rule}: {text}:{port}"
        );
    }
}

#[test]
fn addresses_are_listed_literally_and_only_public_ones() {
    let v4 = rule("93.184.216.34:80");
    assert!(v4.is_for(&host("93.184.216.34"), 80));
    assert!(!v4.is_for(&host("example.com"), 80));
    let v6 = rule("[2606:4700::1111]");
    assert!(v6.is_for(&host("[2606:4700:0::1111]"), PORT_DEFAULT));
    assert_eq!(v6.to_string(), "[2606:4700::1111]:443");
}

#[test]
fn malformed_rules_are_refused_with_the_expected_form() {
    let table = [
        ("*", "permits every host"),
        ("*:443", "permits every host"),
        ("", "invalid host name"),
        ("*.", "invalid host name"),
        ("**.example.com", "invalid host name"),
        ("a.*.example.com", "invalid host name"),
        ("https://example.com", "invalid port"),
        ("example.com/path", "invalid host name"),
        ("user@example.com", "invalid host name"),
        ("exämple.com", "in ASCII"),
        ("example.com:0", "invalid port"),
        ("example.com:70000", "invalid port"),
        ("example.com:+80", "invalid port"),
        ("example.com:", "invalid port"),
        ("127.1", "invalid host name"),
        ("0x7f.0.0.1", "invalid host name"),
        ("2130706433", "invalid host name"),
        ("a..b.com", "invalid host name"),
        ("-a.com", "invalid host name"),
        ("localhost", "the container itself"),
        ("a.localhost:80", "the container itself"),
        ("127.0.0.1", "is loopback"),
        ("10.0.0.1:80", "is private"),
        ("169.254.169.254:80", "is link-local"),
        ("[::ffff:10.0.0.1]", "is private"),
        ("203.0.113.1", "is reserved"),
        ("2606:4700::1111", "needs brackets"),
        ("[2606:4700::1111]443", "invalid port"),
        ("[2606:4700::1111", "invalid port"),
        ("[2606:4700::zz]", "invalid host name"),
    ];
    for (text, expected) in table {
        let error = text.parse::<Rule>().expect_err(text).to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
    let long = format!("{}.com", "x".repeat(64));
    assert!(long.parse::<Rule>().is_err());
    let longest = vec!["x".repeat(63); 4].join(".");
    assert!(longest.parse::<Rule>().is_err());
}

#[test]
fn a_rule_is_stored_as_its_text() {
    for text in [
        "api.example.com:443",
        "*.example.com:8443",
        "93.184.216.34:80",
    ] {
        let json = serde_json::to_string(&rule(text)).unwrap();
        assert_eq!(json, format!("\"{text}\""));
        assert_eq!(serde_json::from_str::<Rule>(&json).unwrap(), rule(text));
    }
}

#[test]
fn stored_rule_stays_readable_without_permitting_more() {
    for text in ["10.0.0.1:443", "localhost:80"] {
        assert!(text.parse::<Rule>().is_err(), "{text}");
        let stored: Rule = serde_json::from_value(text.into()).expect("a stored rule");
        assert_eq!(stored.to_string(), text);
    }
    let listed = [serde_json::from_str::<Permission>("\"10.0.0.1:443\"").unwrap()];
    let private = host("10.0.0.1");
    let everywhere = ["*".parse::<Permission>().unwrap()];
    assert_eq!(check(&listed, &everywhere, &private, 443), Ok(()));
    let refused = choose(&private, &[address("10.0.0.1")]);
    assert!(
        matches!(refused, Err(Refusal::NotPublic { .. })),
        "{refused:?}"
    );
}

#[test]
fn capsule_and_operator_must_both_allow() {
    let permit = |text: &str| vec![text.parse::<Permission>().unwrap()];
    let listed = [permit("api.example.com"), permit("*.example.org")].concat();
    let api = host("api.example.com");
    assert_eq!(check(&listed, &permit("*"), &api, 443), Ok(()));
    assert_eq!(check(&listed, &permit("*:443"), &api, 443), Ok(()));
    assert_eq!(check(&listed, &permit("*.example.com"), &api, 443), Ok(()));
    let refused = check(&listed, &permit("*:80"), &api, 443).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the operator of this node does not permit api.example.com:443 (--egress)"
    );
    assert!(matches!(
        check(&listed, &[], &api, 443),
        Err(Refusal::NotPermitted { .. })
    ));
    let refused = check(&listed, &permit("*"), &host("evil.org"), 443).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "evil.org:443 is not in the list \"egress\" of the capsule's agent.yaml, which lists \
         api.example.com:443, *.example.org:443"
    );
}

#[test]
fn open_egress_permits_what_the_operator_permits_and_is_stored() {
    let open = Openness {
        egress: true,
        ..Openness::default()
    };
    let egress = open.needs(&AgentManifest::default()).egress;
    let stored = serde_json::to_string(&egress).unwrap();
    assert_eq!(stored, r#"["*"]"#);
    let listed: Vec<Permission> = serde_json::from_str(&stored).unwrap();
    let api = host("api.example.com");
    let permitted = ["*.example.com".parse().unwrap()];
    assert_eq!(check(&listed, &permitted, &api, 443), Ok(()));
    let refused = check(&listed, &permitted, &api, 80);
    assert!(matches!(refused, Err(Refusal::NotPermitted { .. })));
    assert!("*".parse::<Rule>().is_err(), "agent.yaml lists hosts");
}

#[test]
fn first_public_address_is_chosen_and_none_is_refused() {
    let api = host("api.example.com");
    let of = |texts: &[&str]| {
        let addresses: Vec<IpAddr> = texts.iter().map(|text| address(text)).collect();
        choose(&api, &addresses)
    };
    assert_eq!(
        of(&["10.0.0.1", "93.184.216.34", "1.1.1.1"]),
        Ok(Some(address("93.184.216.34")))
    );
    assert_eq!(of(&[]), Ok(None));
    let refused = of(&["169.254.169.254", "::1"]).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "api.example.com has no public address: 169.254.169.254 is link-local"
    );
}
