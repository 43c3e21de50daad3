//! The end of an output.

use std::fmt::Write as _;

/// The last bytes of an output.
#[derive(Debug)]
pub(crate) struct Tail {
    bytes: Vec<u8>,
    kept_bytes: usize,
    /// Bytes before `bytes`.
    dropped_bytes: u64,
}

impl Tail {
    pub(crate) const fn new(kept_bytes: usize) -> Self {
        Self {
            bytes: Vec::new(),
            kept_bytes,
            dropped_bytes: 0,
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        // Not at each push: that would copy the whole tail each time.
        if self.bytes.len() > 2 * self.kept_bytes {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let cut = self.bytes.len().saturating_sub(self.kept_bytes);
        self.bytes.drain(..cut);
        self.dropped_bytes += cut as u64;
    }

    /// The bytes, and how many before them are not kept.
    pub(crate) fn into_bytes(mut self) -> (Vec<u8>, u64) {
        self.cut();
        (self.bytes, self.dropped_bytes)
    }

    /// The text, with a first line about what is not kept. Bytes that are not UTF-8 become U+FFFD.
    pub(crate) fn into_text(self) -> String {
        let (bytes, dropped_bytes) = self.into_bytes();
        let mut kept = &bytes[..];
        let mut text = String::with_capacity(bytes.len());
        if dropped_bytes > 0 {
            let is_middle = |byte: &&u8| **byte & 0xc0 == 0x80;
            let rest = kept.iter().take(3).take_while(is_middle).count();
            kept = &kept[rest..];
            let dropped_bytes = dropped_bytes + rest as u64;
            let _ = writeln!(
                text,
                "[aod: {dropped_bytes} bytes before this were dropped]"
            );
        }
        text.push_str(&String::from_utf8_lossy(kept));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(kept_bytes: usize, pieces: &[&[u8]]) -> String {
        let mut tail = Tail::new(kept_bytes);
        for piece in pieces {
            tail.push(piece);
        }
        tail.into_text()
    }

    #[test]
    fn output_within_the_limit_is_whole() {
        assert_eq!(text(4, &[b"ab", b"cd"]), "abcd");
        assert_eq!(text(4, &[]), "");
        assert_eq!(text(4, &[b"a\xffb"]), "a\u{fffd}b");
    }

    #[test]
    fn longer_output_keeps_its_end_and_says_what_is_missing() {
        let pieces: Vec<&[u8]> = vec![b"0123456789"; 1_000];
        let expected = "[aod: 9996 bytes before this were dropped]\n6789";
        assert_eq!(text(4, &pieces), expected);
    }

    #[test]
    fn output_is_cut_between_characters() {
        let smile = "\u{1f600}";
        let both = [smile, smile].concat();
        let expected = format!("[aod: 4 bytes before this were dropped]\n{smile}");
        for kept_bytes in 4..8 {
            assert_eq!(text(kept_bytes, &[both.as_bytes()]), expected);
        }
    }
}
