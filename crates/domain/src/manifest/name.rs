//! How a target resolves to a capsule.

use thiserror::Error;

use crate::name::{CAPSULE_NAME_BYTES_MAX, CapsuleName};
use crate::text::{nearest, quoted};

/// The name for a title: `Capsule B` becomes `capsule-b`.
///
/// A name stays as it is. In other texts letters become lower case, everything else one `-`, and the result is cut to
/// the maximum length; none if no ASCII letter or digit is left.
pub fn slug(title: &str) -> Option<CapsuleName> {
    if let Ok(name) = CapsuleName::parse(title) {
        return Some(name);
    }
    let lower = title.to_ascii_lowercase();
    let words = lower.split(|character: char| !character.is_ascii_alphanumeric());
    let mut name = words
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join("-");
    name.truncate(CAPSULE_NAME_BYTES_MAX);
    CapsuleName::parse(name.trim_end_matches('-')).ok()
}

/// A capsule that a target can refer to.
#[derive(Clone, Copy, Debug)]
pub struct Registered<'a> {
    pub name: &'a CapsuleName,
    pub title: Option<&'a str>,
    pub aliases: &'a [String],
}

/// Why a target does not resolve to one capsule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ResolveError {
    #[error("no capsule is named {target}{hint}")]
    Unknown { target: String, hint: String },
    #[error(
        "{target} is the title or an alias of several capsules ({names}); use the name of one of them"
    )]
    Ambiguous { target: String, names: String },
}

/// The capsule that `target` refers to: the one with exactly that title or alias, else the one with its [`slug`] as
/// name.
///
/// # Errors
/// [`ResolveError::Ambiguous`] if several capsules have the title or alias; registration rejects those.
pub fn resolve<'a>(
    target: &str,
    registered: impl IntoIterator<Item = Registered<'a>>,
) -> Result<&'a CapsuleName, ResolveError> {
    let registered: Vec<_> = registered.into_iter().collect();
    let is_called_so = |capsule: &&Registered<'_>| {
        capsule.title == Some(target) || capsule.aliases.iter().any(|alias| alias == target)
    };
    let mut exact: Vec<_> = registered
        .iter()
        .filter(is_called_so)
        .map(|capsule| capsule.name)
        .collect();
    exact.sort_unstable();
    exact.dedup();
    match exact[..] {
        [name] => Ok(name),
        [] => {
            let meant = slug(target);
            let mut names = registered.iter().map(|capsule| capsule.name);
            names
                .find(|&name| Some(name) == meant.as_ref())
                .ok_or_else(|| unknown(target, &registered))
        }
        _ => Err(ResolveError::Ambiguous {
            target: quoted(target),
            names: exact
                .iter()
                .map(|name| name.as_str())
                .collect::<Vec<_>>()
                .join(", "),
        }),
    }
}

fn unknown(target: &str, registered: &[Registered<'_>]) -> ResolveError {
    let known = registered.iter().flat_map(|capsule| {
        let aliases = capsule.aliases.iter().map(String::as_str);
        capsule
            .title
            .into_iter()
            .chain(aliases)
            .chain([capsule.name.as_str()])
    });
    let hint = nearest(target, known).map_or_else(String::new, |name| {
        format!("; did you mean {}?", quoted(name))
    });
    ResolveError::Unknown {
        target: quoted(target),
        hint,
    }
}
