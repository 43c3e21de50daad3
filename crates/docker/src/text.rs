//! Cuts texts of foreign origin.

/// The beginning of `text`, at most `size_bytes_max` long, cut between characters.
pub(crate) fn beginning(text: &str, size_bytes_max: usize) -> &str {
    let mut end = text.len().min(size_bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginning_of_text_ends_between_characters() {
        assert_eq!(beginning("aä", 2), "a");
        assert_eq!(beginning("aä", 3), "aä");
        assert_eq!(beginning("aä", 9), "aä");
    }
}
