//! Valid URLs, and the errors of invalid ones.

use super::*;

fn refusal(url: &str) -> String {
    match parse(url) {
        Err(OpenError::Url { why, .. }) => why,
        other => panic!("{url}: {other:?}"),
    }
}

#[test]
fn file_url_requires_absolute_path() {
    let Ok(Location::Directory(path)) = parse("file:///srv/aod%20files") else {
        panic!("a directory")
    };
    assert_eq!(path, Path::new("/srv/aod files"));
    assert!(refusal("file://host/srv").contains("absolute path"));
    assert!(refusal("/srv/aod").contains("relative URL"));
}

#[test]
fn invalid_urls_are_rejected_with_reason() {
    assert!(refusal("ftp://host/x").contains("unknown scheme `ftp`; expected file, s3, gs or az"));
    assert!(refusal("s3:///prefix").contains("the bucket is missing"));
    assert!(refusal("s3://user:secret@bucket/").contains("a password"));
    assert!(refusal("s3://bucket/?regio=x").contains("unknown parameter `regio`; expected one of"));
    assert!(refusal("s3://bucket/?credentials=/nowhere").contains("/nowhere"));
    assert!(refusal("s3://bucket/?endpoint=ftp://x").contains("neither http nor https"));
}

#[test]
fn plain_http_is_rejected_for_public_endpoints() {
    for near in [
        "127.0.0.1:9000",
        "[::1]:9000",
        "10.1.2.3",
        "192.168.0.9:1",
        "localhost:1",
    ] {
        assert_eq!(
            check_endpoint(&format!("http://{near}"), false),
            Ok(true),
            "{near}"
        );
    }
    for far in ["8.8.8.8", "s3.example.com", "[2001:db8::1]"] {
        assert!(
            check_endpoint(&format!("http://{far}"), false).is_err(),
            "{far}"
        );
        assert_eq!(
            check_endpoint(&format!("http://{far}"), true),
            Ok(true),
            "{far}"
        );
        assert_eq!(
            check_endpoint(&format!("https://{far}"), false),
            Ok(false),
            "{far}"
        );
    }
}

#[test]
fn bucket_of_each_kind_has_client() {
    let names = |url: &str| match parse(url) {
        Ok(Location::Remote { store, .. }) => store.to_string(),
        other => panic!("{url}: {other:?}"),
    };
    assert!(names("s3://bucket/?region=eu-west-1").contains("bucket"));
    assert!(names("s3://bucket/some/prefix?region=x").contains("some/prefix"));
    assert!(names("gs://bucket/").contains("bucket"));
}
