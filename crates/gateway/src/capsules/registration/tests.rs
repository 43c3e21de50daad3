//! Tests of valid and invalid packages.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write as _};

use tar::{EntryType, Header};

use super::package::{PACKAGE_BYTES_MAX, Package};

const SCHEMA: &[u8] = br#"{"input": {"type": "object"}, "output": {"type": "object"}}"#;

fn pack(files: &[(&str, &[u8])]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut builder = tar::Builder::new(file.reopen().unwrap());
    for (name, bytes) in files {
        let mut header = tar::Header::new_ustar();
        // As in a hostile package: the library itself rejects `..`.
        header.as_ustar_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        builder.append(&header, *bytes).unwrap();
    }
    builder.finish().unwrap();
    file
}

fn check_refused(files: &[(&str, &[u8])], expected: &[&str]) {
    let problems = Package::read(pack(files).path()).unwrap_err();
    let places: Vec<_> = problems
        .iter()
        .map(|problem| problem.pointer.as_str())
        .collect();
    assert_eq!(places, expected, "{problems:?}");
}

#[test]
fn plain_directory_is_read() {
    let agent = b"name: chart\ntitle: Chart maker\n";
    let tools = b"capsules: [report]\n";
    let files: [(&str, &[u8]); 4] = [
        ("./Dockerfile", b"FROM scratch"),
        ("schema.json", SCHEMA),
        ("agent.yaml", agent),
        ("tools.yaml", tools),
    ];
    let package = Package::read(pack(&files).path()).unwrap();
    assert_eq!(package.agent.title.as_deref(), Some("Chart maker"));
    assert_eq!(package.tools.capsules[0].target, "report");
    assert_eq!(package.schema_json, SCHEMA);
}

#[test]
fn all_missing_files_are_reported_together() {
    check_refused(&[("src/main.py", b"")], &["/Dockerfile", "/schema.json"]);
}

#[test]
fn mistakes_are_reported_with_their_files() {
    check_refused(
        &[
            ("Dockerfile", b""),
            ("schema.json", b"{}"),
            ("agent.yaml", b"titel: x\n"),
        ],
        &["/agent.yaml:1:1", "/schema.json#", "/schema.json#"],
    );
}

#[test]
fn names_outside_the_directory_are_rejected() {
    check_refused(
        &[("Dockerfile", b""), ("schema.json", SCHEMA), ("../x", b"")],
        &[""],
    );
    check_refused(
        &[
            ("Dockerfile", b""),
            ("schema.json", SCHEMA),
            ("/etc/x", b""),
        ],
        &[""],
    );
}

#[test]
fn linked_file_that_aod_reads_is_rejected() {
    for name in ["Dockerfile", "schema.json", "agent.yaml", "tools.yaml"] {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut builder = tar::Builder::new(file.reopen().unwrap());
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        builder.append_link(&mut header, name, "other").unwrap();
        builder.finish().unwrap();
        let problems = Package::read(file.path()).unwrap_err();
        assert_eq!(problems[0].pointer, format!("/{name}"));
        assert_eq!(
            problems[0].message,
            "a symbolic link; expected a regular file"
        );
    }
}

#[test]
fn links_out_of_the_directory_are_rejected() {
    let link = |target: &str| {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut builder = tar::Builder::new(file.reopen().unwrap());
        for (name, bytes) in [("Dockerfile", b"".as_slice()), ("schema.json", SCHEMA)] {
            let mut header = tar::Header::new_ustar();
            header.set_size(bytes.len() as u64);
            builder.append_data(&mut header, name, bytes).unwrap();
        }
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        builder
            .append_link(&mut header, "src/link", target)
            .unwrap();
        builder.finish().unwrap();
        Package::read(file.path()).is_ok()
    };
    assert!(link("../schema.json"));
    assert!(link("other"));
    assert!(!link("../../etc/passwd"));
    assert!(!link("/etc/passwd"));
    assert!(!link("a/../../../x"));
}

#[test]
fn file_that_is_not_tar_is_rejected() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), vec![b'x'; 2048]).unwrap();
    assert!(Package::read(file.path()).is_err());
}

/// Counts what is read of a file.
struct Counting {
    file: File,
    read_bytes: usize,
}

impl Read for Counting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size_bytes = self.file.read(buffer)?;
        self.read_bytes += size_bytes;
        Ok(size_bytes)
    }
}

impl Seek for Counting {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

#[test]
fn large_headers_are_refused_without_being_read() {
    for kind in [
        EntryType::GNULongName,
        EntryType::GNULongLink,
        EntryType::XHeader,
        EntryType::XGlobalHeader,
        EntryType::GNUSparse,
    ] {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(PACKAGE_BYTES_MAX);
        header.set_cksum();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(header.as_bytes()).unwrap();
        file.set_len(PACKAGE_BYTES_MAX).unwrap();
        file.rewind().unwrap();
        let mut archive = Counting {
            file,
            read_bytes: 0,
        };
        let problems = Package::read_archive(&mut archive).unwrap_err();
        let text = &problems[0].message;
        assert!(
            text.contains("expected at most 65536") || text.contains("without --sparse"),
            "{kind:?}: {text}"
        );
        assert!(
            archive.read_bytes < 1 << 20,
            "{kind:?}: {}",
            archive.read_bytes
        );
    }
}
