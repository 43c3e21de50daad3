//! The header with the sequence of an event that a request has stored. With `at_least=` this sequence, the caller gets
//! lists that contain the event.

use aod_api::SEQUENCE_HEADER;
use axum::http::HeaderValue;

pub(crate) fn header(sequence: u64) -> (&'static str, HeaderValue) {
    (SEQUENCE_HEADER, HeaderValue::from(sequence))
}
