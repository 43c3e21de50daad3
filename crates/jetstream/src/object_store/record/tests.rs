//! Layouts: every byte comes once, in order, from its chunk.

use super::*;

/// Splits `sizes` into chunks of 4 bytes and reads `range` of bytes that count up from 0.
fn check(sizes: &[u64], range: Range<u64>) {
    let layout = Layout::of(sizes.iter().copied(), 4);
    assert_eq!(layout.size_bytes(), sizes.iter().sum::<u64>());
    let begin_of_part = |part: usize| sizes[..part].iter().sum::<u64>();
    let read: Vec<u64> = layout
        .pieces(range.clone())
        .flat_map(|piece| {
            assert!(
                piece.wanted.end <= piece.chunk_bytes && piece.chunk_bytes <= 4,
                "{piece:?}"
            );
            let begin = begin_of_part(piece.part) + piece.number * 4;
            piece.wanted.map(move |offset| begin + offset as u64)
        })
        .collect();
    assert_eq!(read, range.collect::<Vec<_>>(), "{sizes:?}");
}

#[test]
fn pieces_cover_exactly_the_range() {
    for sizes in [
        &[1][..],
        &[4],
        &[5],
        &[8, 8, 8, 3],
        &[10, 10, 4],
        &[3, 0, 9],
        &[4, 4, 4],
    ] {
        let size: u64 = sizes.iter().sum();
        for start in 0..size {
            for end in start + 1..=size {
                check(sizes, start..end);
            }
        }
    }
}

#[test]
fn equal_parts_are_stored_as_one_entry() {
    let layout = Layout::of([8, 8, 8, 3], 4);
    assert_eq!(layout.parts, [(8, 3), (3, 1)]);
    let json = serde_json::to_string(&layout).expect("JSON");
    assert_eq!(json, r#"{"chunk_bytes":4,"parts":[[8,3],[3,1]]}"#);
}
