//! Values of single fields: texts, words, numbers, lists.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use aod_domain::contract::pointer_part;
use serde_json::{Map, Value};

use super::Fields;

impl Fields {
    pub fn text(&mut self, key: &'static str) -> Option<String> {
        match self.take(key)? {
            Value::String(text) => Some(text),
            other => {
                self.wrong(format_args!("/{key}"), &other, "a string");
                None
            }
        }
    }

    /// A required string that must not be empty; returns an empty string on error.
    pub fn required_text(&mut self, key: &'static str) -> String {
        let had_errors = self.errors.len();
        let text = self.text(key).unwrap_or_default();
        if text.trim().is_empty() && self.errors.len() == had_errors {
            self.error(format_args!("/{key}"), "missing; expected a string");
        }
        text
    }

    /// A string that is parsed as `T`.
    pub fn word<T: FromStr<Err: Display>>(&mut self, key: &'static str) -> Option<T> {
        let text = self.text(key)?;
        self.parsed(format_args!("/{key}"), &text)
    }

    /// A required string that is parsed as `T`; none on error.
    pub fn required_word<T: FromStr<Err: Display>>(&mut self, key: &'static str) -> Option<T> {
        let had_errors = self.errors.len();
        let text = self.required_text(key);
        if self.errors.len() > had_errors {
            return None;
        }
        self.parsed(format_args!("/{key}"), &text)
    }

    /// `text` at `pointer` of this object, parsed as `T`.
    pub fn parsed<T: FromStr<Err: Display>>(
        &mut self,
        pointer: impl Display,
        text: &str,
    ) -> Option<T> {
        match text.parse() {
            Ok(word) => Some(word),
            Err(error) => {
                self.error(pointer, error.to_string());
                None
            }
        }
    }

    pub fn object(&mut self, key: &'static str) -> Option<Map<String, Value>> {
        match self.take(key)? {
            Value::Object(map) => Some(map),
            other => {
                self.wrong(format_args!("/{key}"), &other, "an object");
                None
            }
        }
    }

    pub fn list(&mut self, key: &'static str) -> Vec<Value> {
        match self.take(key) {
            None => Vec::new(),
            Some(Value::Array(items)) => items,
            Some(other) => {
                self.wrong(format_args!("/{key}"), &other, "a list");
                Vec::new()
            }
        }
    }

    /// A whole number of `range`.
    pub fn number<N>(&mut self, key: &'static str, range: RangeInclusive<N>) -> Option<N>
    where
        N: TryFrom<i64> + PartialOrd + Display,
    {
        let value = self.take(key)?;
        self.whole(format_args!("/{key}"), &value, &range)
    }

    /// A required whole number of `range`.
    pub fn required_number<N>(&mut self, key: &'static str, range: RangeInclusive<N>) -> Option<N>
    where
        N: TryFrom<i64> + PartialOrd + Display,
    {
        let value = self.take(key).unwrap_or_default();
        self.whole(format_args!("/{key}"), &value, &range)
    }

    fn whole<N>(&mut self, at: impl Display, value: &Value, range: &RangeInclusive<N>) -> Option<N>
    where
        N: TryFrom<i64> + PartialOrd + Display,
    {
        let number = value.as_i64().and_then(|number| N::try_from(number).ok());
        let number = number.filter(|number| range.contains(number));
        if number.is_none() {
            let (min, max) = (range.start(), range.end());
            self.wrong(
                at,
                value,
                format_args!("a whole number from {min} to {max}"),
            );
        }
        number
    }

    /// A boolean; default: false.
    pub fn flag(&mut self, key: &'static str) -> bool {
        match self.take(key) {
            None => false,
            Some(Value::Bool(flag)) => flag,
            Some(other) => {
                self.wrong(format_args!("/{key}"), &other, "true or false");
                false
            }
        }
    }

    /// A list of at most `count_max` strings, each parsed as `T`.
    pub fn words<T: FromStr<Err: Display>>(
        &mut self,
        key: &'static str,
        count_max: usize,
    ) -> Vec<T> {
        let given = self.list(key);
        self.bound(key, given.len(), count_max);
        let mut words = Vec::new();
        for (index, value) in given.iter().enumerate().take(count_max) {
            let pointer = format!("/{key}/{index}");
            let Some(text) = value.as_str() else {
                self.wrong(pointer, value, "a string");
                continue;
            };
            words.extend(self.parsed(pointer, text));
        }
        words
    }

    /// An object of at most `count_max` strings; names and values of at most `bytes_max` bytes each.
    pub fn texts(
        &mut self,
        key: &'static str,
        count_max: usize,
        bytes_max: usize,
    ) -> BTreeMap<String, String> {
        let given = self.object(key).unwrap_or_default();
        self.bound(key, given.len(), count_max);
        let mut texts = BTreeMap::new();
        for (name, value) in given.into_iter().take(count_max) {
            let pointer = format!("/{key}/{}", pointer_part(&name));
            match value {
                Value::String(text) if name.len().max(text.len()) <= bytes_max => {
                    texts.insert(name, text);
                }
                Value::String(_) => self.error(
                    pointer,
                    format!("too long; expected a name and a value of at most {bytes_max} bytes"),
                ),
                other => self.wrong(pointer, &other, "a string"),
            }
        }
        texts
    }

    /// An object of at most `count_max` whole numbers of `range`, with names that are parsed as `K`.
    pub fn numbers<K, N>(
        &mut self,
        key: &'static str,
        count_max: usize,
        range: &RangeInclusive<N>,
    ) -> BTreeMap<K, N>
    where
        K: FromStr<Err: Display> + Ord,
        N: TryFrom<i64> + PartialOrd + Display,
    {
        let given = self.object(key).unwrap_or_default();
        self.bound(key, given.len(), count_max);
        let mut numbers = BTreeMap::new();
        for (name, value) in given.into_iter().take(count_max) {
            let pointer = format!("/{key}/{}", pointer_part(&name));
            if let Some(name) = self.parsed(&pointer, &name)
                && let Some(number) = self.whole(&pointer, &value, range)
            {
                numbers.insert(name, number);
            }
        }
        numbers
    }

    fn bound(&mut self, key: &str, count: usize, count_max: usize) {
        if count > count_max {
            let message = format!("{count} items given; expected at most {count_max}");
            self.error(format_args!("/{key}"), message);
        }
    }
}
