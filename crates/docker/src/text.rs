//! Cutting texts that come from elsewhere.

/// The beginning of `text`, at most `size_bytes_max` long and never ending within a character.
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
    fn no_character_is_cut() {
        assert_eq!(beginning("aä", 2), "a");
        assert_eq!(beginning("aä", 3), "aä");
        assert_eq!(beginning("aä", 9), "aä");
    }
}
