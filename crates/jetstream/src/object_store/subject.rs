//! Subjects of a bucket: `obj.<bucket>.m.<path>` for records, `obj.<bucket>.c.<upload>.<part>.<n>` for
//! chunks. Each segment of a path is one token, in base64 for URLs, so that a prefix of whole segments
//! is a filter.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use object_store::path::Path;
use uuid::Uuid;

/// Maximum subject, in bytes: a fourth of the server's maximum line (`MAX_CONTROL_LINE_SIZE` of
/// nats-server, 4096), which also contains a reply subject and more.
const SUBJECT_BYTES_MAX: usize = 1024;

/// The subjects of one bucket.
#[derive(Debug, Clone)]
pub(super) struct Subjects {
    prefix: String,
}

impl Subjects {
    /// `bucket` must be one token: [`super::bucket`] checks this.
    pub(super) fn new(bucket: &str) -> Self {
        Self {
            prefix: format!("obj.{bucket}"),
        }
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(super) fn all(&self) -> String {
        format!("{}.>", self.prefix)
    }

    pub(super) fn record(&self, location: &Path) -> object_store::Result<String> {
        let subject = self.path_subject(location);
        if location.is_root() || subject.len() > SUBJECT_BYTES_MAX {
            return Err(super::generic(format!(
                "the path {location:?} is empty or too long"
            )));
        }
        Ok(subject)
    }

    /// Filter of the records below `prefix`.
    pub(super) fn records(&self, prefix: Option<&Path>) -> String {
        prefix.map_or_else(
            || format!("{}.m.>", self.prefix),
            |path| self.path_subject(path) + ".>",
        )
    }

    pub(super) fn chunk(&self, upload: Uuid, part: usize, number: u64) -> String {
        format!("{}.c.{}.{part}.{number}", self.prefix, upload.simple())
    }

    pub(super) fn chunks_of(&self, upload: Uuid) -> String {
        format!("{}.c.{}.>", self.prefix, upload.simple())
    }

    pub(super) fn chunks(&self) -> String {
        format!("{}.c.>", self.prefix)
    }

    /// The path of a record's subject.
    pub(super) fn location(&self, subject: &str) -> Option<Path> {
        let tokens = subject.strip_prefix(&self.prefix)?.strip_prefix(".m.")?;
        let mut text = String::with_capacity(tokens.len());
        for token in tokens.split('.') {
            if !text.is_empty() {
                text.push('/');
            }
            text.push_str(&String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok()?);
        }
        Path::parse(text).ok()
    }

    /// The upload of a chunk's subject.
    pub(super) fn upload(&self, subject: &str) -> Option<Uuid> {
        let tokens = subject.strip_prefix(&self.prefix)?.strip_prefix(".c.")?;
        Uuid::parse_str(tokens.split('.').next()?).ok()
    }

    fn path_subject(&self, location: &Path) -> String {
        let mut subject = format!("{}.m", self.prefix);
        for part in location.parts() {
            subject.push('.');
            URL_SAFE_NO_PAD.encode_string(part.as_ref(), &mut subject);
        }
        subject
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_restored_from_subjects() {
        let subjects = Subjects::new("files");
        for text in [
            "a",
            "sha256/ab/abcdef",
            "x/*/>",
            "a b/ü/.hidden.",
            "x%2Fy/z",
        ] {
            let path = Path::from(text);
            let subject = subjects.record(&path).expect("a path that can be stored");
            assert_eq!(subjects.location(&subject), Some(path), "{subject}");
        }
    }

    #[test]
    fn prefix_filters_whole_segments() {
        let subjects = Subjects::new("files");
        let filter = subjects.records(Some(&Path::from("sha256/ab")));
        let below = |path: &str| {
            let subject = subjects
                .record(&Path::from(path))
                .expect("a path that can be stored");
            subject.starts_with(filter.trim_end_matches('>'))
        };
        assert!(below("sha256/ab/x"));
        assert!(!below("sha256/abc/x"));
        assert!(!below("sha256/ab"));
    }

    #[test]
    fn invalid_paths_and_subjects_are_rejected() {
        let subjects = Subjects::new("files");
        assert!(subjects.record(&Path::ROOT).is_err());
        assert!(subjects.record(&Path::from("x".repeat(800))).is_err());
        assert_eq!(subjects.location("obj.other.m.YQ"), None);
        assert_eq!(subjects.upload("obj.files.c.nonsense.0.0"), None);
    }
}
