//! OTLP over HTTP: spans as Protocol Buffers, to a receiver. Source: OpenTelemetry Protocol 1.x.

use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1 as wire;
use prost::Message as _;
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode};
use thiserror::Error;
use url::Url;

use crate::span::{Attribute, Kind, Moment, Span, Value};

/// Path for traces below a receiver's address. Source: OTLP/HTTP.
const PATH: &str = "v1/traces";

/// Maximum spans of a request: receivers accept 4 MiB by default, and a span has 1 KB.
const SPANS_A_REQUEST: usize = 1_000;

/// Time limit of a request. Source: `OTEL_EXPORTER_OTLP_TIMEOUT`.
const TIMEOUT: Duration = Duration::from_secs(10);

/// An invalid address or invalid headers of a receiver.
#[derive(Debug, Error)]
pub enum MalformedReceiver {
    #[error("expected http://host:port or https://host:port, not {0:?}")]
    Address(String),
    /// Without the text, which may be a secret.
    #[error("header {index} is invalid: expected name=value, separated by commas")]
    Header { index: usize },
    #[error("cannot create the HTTP client")]
    Client(#[source] reqwest::Error),
}

/// Why a receiver has not accepted spans, sorted by what the sender does about it.
#[derive(Debug, Error)]
pub enum SendError {
    /// Retryable.
    #[error("the trace receiver is unavailable: {0}")]
    Later(String),
    /// Not retryable: the operator must act.
    #[error("the trace receiver rejects the spans with status {0}")]
    Refused(StatusCode),
}

/// A receiver of traces.
#[derive(Clone, Debug)]
pub struct Receiver {
    client: Client,
    address: Url,
}

impl Receiver {
    /// The receiver at `base`, to which `/v1/traces` is appended. `headers` are sent with each request: `name=value`,
    /// separated by commas, as in `OTEL_EXPORTER_OTLP_HEADERS`.
    ///
    /// # Errors
    /// [`MalformedReceiver`].
    pub fn new(base: &str, headers: &str) -> Result<Self, MalformedReceiver> {
        let malformed = || MalformedReceiver::Address(base.to_owned());
        let mut address = Url::parse(base).map_err(|_| malformed())?;
        if !matches!(address.scheme(), "http" | "https") || address.host().is_none() {
            return Err(malformed());
        }
        let path = format!("{}/{PATH}", address.path().trim_end_matches('/'));
        address.set_path(&path);
        // Another crate of this program may use TLS without choosing a provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .default_headers(read_headers(headers)?)
            .timeout(TIMEOUT)
            .redirect(Policy::none())
            .build()
            .map_err(MalformedReceiver::Client)?;
        Ok(Self { client, address })
    }

    /// Sends `spans`; after an error, some may have arrived.
    ///
    /// # Errors
    /// [`SendError`].
    pub async fn send(&self, spans: &[Span]) -> Result<(), SendError> {
        for spans in spans.chunks(SPANS_A_REQUEST) {
            self.post(request(spans).encode_to_vec()).await?;
        }
        Ok(())
    }

    async fn post(&self, body: Vec<u8>) -> Result<(), SendError> {
        let later = |error: reqwest::Error| SendError::Later(error.without_url().to_string());
        let request = self.client.post(self.address.clone());
        let request = request.header(CONTENT_TYPE, "application/x-protobuf");
        let answer = request.body(body).send().await.map_err(later)?;
        let status = answer.status();
        // Source: OTLP/HTTP, Retryable Response Codes.
        match status.as_u16() {
            200..300 => Ok(()),
            429 | 502 | 503 | 504 => Err(SendError::Later(format!("status {status}"))),
            _ => Err(SendError::Refused(status)),
        }
    }
}

fn read_headers(text: &str) -> Result<HeaderMap, MalformedReceiver> {
    let mut headers = HeaderMap::new();
    let given = text.split([',', '\n']).map(str::trim);
    for (index, header) in given.enumerate().filter(|(_, text)| !text.is_empty()) {
        let malformed = || MalformedReceiver::Header { index: index + 1 };
        let (name, value) = header.split_once('=').ok_or_else(malformed)?;
        let name = HeaderName::try_from(name.trim()).map_err(|_| malformed())?;
        let mut value = HeaderValue::try_from(value.trim()).map_err(|_| malformed())?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

fn request(spans: &[Span]) -> ExportTraceServiceRequest {
    let name = env!("CARGO_PKG_VERSION");
    let resource = [
        ("service.name", "aod".into()),
        ("service.version", name.into()),
    ];
    let scope = InstrumentationScope {
        name: "aod".to_owned(),
        version: name.to_owned(),
        ..InstrumentationScope::default()
    };
    ExportTraceServiceRequest {
        resource_spans: vec![wire::ResourceSpans {
            resource: Some(Resource {
                attributes: attributes(&resource),
                ..Resource::default()
            }),
            scope_spans: vec![wire::ScopeSpans {
                scope: Some(scope),
                spans: spans.iter().map(span).collect(),
                ..wire::ScopeSpans::default()
            }],
            ..wire::ResourceSpans::default()
        }],
    }
}

fn span(span: &Span) -> wire::Span {
    let kind = match span.kind {
        Kind::Internal => wire::span::SpanKind::Internal,
        Kind::Client => wire::span::SpanKind::Client,
    };
    let code = match span.error {
        Some(_) => wire::status::StatusCode::Error,
        None => wire::status::StatusCode::Unset,
    };
    wire::Span {
        trace_id: span.trace.as_bytes().to_vec(),
        span_id: span.id.as_bytes().to_vec(),
        parent_span_id: span
            .parent
            .map_or_else(Vec::new, |id| id.as_bytes().to_vec()),
        name: span.name.clone(),
        kind: kind.into(),
        start_time_unix_nano: nanoseconds(span.began),
        end_time_unix_nano: nanoseconds(span.ended),
        attributes: attributes(&span.attributes),
        events: span.moments.iter().map(moment).collect(),
        status: Some(wire::Status {
            message: span.error.clone().unwrap_or_default(),
            code: code.into(),
        }),
        ..wire::Span::default()
    }
}

fn moment(moment: &Moment) -> wire::span::Event {
    wire::span::Event {
        time_unix_nano: nanoseconds(moment.at),
        name: moment.name.clone(),
        attributes: attributes(&moment.attributes),
        dropped_attributes_count: 0,
    }
}

fn nanoseconds(time: Timestamp) -> u64 {
    u64::try_from(time.as_nanosecond()).unwrap_or(0)
}

fn attributes(attributes: &[Attribute]) -> Vec<KeyValue> {
    let encode = |(name, value): &Attribute| {
        let value = match value {
            Value::Text(text) => any_value::Value::StringValue(text.clone()),
            Value::Integer(number) => any_value::Value::IntValue(*number),
            Value::Number(number) => any_value::Value::DoubleValue(*number),
            Value::Truth(truth) => any_value::Value::BoolValue(*truth),
        };
        KeyValue {
            key: (*name).to_owned(),
            value: Some(AnyValue { value: Some(value) }),
            ..KeyValue::default()
        }
    };
    attributes.iter().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receiver_address_and_headers_are_parsed() {
        let receiver = Receiver::new("http://127.0.0.1:4318/", "authorization=Bearer x, a=b=c");
        let receiver = receiver.expect("an address");
        assert_eq!(receiver.address.as_str(), "http://127.0.0.1:4318/v1/traces");
        let headers = read_headers("authorization=Bearer x, a=b=c,").expect("headers");
        assert_eq!(
            (headers.len(), &headers["a"]),
            (2, &HeaderValue::from_static("b=c"))
        );
    }

    #[test]
    fn invalid_receiver_is_rejected() {
        for address in ["", "localhost:4318", "grpc://localhost:4317", "http://"] {
            let receiver = Receiver::new(address, "");
            assert!(
                matches!(receiver, Err(MalformedReceiver::Address(_))),
                "{address}"
            );
        }
        let printed = Receiver::new("http://localhost", "a=b,secret").expect_err("no name");
        assert!(!printed.to_string().contains("secret"), "{printed}");
    }
}
