//! Properties of every rejection from any part: it names a place, and it is short.

use aod_api::problem::{Problem, ProblemItem};
use aod_domain::contract::{self, PROBLEMS_MAX};
use aod_domain::error_code::ErrorCode;

/// Maximum characters of a message: a thousand of a schema's own text, with some words around them.
const MESSAGE_LENGTH_MAX: usize = 1_100;

/// The rejection of a request.
pub(crate) fn check_problem(problem: &Problem) {
    assert!((400..600).contains(&problem.status), "{problem:?}");
    let is_known = |code: &ErrorCode| code.as_str() == problem.code;
    assert!(ErrorCode::ALL.iter().any(is_known), "{problem:?}");
    check_message(&problem.detail);
    assert!(problem.errors.len() <= PROBLEMS_MAX, "{problem:?}");
    for ProblemItem { pointer, message } in &problem.errors {
        check_pointer(pointer);
        check_message(message);
    }
}

/// Problems of a schema or a payload.
pub(crate) fn check_contract_problems(problems: &[contract::Problem]) {
    assert!((1..=PROBLEMS_MAX).contains(&problems.len()), "{problems:?}");
    for problem in problems {
        check_pointer(&problem.pointer);
        check_message(&problem.message);
    }
}

/// A JSON pointer (RFC 6901).
pub(crate) fn check_pointer(pointer: &str) {
    assert!(
        pointer.is_empty() || pointer.starts_with('/'),
        "{pointer:?}"
    );
    for (place, _) in pointer.match_indices('~') {
        let escape = pointer[place + 1..].chars().next();
        assert!(matches!(escape, Some('0' | '1')), "{pointer:?}");
    }
}

/// Text for people: not empty, and not too long.
pub(crate) fn check_message(message: &str) {
    let length = message.chars().count();
    assert!((1..=MESSAGE_LENGTH_MAX).contains(&length), "{message:?}");
}
