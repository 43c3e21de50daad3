//! The commands for authors of capsules, on real Docker and without a cluster: they run and test a capsule in its
//! directory, and leave only its image.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::cluster::{Ended, docker, program, wait_until, write_capsule};

/// Copies its input and its files.
const ECHO: &str = "echo to the logs; for file in /io/input/*; do [ -e \"$file\" ] && cp \"$file\" /io/output/; done; cp /io/input.json /io/output.json";

/// A directory for capsules with unique names, and for the files that `aod` writes. Drop removes their images.
struct Desk {
    directory: tempfile::TempDir,
    word: String,
}

impl Desk {
    fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("aod-kit-").tempdir();
        let directory = directory.expect("a directory");
        std::fs::create_dir(directory.path().join("tmp")).expect("a directory of ours");
        let random = directory.path().file_name().unwrap_or_default();
        let word: String = random.to_string_lossy().to_lowercase();
        let word = word.replace(|character: char| !character.is_ascii_alphanumeric(), "");
        Self { directory, word }
    }

    /// The unique name of the capsule `part`.
    fn name(&self, part: &str) -> String {
        format!("{}-{part}", self.word)
    }

    fn path(&self, part: &str) -> PathBuf {
        self.directory.path().join(self.name(part))
    }

    fn write(&self, part: &str, file: &str, text: &str) {
        let path = self.path(part).join(file);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory of ours");
        std::fs::write(path, text).expect("a directory of ours");
    }

    /// `aod capsule …`, with its temporary files below this directory.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = program();
        command
            .arg("capsule")
            .args(arguments)
            .current_dir(self.directory.path())
            .env("TMPDIR", self.temporary());
        if let Some(server) = std::env::var_os("AOD_TEST_NATS_SERVER") {
            command.env("AOD_NATS_SERVER", server);
        }
        command
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        let output = self.command(arguments).output();
        output.expect("the program starts").into()
    }

    fn temporary(&self) -> PathBuf {
        self.directory.path().join("tmp")
    }

    #[track_caller]
    fn assert_two_cases_pass(&self, [one, other]: [&str; 2]) {
        let tested = self.run(&["test", one, other]).with(0).stderr;
        assert!(tested.contains("2 cases passed"), "{tested}");
        self.assert_nothing_is_left();
    }

    /// Asserts that no temporary file, process or container is left.
    #[track_caller]
    fn assert_nothing_is_left(&self) {
        let left: Vec<_> = std::fs::read_dir(self.temporary())
            .expect("a directory of ours")
            .collect();
        assert!(left.is_empty(), "{left:?}");
        let mark = self.temporary().to_string_lossy().into_owned();
        assert_eq!(processes_with(&mark), Vec::<u32>::new());
        assert_eq!(self.containers(), "");
    }

    fn containers(&self) -> String {
        let names = docker(&[
            "ps",
            "--all",
            "--format",
            "{{.Names}} {{.Image}} {{.Label \"dev.aod.capsule\"}}",
        ]);
        let own = names.lines().filter(|line| line.contains(&self.word));
        own.collect::<Vec<_>>().join("\n")
    }

    fn images(&self) -> Vec<String> {
        let images = docker(&["images", "--format", "{{.Repository}}:{{.Tag}}"]);
        let own = images.lines().filter(|line| line.contains(&self.word));
        own.map(str::to_owned).collect()
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        for image in self.images() {
            docker(&["rmi", "--force", &image]);
        }
    }
}

/// The processes with `mark` in their command line.
fn processes_with(mark: &str) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").expect("Linux");
    let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|id| {
        let command = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&command).contains(mark)
    })
    .collect()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A script that calls the capsule `callee` with its input file, and returns the answer.
fn caller_script(callee: &str) -> String {
    format!(
        "cp /io/input/data.txt /io/handoff/outgoing/data.txt\n\
         busybox wget -q -O /io/answer --header 'Content-Type: application/json' \
         --post-data '{{\"target\": \"{callee}\", \"args\": {{\"file\": \"data.txt\"}}}}' $AOD_URL/handoff\n\
         cp /io/handoff/incoming/* /io/output/\n\
         busybox sed 's/.*\"success\":\\([a-z]*\\).*/{{\"was_successful\": \\1}}/' /io/answer > /io/output.json"
    )
}

#[test]
fn capsule_run_leaves_only_the_image() {
    let desk = Desk::new();
    write_capsule(&desk.path("echo"), ECHO);
    let directory = desk.path("echo").display().to_string();
    let file = desk.directory.path().join("data.txt");
    std::fs::write(&file, "content").expect("a directory of ours");
    let given = format!("file=@{}", file.display());
    let arguments = [
        "run", &directory, "-i", &given, "-i", "number=7", "-o", "made",
    ];
    let ran = desk.run(&arguments).with(0);
    assert_eq!(ran.json(), json!({"file": "data.txt", "number": 7}));
    for expected in [": building the image", "  to the logs", ": ended"] {
        assert!(ran.stderr.contains(expected), "{expected}: {}", ran.stderr);
    }
    assert_eq!(
        read(&desk.directory.path().join("made/data.txt")),
        "content"
    );
    desk.assert_nothing_is_left();

    let image = desk.images();
    assert_eq!(image.len(), 1, "{image:?}");
    let again = desk.run(&arguments).with(0);
    assert!(
        !again.stderr.contains("building the image"),
        "{}",
        again.stderr
    );
    assert_eq!(desk.images(), image);
}

#[test]
fn capsule_run_passes_secrets_of_a_directory() {
    let desk = Desk::new();
    let script = "cat $KEY_FILE > /io/output/key.txt; echo \"the key is $(cat $KEY_FILE)\"; \
                  echo \"{\\\"key\\\": \\\"$(cat $KEY_FILE)\\\"}\" > /io/output.json";
    write_capsule(&desk.path("keeper"), script);
    desk.write("keeper", "agent.yaml", "secrets: [KEY]\n");
    let directory = desk.path("keeper").display().to_string();
    let kept = desk.directory.path().join("kept");
    std::fs::create_dir(&kept).expect("a directory of ours");
    let key = kept.join("KEY");
    std::fs::write(&key, "open-sesame\n").expect("a directory of ours");
    let allow = |mode| {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&key, permissions).expect("a file of ours");
    };
    allow(0o600);
    let kept = kept.display().to_string();
    let arguments = ["run", &directory, "--secrets", &kept, "-o", "made"];
    let ran = desk.run(&arguments).with(0);
    assert_eq!(ran.json(), json!({"key": "***"}));
    assert!(ran.stderr.contains("the key is ***"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("sesame"), "{}", ran.stderr);
    let made = read(&desk.directory.path().join("made/key.txt"));
    assert_eq!(made, "open-sesame");

    allow(0o644);
    let refused = desk.run(&arguments).with(1);
    for expected in ["(secret_missing)", "has the mode 0644"] {
        assert!(refused.stderr.contains(expected), "{}", refused.stderr);
    }
    let missing = desk.run(&["run", &directory]).with(1);
    assert!(
        missing.stderr.contains("without --secrets"),
        "{}",
        missing.stderr
    );
    let nowhere = desk.run(&["run", &directory, "--secrets", "/nowhere"]);
    assert!(nowhere.stderr.contains("/nowhere"), "{}", nowhere.stderr);
    desk.assert_nothing_is_left();
}

#[test]
fn failed_capsule_run_has_cluster_exit_codes_and_can_keep_its_data() {
    let desk = Desk::new();
    write_capsule(&desk.path("wrong"), "echo went wrong >&2; exit 3");
    let directory = desk.path("wrong").display().to_string();
    let failed = desk.run(&["run", &directory]).with(1);
    assert!(failed.stdout.is_empty(), "{}", failed.stdout);
    assert!(
        failed.stderr.contains("(capsule_exit)"),
        "{}",
        failed.stderr
    );
    let refused = desk.run(&["run", &directory, "-i", "file=none"]).with(2);
    assert!(refused.stderr.contains("/file"), "{}", refused.stderr);
    desk.assert_nothing_is_left();

    let kept = desk.run(&["run", &directory, "--keep"]).with(1);
    let place = kept
        .stderr
        .lines()
        .find_map(|line| line.strip_prefix("kept: "));
    let place = PathBuf::from(place.expect("the line with the directory"));
    assert!(place.join("nats").is_dir() && place.starts_with(desk.temporary()));
    assert_eq!(desk.containers(), "");

    desk.write(
        "wrong",
        "Dockerfile",
        "FROM scratch\nCOPY nothing /\nCMD x\n",
    );
    let unbuilt = desk.run(&["run", &directory]).with(1);
    assert!(
        unbuilt.stderr.contains("the build failed"),
        "{}",
        unbuilt.stderr
    );
    desk.write("wrong", "Dockerfile", "RUN nothing\n");
    let invalid = desk.run(&["run", &directory]).with(2);
    assert!(
        invalid.stderr.contains("Dockerfile:1:1"),
        "{}",
        invalid.stderr
    );
}

#[test]
fn interrupted_capsule_run_leaves_nothing() {
    let desk = Desk::new();
    write_capsule(&desk.path("slow"), "echo begun; sleep 600");
    let mut command = desk.command(&["run", &desk.path("slow").display().to_string()]);
    let errors = std::fs::File::create(desk.directory.path().join("errors")).expect("a file");
    let mut child = command
        .stdout(Stdio::null())
        .stderr(errors)
        .spawn()
        .expect("it starts");
    wait_until("it runs", || {
        read(&desk.directory.path().join("errors")).contains("begun")
    });
    let id = child.id().to_string();
    let killed = Command::new("kill").args(["-INT", &id]).status();
    assert!(killed.expect("kill").success());
    let status = child.wait().expect("a child of ours");
    let errors = read(&desk.directory.path().join("errors"));
    assert_eq!(status.code(), Some(5), "{errors}");
    desk.assert_nothing_is_left();
}

#[test]
fn capsule_run_finds_callees_beside_the_caller() {
    let desk = Desk::new();
    let callee = desk.name("callee");
    write_capsule(
        &desk.path("callee"),
        "echo answered > /io/output/answer.txt; echo '{}' > /io/output.json",
    );
    write_capsule(&desk.path("caller"), &caller_script(&callee));
    desk.write("caller", "tools.yaml", &format!("capsules: [{callee}]\n"));
    let file = desk.directory.path().join("data.txt");
    std::fs::write(&file, "content").expect("a directory of ours");
    let given = format!("file=@{}", file.display());
    let directory = desk.path("caller").display().to_string();
    let arguments = ["run", &directory, "-i", &given, "-o", "made"];
    // The callee must declare its file: AOD puts only declared files into `incoming`.
    desk.write(
        "callee",
        "schema.json",
        r#"{"input": {}, "output": {"properties": {"file": {"type": "string", "format": "file_path"}}}}"#,
    );
    let ran = desk.run(&arguments).with(0);
    assert_eq!(ran.json(), json!({"was_successful": true}));
    assert!(!ran.stderr.contains("cannot find"), "{}", ran.stderr);
    let is_drawn = |line: &str| line.contains("─ ") && line.contains(&callee);
    assert!(ran.stderr.lines().any(is_drawn), "{}", ran.stderr);

    let elsewhere = desk.directory.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).expect("a directory of ours");
    let moved = elsewhere.join(&callee);
    std::fs::rename(desk.path("callee"), &moved).expect("a directory of ours");
    let missing = desk.run(&arguments);
    let notice = format!(
        "cannot find {callee}, which {} may call: add the directory of {callee} with --with DIR",
        desk.name("caller")
    );
    assert!(missing.stderr.contains(&notice), "{}", missing.stderr);
    let with = moved.display().to_string();
    let arguments: Vec<&str> = arguments.into_iter().chain(["--with", &with]).collect();
    desk.run(&arguments).with(0);
    desk.assert_nothing_is_left();
}

/// Writes a caller without its callee, and a test case with canned answers.
fn with_canned_answers(desk: &Desk, handoffs: &str) {
    let callee = desk.name("callee");
    write_capsule(&desk.path("caller"), &caller_script(&callee));
    desk.write("caller", "tools.yaml", &format!("capsules: [{callee}]\n"));
    let case = "tests/cases/one";
    desk.write("caller", &format!("{case}/files/data.txt"), "content");
    desk.write("caller", &format!("{case}/input.yaml"), "file: data.txt\n");
    desk.write("caller", &format!("{case}/answer.txt"), "canned");
    desk.write(
        "caller",
        &format!("{case}/expect.json"),
        r#"{"output": {"was_successful": true}, "files": {"made.txt": {"contains": "canned"}}}"#,
    );
    desk.write(
        "caller",
        &format!("{case}/handoffs.yaml"),
        &format!("{callee}:\n{handoffs}"),
    );
}

#[test]
fn capsule_test_replaces_callees_by_canned_answers() {
    let desk = Desk::new();
    with_canned_answers(
        &desk,
        "- when: {file: data.txt}\n  output: {text: made.txt}\n  files: {made.txt: answer.txt}\n",
    );
    let directory = desk.path("caller").display().to_string();
    let tested = desk
        .run(&["test", &directory, "--junit", "junit.xml"])
        .with(0);
    let line = format!("ok    {}/one  ", desk.name("caller"));
    assert!(tested.stdout.starts_with(&line), "{}", tested.stdout);
    let xml = read(&desk.directory.path().join("junit.xml"));
    assert!(xml.contains("tests=\"1\" failures=\"0\""), "{xml}");
    desk.assert_nothing_is_left();
}

/// On a terminal, a line shows what the command waits for, and the results appear above it.
#[test]
fn terminal_shows_what_a_test_waits_for() {
    let desk = Desk::new();
    write_capsule(&desk.path("echo"), ECHO);
    desk.write("echo", "tests/cases/one/input.json", "{\"a\": 1}");
    desk.write(
        "echo",
        "tests/cases/one/expect.json",
        "{\"output\": {\"a\": 1}}",
    );
    let command = desk.command(&["test", &desk.name("echo")]);
    let words: Vec<_> = [command.get_program()]
        .into_iter()
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let mut terminal = Command::new("script");
    terminal
        .args([
            "--quiet",
            "--return",
            "--command",
            &words.join(" "),
            "/dev/null",
        ])
        .current_dir(desk.directory.path())
        .env("TERM", "xterm")
        .stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => terminal.env(name, value),
            None => terminal.env_remove(name),
        };
    }
    let ended: Ended = terminal.output().expect("the program starts").into();
    let shown = ended.with(0).stdout;
    for text in [
        "starting a private cluster",
        "building the image",
        "1 case passed",
    ] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    desk.assert_nothing_is_left();
}

#[test]
fn capsule_test_passes_the_model_script_to_the_capsule() {
    let desk = Desk::new();
    let script = r#"echo "{\"model\": \"$AOD_MODEL\"}" > /io/output.json; cp "${AOD_MODEL#script/}" /io/output/said.txt"#;
    write_capsule(&desk.path("asking"), script);
    let case = "tests/cases/one";
    desk.write("asking", &format!("{case}/script.yaml"), "- text: done\n");
    desk.write(
        "asking",
        &format!("{case}/expect.json"),
        r#"{"output": {"model": "script//io/script.yaml"}, "files": {"said.txt": {"contains": "- text: done"}}}"#,
    );
    let directory = desk.path("asking").display().to_string();
    desk.run(&["test", &directory]).with(0);
    desk.assert_nothing_is_left();
}

#[test]
fn capsule_test_reports_all_differences() {
    let desk = Desk::new();
    with_canned_answers(
        &desk,
        "- when: {file: other.txt}\n  output: {}\n- error: {code: no_rows, message: none}\n",
    );
    let callee = desk.name("callee");
    let tools = format!("capsules: [{callee}]\n# longer\n");
    desk.write("caller", "tools.yaml", &tools);
    let directory = desk.path("caller").display().to_string();
    let tested = desk.run(&["test", &directory, "--format", "json"]).with(1);
    assert!(
        tested.stderr.contains("error: 1 of 1 case failed"),
        "{}",
        tested.stderr
    );
    assert_eq!(
        tested.json()[0]["differences"],
        json!([
            "/was_successful: expected true, got false",
            "file made.txt: expected, but the run produced no files",
            format!("handoffs.yaml: answer {callee}/0 was not used"),
        ])
    );

    desk.write(
        "caller",
        "tests/cases/one/handoffs.yaml",
        &format!("{callee}: []\n"),
    );
    let tested = desk.run(&["test", &directory, "--format", "json"]).with(1);
    let differences: Vec<Value> = tested.json()[0]["differences"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let expected =
        format!("call of {callee}: no unused canned answer matches {{\"file\":\"data.txt\"}}");
    assert!(differences.contains(&json!(expected)), "{differences:?}");
    desk.assert_nothing_is_left();
}

#[test]
fn new_capsule_passes_its_test() {
    let desk = Desk::new();
    let name = desk.name("plain");
    let made = desk.run(&["new", &name]).with(0);
    assert_eq!(made.stdout, format!("{name}\n"));
    assert!(
        made.stderr
            .contains(&format!("next: aod capsule test {name}"))
    );
    desk.run(&["new", &name]).with(2);
    desk.run(&["validate", &name, "--strict"]).with(0);
    let tested = desk.run(&["test", &name]).with(0);
    assert!(tested.stderr.contains("1 case passed"), "{}", tested.stderr);
}

/// The images install packages from PyPI, as the images of users do.
#[test]
fn new_capsules_in_python_pass_their_tests() {
    let desk = Desk::new();
    let (software, orchestrator) = (desk.name("software"), desk.name("orchestrator"));
    desk.run(&["new", &software, "--template", "software"])
        .with(0);
    desk.run(&["new", &orchestrator, "--template", "orchestrator"])
        .with(0);
    // As after a checkout in which only sources are committed.
    for name in [&software, &orchestrator] {
        std::fs::remove_dir_all(desk.directory.path().join(name).join("vendor"))
            .expect("the wheel is there");
    }
    desk.assert_two_cases_pass([&software, &orchestrator]);
}

/// The test cases contain the answers of models, so no key is needed.
#[test]
fn new_capsules_with_agents_pass_their_tests() {
    let desk = Desk::new();
    let (agent, mcp) = (desk.name("agent"), desk.name("mcp"));
    desk.run(&["new", &agent, "--template", "agent"]).with(0);
    desk.run(&["new", &mcp, "--template", "mcp"]).with(0);
    desk.run(&["validate", &agent, &mcp, "--strict"]).with(0);
    desk.assert_two_cases_pass([&agent, &mcp]);
}

/// With the schema of the callee, an input file and an output file.
#[test]
fn model_of_a_capsule_calls_another_capsule() {
    let desk = Desk::new();
    let (asking, sorter) = (desk.name("asking"), desk.name("sorter"));
    desk.run(&["new", &asking, "--template", "agent"]).with(0);
    desk.run(&["new", &sorter]).with(0);
    let tools = format!("capsules: [{{name: {sorter}, as: put_in_order, timeout_s: 60}}]\n");
    let file = json!({"type": "string", "format": "file_path"});
    let schema = json!({
        "input": {"required": ["text"], "properties": {"text": file}},
        "output": {"required": ["lines", "sorted"], "properties": {"lines": {"type": "integer"}, "sorted": file}},
    });
    let script = json!([
        {"tool": "put_in_order", "args": {"texts": "fruit.txt"}, "offered": ["put_in_order"]},
        {"tool": "put_in_order", "args": {"text": "fruit.txt"}, "result": "The arguments are invalid"},
        {"output": {"lines": 1, "sorted": "no.txt"}, "result": {"output": {"lines": 1}, "files": ["sorted.txt"]}},
        {"output": {"lines": 1, "sorted": "sorted.txt"}, "result": "/sorted"},
    ]);
    let case = "tests/cases/fruit";
    for (file, text) in [
        ("tools.yaml", tools),
        ("schema.json", schema.to_string()),
        ("src/ai/task.md", "Sort {{ text }}.".to_owned()),
        (
            "src/main.py",
            "def execute(inputs, ctx):\n    return ctx.agent().run().output\n".to_owned(),
        ),
        (
            &format!("{case}/input.json"),
            r#"{"text": "fruit.txt"}"#.to_owned(),
        ),
        (&format!("{case}/script.yaml"), script.to_string()),
        (
            &format!("{case}/expect.json"),
            r#"{"output": {"lines": 1, "sorted": "sorted.txt"}, "files": {"sorted.txt": {"contains": "Figs"}}}"#.to_owned(),
        ),
    ] {
        desk.write("asking", file, &text);
    }
    desk.run(&["test", &asking, "--with", &sorter]).with(0);
    desk.assert_nothing_is_left();
}
