//! Finding and starting commands.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::{WaitOptions, waitpid};

use super::*;

/// Creates a file with this content and mode; returns its path.
fn file(directory: &Path, name: &str, content: &str, mode: u32) -> String {
    let path = directory.join(name);
    fs::write(&path, content).expect("a file in a temporary directory");
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("own file");
    path.to_str().expect("UTF-8").into()
}

/// Starts a command that cannot be started; returns the exit code and the text.
fn refused(argv: &[&str], search: &str) -> (u8, String) {
    let argv: Vec<_> = argv.iter().map(ToString::to_string).collect();
    let env = [("PATH".into(), search.into())];
    let error = start(&argv, &env, None).expect_err("a command that cannot be started");
    (error.exit_code(), error.to_string())
}

#[test]
fn first_executable_in_path_is_used() {
    let directories = tempfile::tempdir().expect("a directory");
    let [first, second, third] = ["first", "second", "third"].map(|name| {
        let path = directories.path().join(name);
        fs::create_dir(&path).expect("a directory");
        path
    });
    fs::create_dir(first.join("tool")).expect("a directory");
    file(&second, "tool", "no program", 0o644);
    let expected = file(&third, "tool", "a program", 0o755);
    let search = [&first, &second, &third]
        .map(|path| path.display().to_string())
        .join(":");
    assert_eq!(
        find("tool", &search).expect("the third"),
        PathBuf::from(expected)
    );

    let search = [&first, &second]
        .map(|path| path.display().to_string())
        .join(":");
    let (code, text) = refused(&["tool"], &search);
    assert_eq!(code, 126);
    assert!(
        text.ends_with("/first/tool: is a directory or not executable"),
        "{text}"
    );
}

#[test]
fn last_path_of_environment_counts_with_docker_default() {
    let path = |value: &str| ("PATH".to_owned(), value.to_owned());
    assert_eq!(
        search_path(&[path("/a"), ("HOME".into(), "/".into()), path("/b")]),
        "/b"
    );
    assert_eq!(search_path(&[]), PATH_DEFAULT);
    assert_eq!(
        find("sh", PATH_DEFAULT)
            .expect("every host has one")
            .file_name(),
        Some("sh".as_ref())
    );
}

#[test]
fn empty_directory_in_path_is_working_directory() {
    // Cargo runs tests in the directory of their package; nothing there is executable.
    assert_eq!(refused(&["Cargo.toml"], "/nowhere:").0, 126);
    assert_eq!(refused(&["Cargo.toml"], "/nowhere").0, 127);
    assert_eq!(refused(&["src/../Cargo.toml"], "").0, 126);
}

#[test]
fn missing_command_exits_with_127() {
    assert_eq!(
        refused(&["no-such"], "/bin"),
        (127, "no-such: not found in PATH=/bin".into())
    );
    assert_eq!(
        refused(&["/no/such"], "/bin"),
        (127, "/no/such: no such file".into())
    );
    let none = "the image has no command; set ENTRYPOINT or CMD in the Dockerfile";
    assert_eq!(refused(&[], "/bin"), (127, none.into()));
    assert_eq!(refused(&[""], "/bin"), (127, none.into()));
    let directory = tempfile::tempdir().expect("a directory");
    let script = file(directory.path(), "script", "#!/no/interpreter\n", 0o755);
    let text = format!("{script}: its interpreter or loader does not exist");
    assert_eq!(refused(&[&script], "/bin"), (127, text));
}

#[test]
fn command_that_is_not_executable_exits_with_126() {
    let directory = tempfile::tempdir().expect("a directory");
    let text = "/bin: is a directory or not executable";
    assert_eq!(refused(&["/bin"], "/bin"), (126, text.into()));
    // The kernel rejects a file without an interpreter line; the gate tries no shell, as Docker.
    let plain = file(directory.path(), "plain", "exit 0\n", 0o755);
    let (code, text) = refused(&[&plain], "/bin");
    assert_eq!(code, 126);
    assert!(
        text.contains("cannot be started: Exec format error"),
        "{text}"
    );
    let (code, text) = refused(&["/bin/sh", "nul\0byte"], "/bin");
    assert_eq!(code, 126);
    assert!(text.contains("nul byte"), "{text}");
}

#[test]
fn started_command_leads_its_own_group() {
    let argv = ["sh", "-c", "exit 4"].map(Into::into);
    let started = start(&argv, &[], None).expect("a shell");
    let ended = waitpid(Some(started.main), WaitOptions::empty()).expect("own child");
    assert_eq!(ended.and_then(|(_, status)| status.exit_status()), Some(4));
    assert_ne!(started.main, rustix::process::getpid());
}
