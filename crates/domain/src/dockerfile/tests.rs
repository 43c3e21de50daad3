//! The images that a `Dockerfile` uses, and their replacement.

use super::*;

/// Checks the references, the one of the last stage with `!`.
fn check(text: &str, expected: &[&str]) {
    let found = uses(text);
    let shown = found.iter().map(|found| {
        let mark = if found.is_final { "!" } else { "" };
        format!("{}{mark}", found.reference)
    });
    assert_eq!(shown.collect::<Vec<_>>(), expected, "{text}");
    for Use { word, .. } in found {
        assert_eq!(&text[word.start..][..word.text.len()], word.text, "{text}");
    }
}

#[test]
fn from_names_an_image_a_stage_or_nothing() {
    check("FROM python:3.11-slim\n", &["python:3.11-slim!"]);
    check("FROM scratch\nCOPY a b\n", &[]);
    check(
        "FROM go AS Make\nfrom --platform=linux/amd64 python as run\nFROM make\nCMD x\n",
        &["go!"],
    );
    check(
        "FROM a\nFROM b AS c\nFROM scratch\nCOPY --from=c /x /\n",
        &["a", "b"],
    );
    check("\u{feff}# FROM x\n\n  FROM \t a\r\n", &["a!"]);
    // The name of a later stage is an image.
    check("FROM b\nFROM a AS b\n", &["b", "a!"]);
}

#[test]
fn copy_from_names_an_image_unless_it_is_a_stage() {
    check(
        "FROM a AS x\nFROM b\nCOPY --chown=1 --from=ghcr.io/astral-sh/uv:0.5 /uv /\n\
         COPY --from=0 a b\nCOPY --from=X a b\nCOPY --from=$Y a b\n",
        &["a", "b!", "ghcr.io/astral-sh/uv:0.5"],
    );
}

/// The same name stands for another image on each platform.
#[test]
fn image_for_a_platform_is_left_to_the_builder() {
    check(
        "FROM --platform=linux/arm64 a AS x\nFROM a\nCOPY --from=x /y /\n",
        &["a!"],
    );
}

#[test]
fn values_of_values_do_not_grow_without_bound() {
    let lines = (0..15).map(|number| {
        let value = format!("$A{number}").repeat(10);
        format!("ARG A{}={value}\n", number + 1)
    });
    let lines = lines.collect::<String>();
    let text = format!("ARG A0=xxxxxxxxxx\n{lines}FROM $A15\nFROM $A1\n");
    check(&text, &[&format!("{}!", "x".repeat(100))]);
}

#[test]
fn arguments_have_their_default_values() {
    check(
        "ARG NAME=python TAG=\"3.11\"\nARG BASE=${NAME}:${TAG}\nFROM $BASE-slim\nARG NAME=x\nFROM ${NAME}\n",
        &["python:3.11-slim", "python!"],
    );
    check("ARG A\nFROM b$A\nFROM ${A:-c}\n", &["b", "c!"]);
    // An argument of the builder, an unknown syntax, and a value with a space.
    check(
        "ARG B=${A:+b}\nARG C=\"x y\"\nFROM a-$TARGETARCH\nFROM $B\nFROM $C\n",
        &[],
    );
}

#[test]
fn continued_lines_and_documents_are_read() {
    check(
        "RUN <<END\nFROM b\nEND\nFROM \\\n# x\n\n a \\\n AS b\nFROM b\n",
        &["a!"],
    );
    check("# escape=`\nFROM a `\n AS c\nRUN x \\\nFROM c\n", &["a!"]);
    // A reference that goes on in the next line.
    check("FROM pyth\\\non\n", &[]);
}

#[test]
fn rewritten_file_keeps_its_lines() {
    let text = "\u{feff}ARG T=1\nFROM a:$T AS b\nFROM a:$T\nFROM c\nCOPY --from=d:1 /x \\\n /y\n";
    let image = |reference: &str| match reference {
        "a:1" => Some("sha256:11"),
        "d:1" => Some("sha256:22"),
        _ => None,
    };
    assert_eq!(
        rewritten(text, &uses(text), image),
        "\u{feff}ARG T=1\nFROM sha256:11 AS b\nFROM sha256:11\nFROM c\nCOPY --from=sha256:22 /x \\\n /y\n"
    );
}
