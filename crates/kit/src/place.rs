//! Finds line and column of a JSON pointer's value in a text. The text must be JSON.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// From 1; 0 if unknown.
    pub(super) line: u64,
    /// In characters, from 1; 0 if unknown.
    pub(super) column: u64,
}

/// The place of the value at `pointer` (RFC 6901), if that value exists.
pub(super) fn place_of(text: &[u8], pointer: &str) -> Option<Place> {
    let mut scanner = Scanner { text, position: 0 };
    scanner.space();
    for part in pointer.split('/').skip(1) {
        let part = part.replace("~1", "/").replace("~0", "~");
        match scanner.peek()? {
            b'{' => scanner.enter_member(&part)?,
            b'[' => scanner.enter_element(part.parse().ok()?)?,
            _ => return None,
        }
    }
    Some(scanner.place())
}

/// The pointer to the member `name` of the value at `pointer`.
pub(super) fn below(pointer: &str, name: &str) -> String {
    format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// Scans JSON; its methods return none for other text.
struct Scanner<'a> {
    text: &'a [u8],
    position: usize,
}

impl Scanner<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.position).copied()
    }

    fn space(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.position += 1;
        }
    }

    /// Skips `expected` and the space around it.
    fn pass(&mut self, expected: u8) -> Option<()> {
        self.space();
        (self.peek()? == expected).then(|| self.position += 1)?;
        self.space();
        Some(())
    }

    fn enter_member(&mut self, name: &str) -> Option<()> {
        self.pass(b'{')?;
        loop {
            let start = self.position;
            self.string()?;
            let found: String = serde_json::from_slice(&self.text[start..self.position]).ok()?;
            self.pass(b':')?;
            if found == name {
                return Some(());
            }
            self.value()?;
            self.pass(b',')?;
        }
    }

    fn enter_element(&mut self, index: usize) -> Option<()> {
        self.pass(b'[')?;
        for _ in 0..index {
            self.value()?;
            self.pass(b',')?;
        }
        Some(())
    }

    fn string(&mut self) -> Option<()> {
        self.position += 1;
        while self.peek()? != b'"' {
            self.position += if self.peek()? == b'\\' { 2 } else { 1 };
        }
        self.position += 1;
        Some(())
    }

    /// Skips a whole value, without recursion.
    fn value(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.peek()? {
                b'"' => self.string()?,
                b'{' | b'[' => {
                    depth += 1;
                    self.position += 1;
                }
                b'}' | b']' | b',' if depth == 0 => return Some(()),
                b'}' | b']' => {
                    depth -= 1;
                    self.position += 1;
                }
                _ => self.position += 1,
            }
        }
    }

    fn place(&self) -> Place {
        let before = String::from_utf8_lossy(&self.text[..self.position]);
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        Place {
            line: before.matches('\n').count() as u64 + 1,
            column: before[line_start..].chars().count() as u64 + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "{\n  \"ü\": [1, {\"a\": \"x]\\\"\"}, [2, 3]],\n  \"b/c\": {\"d\": null}\n}";

    fn check(pointer: &str, expected: Option<(u64, u64)>) {
        let found = place_of(TEXT.as_bytes(), pointer).map(|place| (place.line, place.column));
        assert_eq!(found, expected, "{pointer}");
    }

    #[test]
    fn pointer_resolves_to_line_and_column() {
        check("", Some((1, 1)));
        check("/ü", Some((2, 8)));
        check("/ü/0", Some((2, 9)));
        check("/ü/1/a", Some((2, 18)));
        check("/ü/2/1", Some((2, 31)));
        check("/b~1c/d", Some((3, 16)));
        check("/none", None);
        check("/ü/7", None);
        check("/ü/0/x", None);
    }
}
