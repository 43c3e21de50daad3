//! Strict reading of the query of a request: reports all unknown and malformed parameters together.

use std::str::FromStr;

use aod_api::problem::ProblemItem;
use aod_domain::tenant::Tenant;
use axum::extract::Query;
use axum::http::Uri;

use crate::error::{Error, Result};
use aod_domain::access::Principal;

/// Default and maximum number of items of a page.
const PAGE_SIZE_DEFAULT: usize = 50;
const PAGE_SIZE_MAX: usize = 500;

/// The requested page of a list.
#[derive(Debug)]
pub(crate) struct Page {
    /// From 1 to [`PAGE_SIZE_MAX`].
    pub(crate) limit: usize,
    /// The end of the previous page.
    pub(crate) cursor: Option<String>,
    /// The sequence that the list must contain.
    pub(crate) at_least: u64,
}

/// The parameters that are not taken yet, and the problems so far.
#[derive(Debug)]
pub(crate) struct Parameters {
    given: Vec<(String, String)>,
    known: Vec<&'static str>,
    errors: Vec<ProblemItem>,
}

impl Parameters {
    pub(crate) fn of(uri: &Uri) -> Result<Self> {
        let given = Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|error| Error::malformed("the query is malformed").because(error))?;
        Ok(Self {
            given: given.0,
            known: Vec::new(),
            errors: Vec::new(),
        })
    }

    /// All values of `name`, in their order.
    pub(crate) fn all(&mut self, name: &'static str) -> Vec<String> {
        self.known.push(name);
        let (taken, rest) = std::mem::take(&mut self.given)
            .into_iter()
            .partition(|(key, _)| key == name);
        self.given = rest;
        let taken: Vec<(String, String)> = taken;
        taken.into_iter().map(|(_, value)| value).collect()
    }

    pub(crate) fn text(&mut self, name: &'static str) -> Option<String> {
        let mut values = self.all(name);
        if values.len() > 1 {
            self.errors
                .push(ProblemItem::new(format!("?{name}"), "given more than once"));
        }
        values.pop()
    }

    /// The only value of `name`, parsed as `T`; `expected` describes valid values.
    pub(crate) fn value<T: FromStr>(&mut self, name: &'static str, expected: &str) -> Option<T> {
        let text = self.text(name)?;
        let value = text.parse().ok();
        if value.is_none() {
            let shown: String = text.chars().take(80).collect();
            self.errors.push(ProblemItem::new(
                format!("?{name}"),
                format!("{shown:?} given; expected {expected}"),
            ));
        }
        value
    }

    /// The number of items, from 1 to [`PAGE_SIZE_MAX`].
    pub(crate) fn limit(&mut self) -> usize {
        let limit = self.value("limit", "a number from 1 to 500");
        limit.unwrap_or(PAGE_SIZE_DEFAULT).clamp(1, PAGE_SIZE_MAX)
    }

    pub(crate) fn page(&mut self) -> Page {
        let limit = self.limit();
        let cursor = self.text("cursor");
        let at_least = self.value("at_least", "a sequence number of the log");
        Page {
            limit,
            cursor,
            at_least: at_least.unwrap_or_default(),
        }
    }

    /// The tenant to query: that of `principal`, or the requested one if `principal` sees all tenants.
    pub(crate) fn tenant(&mut self, principal: &Principal) -> Option<Tenant> {
        let asked = self.value::<Tenant>("tenant", "1 to 63 of a-z, 0-9 and -");
        let own = principal.scope.tenant();
        if let (Some(_), Some(own)) = (asked.as_ref().filter(|asked| Some(*asked) != own), own) {
            self.error("tenant", format!("expected {own}, the tenant of the token"));
        }
        own.cloned().or(asked)
    }

    /// Records a problem with the value of `name`.
    pub(crate) fn error(&mut self, name: &str, message: impl Into<String>) {
        self.errors
            .push(ProblemItem::new(format!("?{name}"), message));
    }

    /// Reports all problems; to be called last.
    pub(crate) fn finish(mut self) -> Result<()> {
        for (name, _) in &self.given {
            let known = self.known.join(", ");
            let hint = if known.is_empty() {
                "this route has no parameters".into()
            } else {
                format!("expected one of {known}")
            };
            let shown: String = name.chars().take(80).collect();
            self.errors.push(ProblemItem::new(
                format!("?{shown}"),
                format!("no such parameter; {hint}"),
            ));
        }
        if self.errors.is_empty() {
            return Ok(());
        }
        Err(Error::malformed("the query has invalid parameters").with_errors(self.errors))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_problems_of_a_query_are_reported_together() {
        let uri = Uri::from_static("/v1/runs?limit=many&wrong=1&state=queued&state=failed");
        let mut parameters = Parameters::of(&uri).unwrap();
        assert_eq!(parameters.all("state"), ["queued", "failed"]);
        assert_eq!(parameters.value::<u32>("limit", "a number"), None);
        let errors = parameters.finish().unwrap_err().problem().errors.clone();
        let places: Vec<_> = errors.iter().map(|error| error.pointer.as_str()).collect();
        assert_eq!(places, ["?limit", "?wrong"]);
    }
}
