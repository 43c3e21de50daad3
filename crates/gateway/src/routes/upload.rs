//! Uploads: streamed into the store, never held in memory.

use std::collections::BTreeSet;

use aod_api::files::FILE_REFERENCE_PREFIX;
use aod_api::problem::ProblemItem;
use aod_api::strict::JSON_BYTES_MAX;
use aod_domain::digest::Digest;
use aod_domain::error_code::ErrorCode;
use aod_domain::file_name::{Directory, FileName};
use aod_domain::run::FileEntry;
use aod_ports::artifact_store::{ArtifactStore, Stored};
use axum::body::Body;
use axum::extract::{FromRequest as _, Multipart, Request};
use axum::http::{HeaderMap, header};
use bytes::Bytes;

use crate::context::Context;
use crate::error::{Error, Result};
use crate::files::Files;
use crate::streams::{limited, whole};

/// Name of the part of a multipart request that contains its JSON.
const REQUEST_PART: &str = "request";

/// Maximum number of parts of a multipart request: an event cannot contain more files.
const PARTS_MAX: usize = 1_000;

/// A request with its stored files.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) request: Bytes,
    pub(crate) files: Vec<FileEntry>,
}

/// Stores `body` as one artifact.
pub(crate) async fn store(context: &Context, body: Body) -> Result<Stored> {
    let incoming = limited(body.into_data_stream(), context.config.upload_bytes_max);
    Ok(context.ports.artifacts.put_stream(incoming).await?)
}

/// Reads a multipart request: the part `request` is its JSON; every other part is a file of at most
/// `upload_bytes_max`, with the name of the part.
pub(crate) async fn multipart(
    artifacts: &dyn ArtifactStore,
    upload_bytes_max: u64,
    request: Request,
) -> Result<Received> {
    let mut parts = Multipart::from_request(request, &())
        .await
        .map_err(|error| Error::malformed("the multipart body has no boundary").because(error))?;
    let mut json = None;
    let mut files = Vec::new();
    let mut names = BTreeSet::new();
    for _ in 0..PARTS_MAX {
        let part = parts
            .next_field()
            .await
            .map_err(|error| broken(&error.body_text()))?;
        let Some(part) = part else {
            let request =
                json.ok_or_else(|| Error::malformed("the part \"request\" is missing"))?;
            return Ok(Received { request, files });
        };
        let name = part_name(part.name(), part.headers());
        if name == REQUEST_PART && json.is_none() {
            json = Some(whole(part, JSON_BYTES_MAX).await?);
            continue;
        }
        let name = file_name(&name)?;
        if !names.insert(name.clone()) {
            let detail = format!("two parts have the name {name}; expected different names");
            return Err(Error::new(ErrorCode::FileRefused, detail));
        }
        let incoming = limited(part, upload_bytes_max);
        let Stored { digest, size_bytes } = artifacts.put_stream(incoming).await?;
        files.push(FileEntry {
            name,
            digest,
            size_bytes,
        });
    }
    Err(Error::new(
        ErrorCode::PayloadTooLarge,
        format!("the body has more than {PARTS_MAX} parts, the maximum"),
    ))
}

/// The name of a part: `name=`, or the extended form `name*=utf-8''…` that some clients use for names with other
/// characters than ASCII (RFC 5987). In a plain name, `%22` is a quote (HTML, multipart/form-data encoding algorithm).
fn part_name(plain: Option<&str>, headers: &HeaderMap) -> String {
    if let Some(name) = plain {
        return name.replace("%22", "\"");
    }
    let disposition = headers
        .get(header::CONTENT_DISPOSITION)
        .and_then(|value| value.to_str().ok());
    let mut parameters = disposition.unwrap_or_default().split(';').map(str::trim);
    let extended = parameters
        .find_map(|text| text.strip_prefix("name*="))
        .unwrap_or_default();
    let encoded = extended.split_once("''").map_or("", |(_, encoded)| encoded);
    percent_decoded(encoded).unwrap_or_default()
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        if *first == b'%' {
            let digits = std::str::from_utf8(behind.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &behind[2..];
        } else {
            bytes.push(*first);
            rest = behind;
        }
    }
    String::from_utf8(bytes).ok()
}

fn broken(text: &str) -> Error {
    Error::malformed(format!("the multipart body is malformed: {text}"))
}

fn file_name(text: &str) -> Result<FileName> {
    FileName::parse(Directory::Input.relative(text)).map_err(|rejection| {
        let errors = vec![ProblemItem::new("/files", rejection.to_string())];
        Error::new(ErrorCode::FileRefused, "a file has an invalid name").with_errors(errors)
    })
}

/// Finds an uploaded file; `pointer` is its place in the request.
pub(crate) async fn uploaded(
    known: Files<'_>,
    name: &str,
    reference: &str,
    pointer: &str,
) -> Result<Result<FileEntry, ProblemItem>> {
    let name = match FileName::parse(Directory::Input.relative(name)) {
        Ok(name) => name,
        Err(rejection) => return Ok(Err(ProblemItem::new(pointer, rejection.to_string()))),
    };
    let digest: Option<Digest> = reference
        .strip_prefix(FILE_REFERENCE_PREFIX)
        .and_then(|text| text.parse().ok());
    let Some(digest) = digest else {
        let shown: String = reference.chars().take(80).collect();
        let message = format!(
            "{shown:?} given; expected {FILE_REFERENCE_PREFIX} and the digest of an uploaded file"
        );
        return Ok(Err(ProblemItem::new(pointer, message)));
    };
    match known.renew(digest).await? {
        Some(size_bytes) => Ok(Ok(FileEntry {
            name,
            digest,
            size_bytes,
        })),
        None => Ok(Err(ProblemItem::new(
            pointer,
            format!("{reference} is unknown or deleted: upload the file first"),
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(plain: Option<&str>, disposition: &'static str, expected: &str) {
        let value = disposition.parse().unwrap();
        let headers = HeaderMap::from_iter([(header::CONTENT_DISPOSITION, value)]);
        assert_eq!(part_name(plain, &headers), expected);
    }

    #[test]
    fn names_of_parts_have_two_forms() {
        check(Some("a.csv"), "form-data; name=\"a.csv\"", "a.csv");
        check(
            Some("a%22 50%.csv"),
            "form-data; name=\"a%22 50%.csv\"",
            "a\" 50%.csv",
        );
        check(
            None,
            "form-data; name*=utf-8''in%2Fa%20%C3%BC.csv; filename=\"x\"",
            "in/a ü.csv",
        );
        check(None, "form-data; name*=utf-8''a%2", "");
        check(None, "form-data; name*=utf-8''%FF", "");
        check(None, "form-data", "");
    }
}
