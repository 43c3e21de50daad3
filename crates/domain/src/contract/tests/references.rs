//! File references in payloads.

use super::*;

fn check_found(input: &Value, payload: &Value, expected: &[(&str, &str, bool, FileKind)]) {
    let checked = check_input(input, payload.clone()).expect("no problem");
    let found: Vec<_> = checked
        .references
        .iter()
        .map(|it| (it.pointer.as_str(), it.name.as_str(), it.declared, it.kind))
        .collect();
    assert_eq!(found, expected);
    assert_eq!(&checked.payload, payload);
}

fn file_schema(format: &str) -> Value {
    json!({"properties": {"f": {"type": ["string", "null"], "format": format}}})
}

use FileKind::{Directory as Folder, File};

#[test]
fn declared_references_are_found_wherever_they_are() {
    let input = json!({
        "properties": {
            "list": {"items": {"$ref": "#/$defs/path"}},
            "either": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/path"}]},
            "deep": {"properties": {"a/b~c": {"allOf": [{"format": "file-path"}]}}},
            "format": {"type": "string", "title": "file_path"},
        },
        "patternProperties": {"^p": {"format": "path"}},
        "$defs": {"path": {"type": "string", "format": "file_path"}},
    });
    let payload = json!({
        "list": ["graph.png", "./sub/data.csv"], "either": "/io/handoff/outgoing/ü.txt",
        "deep": {"a/b~c": "notes"}, "format": "none", "p1": "pages", "p2": "notes",
    });
    check_found(
        &input,
        &payload,
        &[
            ("/deep/a~1b~0c", "notes", true, File),
            ("/either", "ü.txt", true, File),
            ("/list/0", "graph.png", true, File),
            ("/list/1", "sub/data.csv", true, File),
            ("/p1", "pages", true, Folder),
            ("/p2", "notes", true, File),
        ],
    );
    check_found(&input, &json!({"either": 5}), &[]);
}

#[test]
fn only_branches_that_hold_declare() {
    let input = json!({"properties": {"x": {"anyOf": [
        {"type": "object", "properties": {"f": {"format": "file_path"}}, "required": ["yes"]},
        {"type": "object"},
    ]}}});
    check_found(&input, &json!({"x": {"f": "gone"}}), &[]);
    let problems = codes(check_input(&input, json!({"x": {"f": "gone", "yes": 1}})));
    assert_eq!(problems, [("/x/f".to_owned(), ProblemCode::FileMissing)]);
}

#[test]
fn text_that_fits_another_branch_need_not_name_a_file() {
    let input = json!({
        "properties": {"source": {"anyOf": [
            {"$ref": "#/$defs/path"},
            {"type": "string", "pattern": "^https://"},
            {"type": "integer"},
        ]}},
        "$defs": {"path": {"type": "string", "format": "file_path"}},
    });
    check_found(&input, &json!({"source": "https://example.com/a"}), &[]);
    check_found(
        &input,
        &json!({"source": "notes"}),
        &[("/source", "notes", true, File)],
    );
    let problems = codes(check_input(&input, json!({"source": "gone"})));
    assert_eq!(problems, [("/source".to_owned(), ProblemCode::FileMissing)]);
}

#[test]
fn every_format_takes_its_kind() {
    use ProblemCode::{FileKind, FileMissing};
    for format in ["file_path", "file-path", "path"] {
        check_found(
            &file_schema(format),
            &json!({"f": "notes"}),
            &[("/f", "notes", true, File)],
        );
    }
    for format in ["directory_path", "directory-path", "path"] {
        check_found(
            &file_schema(format),
            &json!({"f": "pages"}),
            &[("/f", "pages", true, Folder)],
        );
    }
    for format in FILE_FORMATS {
        check_found(&file_schema(format), &json!({"f": null}), &[]);
        let words = ["\"gone\" is not in /io/handoff/outgoing", "expected"];
        check_refused(
            &file_schema(format),
            json!({"f": "gone"}),
            "/f",
            FileMissing,
            &words,
        );
    }
    let file = file_schema("file_path");
    check_refused(
        &file,
        json!({"f": "pages"}),
        "/f",
        FileKind,
        &["a directory", "expected a file"],
    );
    let directory = file_schema("directory_path");
    check_refused(
        &directory,
        json!({"f": "notes"}),
        "/f",
        FileKind,
        &["a file", "expected a directory"],
    );
}

#[test]
fn declared_references_are_proper_names() {
    let long = "x".repeat(2_000);
    for text in [
        "",
        ".",
        "..",
        "../x",
        "sub/../../x",
        "/etc/passwd",
        "/io/input/graph.png",
        "sub/",
        "a\nb",
        "a\0b",
        "/io/handoff/outgoing/../x",
        "/io/handoff/outgoing",
        &long,
    ] {
        let problems = codes(check_input(&file_schema("path"), json!({ "f": text })));
        assert_eq!(
            problems,
            [("/f".to_owned(), ProblemCode::FileName)],
            "{text:?}"
        );
    }
    for text in ["*", ">"] {
        let problems = codes(check_input(&file_schema("path"), json!({ "f": text })));
        assert_eq!(
            problems,
            [("/f".to_owned(), ProblemCode::FileMissing)],
            "{text:?}"
        );
    }
}

#[test]
fn texts_that_equal_existing_files_are_inferred() {
    let payload = json!({
        "bare": "graph.png", "dot": "./notes", "full": "/io/handoff/outgoing/sub/data.csv",
        "in": [{"deep": ["ü.txt"]}], "folder": "pages", "gone": "gone.txt", "other": "/io/output/notes",
        "escape": "../notes", "part": "see notes", "notes": 1,
    });
    check_found(
        &json!({}),
        &payload,
        &[
            ("/bare", "graph.png", false, File),
            ("/dot", "notes", false, File),
            ("/full", "sub/data.csv", false, File),
            ("/in/0/deep/0", "ü.txt", false, File),
        ],
    );
}

#[test]
fn an_output_names_files_in_its_own_directory() {
    let contract = contract(&json!({}));
    let checked = contract
        .check_output(json!({"report": "/io/output/notes"}), &exists)
        .expect("fits");
    assert_eq!(checked.references[0].name.as_str(), "notes");
    let checked = contract
        .check_output(json!({"report": "/io/input/notes"}), &exists)
        .expect("fits");
    assert_eq!(checked.references, []);
}

fn check_rewritten(payload: Value, final_name: &str, expected: Result<Value, &str>) {
    let input = json!({"properties": {"f": {"format": "path"}, "g": {"format": "path"}}});
    let checked = check_input(&input, payload).expect("no problem");
    let rename = |name: &FileName| match name.as_str() {
        "notes" => FileName::parse(final_name).expect("a proper name"),
        _ => name.clone(),
    };
    let found = rewrite(checked.payload, &checked.references, &rename);
    let expected =
        expected.map_err(|pointer| vec![(pointer.to_owned(), ProblemCode::FileUndeclared)]);
    match expected {
        Ok(expected) => assert_eq!(found, Ok(expected)),
        Err(expected) => assert_eq!(codes(found), expected),
    }
}

#[test]
fn declared_references_become_bare_names() {
    let payload =
        json!({"f": "/io/handoff/outgoing/notes", "g": "./graph.png", "x": "./graph.png"});
    let expected = json!({"f": "notes-2", "g": "graph.png", "x": "./graph.png"});
    check_rewritten(payload.clone(), "notes-2", Ok(expected));
    let expected = json!({"f": "notes", "g": "graph.png", "x": "./graph.png"});
    check_rewritten(payload, "notes", Ok(expected));
}

#[test]
fn an_inferred_reference_is_never_rewritten() {
    check_rewritten(
        json!({"x": "./notes"}),
        "notes",
        Ok(json!({"x": "./notes"})),
    );
    check_rewritten(
        json!({"f": "notes", "x": ["notes"]}),
        "notes-2",
        Err("/x/0"),
    );
}

#[test]
fn a_reference_without_its_text_is_a_problem() {
    let reference = Reference {
        pointer: "/gone".to_owned(),
        name: FileName::parse("notes").expect("a proper name"),
        declared: true,
        kind: FileKind::File,
    };
    let problems = codes(rewrite(json!({}), &[reference], &FileName::clone));
    assert_eq!(problems, [("/gone".to_owned(), ProblemCode::DoesNotFit)]);
}

#[test]
fn paths_outside_the_directory_in_file_and_files_are_host_paths() {
    let check = |arguments: Value, directory, expected: &[&str]| {
        let problems = host_paths(arguments.as_object().unwrap(), directory);
        let pointers: Vec<_> = problems.iter().map(|it| it.pointer.as_str()).collect();
        assert_eq!(pointers, expected, "{arguments}");
    };
    let input = |arguments, expected: &[&str]| check(arguments, Directory::Input, expected);
    input(json!({"file": "/etc/os-release"}), &["/file"]);
    input(json!({"files": ["a.txt", "../b"]}), &["/files/1"]);
    input(
        json!({"files": {"a": "x/../../b"}, "file": 5}),
        &["/files/a"],
    );
    input(json!({"file": "/io/input/../x"}), &["/file"]);
    input(
        json!({"file": format!("/{}", "long/".repeat(500))}),
        &["/file"],
    );
    input(json!({"file": "../\u{7}x"}), &["/file"]);
    input(
        json!({"file": "/io/input/a", "files": ["./b", "some text"]}),
        &[],
    );
    input(json!({"text": "/etc/os-release"}), &[]);
    let outgoing = Directory::Outgoing;
    check(json!({"file": "/io/handoff/outgoing/a"}), outgoing, &[]);
    check(json!({"file": "/io/input/a"}), outgoing, &["/file"]);
}
