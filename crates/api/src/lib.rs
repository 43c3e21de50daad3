//! What travels over HTTP: the types of requests and answers, with their OpenAPI schemas.
//!
//! Types only. Who serves them is the gateway (`/v1`, `/internal/v1`, the original's routes); who
//! asks are the command line and the nodes. Reading a request strictly, with all its problems
//! told at once, is left to the gateway.

pub mod audit;
pub mod capsules;
pub mod dead_letters;
pub mod events;
pub mod files;
pub mod history;
pub mod internal;
pub mod nodes;
pub mod original;
pub mod problem;
pub mod retention;
pub mod rules;
pub mod runs;
pub mod tokens;

/// Answers of the routes that write say at which sequence of the log the write is; a list asked
/// for with `at_least=` of it contains it.
pub const SEQUENCE_HEADER: &str = "aod-sequence";

/// Every answer names its request, for the log of the gateway.
pub const REQUEST_ID_HEADER: &str = "aod-request-id";

/// The run that a waiting request started, told before its end is known.
pub const RUN_ID_HEADER: &str = "aod-run-id";

/// The same key and request is the same run.
pub const IDEMPOTENCY_KEY_HEADER: &str = "idempotency-key";

/// Whose things whoever may see those of all tenants wants to see and make.
pub const TENANT_HEADER: &str = "aod-tenant";

/// How long a gateway keeps a connection on which no headers come, in seconds: also one that waits for
/// its next request.
pub const CONNECTION_IDLE_SECONDS_MAX: u64 = 30;

/// How long a client keeps a connection for its next request, in seconds: well below
/// [`CONNECTION_IDLE_SECONDS_MAX`], so that no request meets a connection that is being closed.
pub const CONNECTION_REUSE_SECONDS_MAX: u64 = 10;

/// Every problem has this media type (RFC 9457).
pub const PROBLEM_MEDIA_TYPE: &str = "application/problem+json";
