//! Types of HTTP requests and answers, with their OpenAPI schemas.
//!
//! The gateway serves these types (`/v1`, `/internal/v1`, the agent-on-demand compatibility routes); the command line
//! and the nodes send them. Beside the type of a request is its strict reader, which reports all problems together.

pub mod audit;
pub mod calls;
pub mod capsules;
pub mod compatibility;
pub mod dead_letters;
pub mod events;
pub mod files;
pub mod history;
pub mod internal;
pub mod nodes;
pub mod problem;
pub mod retention;
pub mod rules;
pub mod runs;
pub mod strict;
pub mod tokens;

/// In answers of routes that write: the sequence of the write in the log. A list requested with `at_least=` this
/// sequence contains the write.
pub const SEQUENCE_HEADER: &str = "aod-sequence";

/// The id of the request, in every answer and in the gateway's log.
pub const REQUEST_ID_HEADER: &str = "aod-request-id";

/// The id of the run, sent before the run has ended.
pub const RUN_ID_HEADER: &str = "aod-run-id";

/// The same key with the same request joins the same run.
pub const IDEMPOTENCY_KEY_HEADER: &str = "idempotency-key";

/// Tenant to act for (tokens that are valid for all tenants).
pub const TENANT_HEADER: &str = "aod-tenant";

/// Seconds after which a gateway closes a connection that has sent no headers, also between two requests.
pub const CONNECTION_IDLE_SECONDS_MAX: u64 = 30;

/// Seconds for which a client keeps a connection for its next request: well below
/// [`CONNECTION_IDLE_SECONDS_MAX`], so that the gateway never closes a connection while a client sends a request.
pub const CONNECTION_REUSE_SECONDS_MAX: u64 = 10;

/// Media type of every problem (RFC 9457).
pub const PROBLEM_MEDIA_TYPE: &str = "application/problem+json";
