//! The tar file of a bundle, read as strictly as it is written: every byte is either content of an entry or compared
//! with the expected byte.

use std::io::{self, Read};

use aod_domain::audit::archive::{BLOCK_BYTES, Header, padding};
use aod_domain::audit::{Finding, FindingKind};
use aod_domain::digest::{Digest, Hasher};

/// Bytes per read.
const READ_BYTES: usize = 128 * 1024;

/// The next part of an archive.
#[derive(Debug)]
pub(crate) enum Next {
    Entry {
        header: Header,
        /// The hash of all bytes before its header.
        before: Digest,
    },
    /// The archive has ended, properly or not; findings report the difference.
    End { is_proper: bool },
}

/// An archive and the position of its reader.
#[derive(Debug)]
pub(crate) struct Archive<R> {
    reader: R,
    all: AllBytes,
    pub(crate) findings: Vec<Finding>,
}

/// Count and hash of all bytes so far.
#[derive(Default)]
struct AllBytes {
    hasher: Hasher,
    count: u64,
}

impl std::fmt::Debug for AllBytes {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} bytes", self.count)
    }
}

impl<R: Read> Archive<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self {
            reader,
            all: AllBytes::default(),
            findings: Vec::new(),
        }
    }

    /// Reads the next header, or the end.
    pub(crate) fn next(&mut self) -> io::Result<Next> {
        let (at, before) = (self.all.count, self.all.hasher.clone().finish());
        let mut block = [0; BLOCK_BYTES];
        if self.fill(&mut block)? < BLOCK_BYTES {
            self.find(FindingKind::Length, at, "the end of the file", "a header");
            return Ok(Next::End { is_proper: false });
        }
        if block == [0; BLOCK_BYTES] {
            return self.end();
        }
        let header = match Header::read(&block) {
            Ok(header) => header,
            Err(error) => {
                let found = format!("an unreadable header: {error}");
                self.find(FindingKind::Archive, at, &found, "a header");
                return Ok(Next::End { is_proper: false });
            }
        };
        self.compare(
            &format!("header of {}", header.name),
            at,
            &block,
            &header.to_block(),
        );
        Ok(Next::Entry { header, before })
    }

    /// After the first of the two empty blocks.
    fn end(&mut self) -> io::Result<Next> {
        let at = self.all.count;
        let mut block = [0; BLOCK_BYTES];
        if self.fill(&mut block)? < BLOCK_BYTES {
            let expected = "two empty blocks at its end";
            self.find(FindingKind::Length, at, "the end of the file", expected);
            return Ok(Next::End { is_proper: false });
        }
        self.compare("end of the archive", at, &block, &[0; BLOCK_BYTES]);
        let at = self.all.count;
        let more = self.fill(&mut block)?;
        if more > 0 {
            let expected = "the end of the file";
            self.find(FindingKind::Length, at, "more bytes", expected);
        }
        Ok(Next::End { is_proper: true })
    }

    /// The content of an entry that is held in memory; none if the archive ends within it.
    pub(crate) fn content(&mut self, header: &Header) -> io::Result<Option<Vec<u8>>> {
        let mut content = Vec::new();
        let is_whole = self.pieces(header, |piece| content.extend_from_slice(piece))?;
        Ok(is_whole.then_some(content))
    }

    /// The hash of the content of an entry; none if the archive ends within it.
    pub(crate) fn hash(&mut self, header: &Header) -> io::Result<Option<Digest>> {
        let mut hasher = Hasher::new();
        let is_whole = self.pieces(header, |piece| hasher.update(piece))?;
        Ok(is_whole.then(|| hasher.finish()))
    }

    /// Reads content and padding; returns whether the archive has all of it.
    fn pieces(&mut self, header: &Header, mut take: impl FnMut(&[u8])) -> io::Result<bool> {
        let mut buffer = vec![0; READ_BYTES];
        let mut left = header.size_bytes;
        while left > 0 {
            let wanted = usize::try_from(left).unwrap_or(READ_BYTES).min(READ_BYTES);
            let got = self.fill(&mut buffer[..wanted])?;
            take(&buffer[..got]);
            left -= got as u64;
            if got < wanted {
                return Ok(self.cut(header));
            }
        }
        let (at, wanted) = (self.all.count, padding(header.size_bytes));
        let got = self.fill(&mut buffer[..wanted])?;
        if got < wanted {
            return Ok(self.cut(header));
        }
        let place = format!("end of {}", header.name);
        self.compare(&place, at, &buffer[..wanted], &vec![0; wanted]);
        Ok(true)
    }

    fn cut(&mut self, header: &Header) -> bool {
        let expected = format!("{} bytes of {}", header.size_bytes, header.name);
        let at = self.all.count;
        self.find(FindingKind::Length, at, "the end of the file", &expected);
        false
    }

    /// Reads until `buffer` is full or the file ends.
    fn fill(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.reader.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                Err(error) => return Err(error),
            }
        }
        self.all.hasher.update(&buffer[..filled]);
        self.all.count += filled as u64;
        Ok(filled)
    }

    /// Reports the first byte that differs.
    fn compare(&mut self, place: &str, at: u64, found: &[u8], expected: &[u8]) {
        let mut pairs = found.iter().zip(expected).zip(at..);
        let differing = pairs.find(|((found, expected), _)| found != expected);
        if let Some(((found, expected), at)) = differing {
            self.findings.push(Finding {
                kind: FindingKind::Archive,
                place: format!("{place}, byte {at} of the file"),
                found: format!("{found:#04x}"),
                expected: format!("{expected:#04x}"),
            });
        }
    }

    fn find(&mut self, kind: FindingKind, at: u64, found: &str, expected: &str) {
        self.findings.push(Finding {
            kind,
            place: format!("byte {at} of the file"),
            found: found.to_owned(),
            expected: expected.to_owned(),
        });
    }
}
