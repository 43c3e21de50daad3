//! Streams of bytes with limits: small ones in memory, large ones as streams.

use aod_domain::error_code::ErrorCode;
use aod_ports::BoxError;
use aod_ports::artifact_store::Incoming;
use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt as _};

use crate::error::{Error, Result, TooLarge};

/// All bytes of `stream`, at most `bytes_max`.
pub(crate) async fn whole<E: Into<BoxError>>(
    mut stream: impl Stream<Item = Result<Bytes, E>> + Unpin,
    bytes_max: usize,
) -> Result<Bytes> {
    let mut all = BytesMut::new();
    while let Some(bytes) = stream.next().await {
        let bytes = bytes.map_err(|error| {
            Error::malformed(
                "the connection ended, or was silent for a minute, before the end of the body",
            )
            .because(error)
        })?;
        if all.len() + bytes.len() > bytes_max {
            let bytes_max = bytes_max as u64;
            let text = TooLarge { bytes_max }.to_string();
            return Err(Error::new(ErrorCode::PayloadTooLarge, text));
        }
        all.extend_from_slice(&bytes);
    }
    Ok(all.freeze())
}

/// `stream`, which fails with [`TooLarge`] after `bytes_max`.
pub(crate) fn limited<'a, E: Into<BoxError>>(
    stream: impl Stream<Item = Result<Bytes, E>> + Send + 'a,
    bytes_max: u64,
) -> Incoming<'a> {
    let mut total = 0_u64;
    let counted = stream.map(move |bytes| {
        let bytes = bytes.map_err(Into::into)?;
        total += bytes.len() as u64;
        if total > bytes_max {
            Err(TooLarge { bytes_max }.into())
        } else {
            Ok(bytes)
        }
    });
    counted.boxed()
}
