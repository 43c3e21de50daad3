//! Rules of file names.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use proptest::prelude::*;

use super::*;

fn check(name: &str, expected: Result<(), Rejection>) {
    assert_eq!(
        FileName::parse(name).map(|name| name.to_string()),
        expected.map(|()| name.to_owned())
    );
}

fn name(text: &str) -> FileName {
    FileName::parse(text).expect("a proper name")
}

#[test]
fn ordinary_names_pass() {
    for name in [
        "a",
        "report.pdf",
        "a/b/c.tar.gz",
        ".env",
        "..a",
        "a b",
        "ü/é",
        "*",
        ">",
        "-rf",
        "a\\b",
        "...",
    ] {
        check(name, Ok(()));
    }
}

#[test]
fn names_that_leave_their_directory_are_refused() {
    let not_normal = |name: &str, component: &str| {
        Err(Rejection::NotNormal {
            name: format!("{name:?}"),
            component: component.to_owned(),
        })
    };
    check("../x", not_normal("../x", ".."));
    check("a/../../x", not_normal("a/../../x", ".."));
    check("..", not_normal("..", ".."));
    check(".", not_normal(".", "."));
    check("./x", not_normal("./x", "."));
    check(
        "/etc/passwd",
        Err(Rejection::Absolute {
            name: "\"/etc/passwd\"".to_owned(),
        }),
    );
}

#[test]
fn malformed_names_are_refused() {
    check("", Err(Rejection::Empty));
    check(
        "a/",
        Err(Rejection::EmptyComponent {
            name: "\"a/\"".to_owned(),
        }),
    );
    check(
        "a//b",
        Err(Rejection::EmptyComponent {
            name: "\"a//b\"".to_owned(),
        }),
    );
    for (text, character) in [
        ("a\nb", '\n'),
        ("a\0b", '\0'),
        ("\u{1b}[2J", '\u{1b}'),
        ("a\u{85}", '\u{85}'),
    ] {
        check(
            text,
            Err(Rejection::ControlCharacter {
                name: quoted(text),
                character,
            }),
        );
    }
    assert!(matches!(
        FileName::from_bytes(b"a\xff"),
        Err(Rejection::NotUtf8 { .. })
    ));
    assert_eq!(FileName::from_bytes(b"a/b"), Ok(name("a/b")));
}

#[test]
fn limits_hold_at_their_edge() {
    check(&"x".repeat(255), Ok(()));
    let component = "x".repeat(256);
    check(
        &component,
        Err(Rejection::ComponentTooLong {
            name: quoted(&component),
            length: 256,
        }),
    );

    let longest = format!("{0}/{0}/{0}/{0}/x", "x".repeat(254));
    assert_eq!(longest.len(), 1_021);
    check(&format!("{longest}yyy"), Ok(()));
    let longer = format!("{longest}yyyy");
    check(
        &longer,
        Err(Rejection::TooLong {
            name: quoted(&longer),
            length: 1_025,
        }),
    );

    check(&["d"; 16].join("/"), Ok(()));
    let deep = ["d"; 17].join("/");
    check(
        &deep,
        Err(Rejection::TooDeep {
            name: quoted(&deep),
            depth: 17,
        }),
    );
}

#[test]
fn rejections_name_value_and_expectation() {
    let text = FileName::parse("a\n/../x")
        .expect_err("refused")
        .to_string();
    assert_eq!(
        text,
        r#"file name "a\n/../x" contains the control character '\n'; expected none"#
    );
    let long = FileName::parse(&"x".repeat(5_000))
        .expect_err("refused")
        .to_string();
    assert!(
        long.len() < 300 && long.contains("5000 bytes") && long.contains("at most 1024"),
        "{long}"
    );
}

#[test]
fn serde_checks_too() {
    assert_eq!(
        serde_json::from_str::<FileName>("\"a/b\"").ok(),
        Some(name("a/b"))
    );
    assert!(serde_json::from_str::<FileName>("\"../b\"").is_err());
    assert_eq!(
        serde_json::to_string(&name("a/b")).expect("serializes"),
        "\"a/b\""
    );
}

#[test]
fn only_the_given_directory_is_stripped() {
    assert_eq!(
        Directory::Outgoing.relative("/io/handoff/outgoing/a/b"),
        "a/b"
    );
    assert_eq!(
        Directory::Incoming.relative("/io/handoff/incoming/./a"),
        "a"
    );
    assert_eq!(Directory::Input.relative("/io/input/a"), "a");
    assert_eq!(Directory::Output.relative("./a"), "a");
    for kept in [
        "/io/input/a",
        "/io/outputs/a",
        "/io/output",
        "a",
        "../a",
        ".a",
    ] {
        assert_eq!(Directory::Output.relative(kept), kept);
    }
}

fn check_unique(wanted: &str, taken: &[&str], expected: &str) {
    let taken = taken.iter().map(|text| name(text)).collect();
    assert_eq!(unique_name(&name(wanted), &taken).as_str(), expected);
}

#[test]
fn a_taken_name_is_numbered_before_its_extension() {
    check_unique("report.pdf", &[], "report.pdf");
    check_unique("report.pdf", &["report.pdf"], "report-2.pdf");
    check_unique(
        "report.pdf",
        &["report.pdf", "report-2.pdf"],
        "report-3.pdf",
    );
    check_unique("a/b.tar.gz", &["a/b.tar.gz"], "a/b-2.tar.gz");
    check_unique(".tar.gz", &[".tar.gz"], ".tar-2.gz");
    check_unique(".env", &[".env"], ".env-2");
    check_unique("Makefile", &["Makefile"], "Makefile-2");
    check_unique("v1.d/x", &["v1.d/x"], "v1.d/x-2");
    check_unique(
        "see. a long remark",
        &["see. a long remark"],
        "see-2. a long remark",
    );
    check_unique(
        "see. quite a long remark",
        &["see. quite a long remark"],
        "see. quite a long remark-2",
    );
}

#[test]
fn a_file_and_a_directory_of_one_name_clash() {
    check_unique("report/page", &["report"], "report-2/page");
    check_unique(
        "report/other",
        &["report", "report-2/page"],
        "report-2/other",
    );
    check_unique("report", &["report/page"], "report-2");
    check_unique("report", &["report-1", "reporting"], "report");
}

#[test]
fn number_fits_into_the_longest_names() {
    let long = "ü".repeat(127);
    check_unique(&long, &[&long], &format!("{}-2", "ü".repeat(126)));
    let full = format!("{0}/{0}/{0}/{0}/xyyy", "x".repeat(254));
    check_unique(
        &full,
        &[&full],
        &format!("{0}/{0}/{0}/{0}/xy-2", "x".repeat(254)),
    );
    let no_room = format!("{0}/{0}/{0}/{0}/dd/y", "x".repeat(254));
    assert_eq!(no_room.len(), NAME_LENGTH_BYTES_MAX);
    check_unique(&no_room, &[&no_room], "y-2");
}

fn any_name() -> impl Strategy<Value = FileName> {
    let component = "[a-c.]{1,3}|ü{1,127}|x{250,255}";
    prop::collection::vec(component, 1..6).prop_filter_map("not a name", |components| {
        FileName::parse(&components.join("/")).ok()
    })
}

proptest! {
    #[test]
    fn a_name_never_escapes(text in "(\\.|/|\\PC|\\n|[a-b]){0,40}") {
        if let Ok(name) = FileName::parse(&text) {
            let components: Vec<_> = Path::new(name.as_str()).components().collect();
            prop_assert!(components.iter().all(|part| matches!(part, Component::Normal(_))));
            prop_assert_eq!(components.len(), name.components().count());
            prop_assert_eq!(name.as_str(), text);
        }
    }

    #[test]
    fn a_unique_name_is_free_and_proper(
        wanted in any_name(),
        others in prop::collection::btree_set(any_name(), 0..20),
        rounds in 1..20_usize,
    ) {
        let mut taken: BTreeSet<FileName> = others;
        for _ in 0..rounds {
            let unique = unique_name(&wanted, &taken);
            prop_assert_eq!(FileName::parse(unique.as_str()), Ok(unique.clone()));
            let below = |one: &FileName, other: &FileName| {
                one.as_str().strip_prefix(other.as_str()).is_some_and(|rest| rest.starts_with('/'))
            };
            prop_assert!(taken.iter().all(|t| *t != unique && !below(t, &unique) && !below(&unique, t)));
            taken.insert(unique);
        }
    }
}
