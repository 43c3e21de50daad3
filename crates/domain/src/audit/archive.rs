//! The exact tar format of a bundle (POSIX.1-1988, `ustar`).
//!
//! A header depends only on name and size, so a reader can write it again and compare: every byte of a bundle has a
//! meaning that is checked.

use thiserror::Error;

/// Headers are one block; contents fill whole blocks.
pub const BLOCK_BYTES: usize = 512;

/// The end of an archive: two empty blocks.
pub const TRAILER_BYTES: usize = 2 * BLOCK_BYTES;

/// Longest name of an entry, in bytes. Source: the field in `ustar`.
const NAME_BYTES_MAX: usize = 100;

/// Positions of the header fields that are read, or filled in last.
const SIZE: std::ops::Range<usize> = 124..136;
const CHECKSUM: std::ops::Range<usize> = 148..156;

/// Largest size that fits the field in octal digits; a larger size is binary, as in GNU tar.
const OCTAL_SIZE_MAX: u64 = (1 << 33) - 1;

/// A block that is not a header of an entry.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum MalformedHeader {
    #[error("its name is not text")]
    Name,
    #[error("its size is not a number")]
    Size,
}

/// The content of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub name: String,
    pub size_bytes: u64,
}

impl Header {
    /// Parses `block` leniently; to check all its bytes, compare it with [`Header::to_block`].
    pub fn read(block: &[u8; BLOCK_BYTES]) -> Result<Self, MalformedHeader> {
        let name = &block[..NAME_BYTES_MAX];
        let end = name.iter().position(|byte| *byte == 0);
        let name = std::str::from_utf8(&name[..end.unwrap_or(NAME_BYTES_MAX)]);
        Ok(Self {
            name: name.map_err(|_| MalformedHeader::Name)?.to_owned(),
            size_bytes: read_size(&block[SIZE]).ok_or(MalformedHeader::Size)?,
        })
    }

    /// The header of a regular file that everyone can read, without owner and time.
    ///
    /// # Panics
    /// If the name is longer than 100 bytes; names of bundle entries are shorter.
    pub fn to_block(&self) -> [u8; BLOCK_BYTES] {
        let mut block = [0; BLOCK_BYTES];
        let mut put = |at: usize, bytes: &[u8]| {
            block[at..at + bytes.len()].copy_from_slice(bytes);
        };
        assert!(self.name.len() <= NAME_BYTES_MAX, "names of ours are short");
        put(0, self.name.as_bytes());
        put(100, b"0000644\0");
        put(108, b"0000000\0");
        put(116, b"0000000\0");
        put(SIZE.start, &size_field(self.size_bytes));
        put(136, b"00000000000\0");
        put(CHECKSUM.start, b"        ");
        put(156, b"0");
        put(257, b"ustar\x0000");
        put(329, b"0000000\0");
        put(337, b"0000000\0");
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        block
    }
}

fn size_field(size_bytes: u64) -> [u8; 12] {
    let mut field = [0; 12];
    if size_bytes <= OCTAL_SIZE_MAX {
        field[..11].copy_from_slice(format!("{size_bytes:011o}").as_bytes());
    } else {
        field[0] = 0x80;
        field[4..].copy_from_slice(&size_bytes.to_be_bytes());
    }
    field
}

fn read_size(field: &[u8]) -> Option<u64> {
    if field[0] == 0x80 {
        let bytes: [u8; 8] = field[4..].try_into().ok()?;
        return Some(u64::from_be_bytes(bytes));
    }
    let digits = std::str::from_utf8(field).ok()?;
    u64::from_str_radix(digits.trim_end_matches(['\0', ' ']), 8).ok()
}

/// Zero bytes that fill the last block of `size_bytes`.
pub fn padding(size_bytes: u64) -> usize {
    let over = usize::try_from(size_bytes % BLOCK_BYTES as u64).expect("less than a block");
    (BLOCK_BYTES - over) % BLOCK_BYTES
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn header_round_trips(name in "[a-z0-9/.]{1,100}", size_bytes: u64) {
            let header = Header { name, size_bytes };
            prop_assert_eq!(Header::read(&header.to_block()), Ok(header));
        }

        #[test]
        fn no_block_panics(bytes in proptest::collection::vec(any::<u8>(), BLOCK_BYTES)) {
            let _ = Header::read(&bytes.try_into().expect("a block"));
        }
    }

    #[test]
    fn the_last_block_is_filled() {
        assert_eq!([0, 1, 511, 512, 513].map(padding), [0, 511, 1, 0, 511]);
    }
}
