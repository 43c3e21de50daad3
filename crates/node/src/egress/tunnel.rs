//! Carries and counts bytes both ways between a capsule and an external host, until the tunnel is idle for too long.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf,
};
use tokio::sync::Notify;
use tokio::time::timeout;

/// How long a tunnel may be idle. Source: common proxies.
pub(super) const IDLE_MAX: Duration = Duration::from_secs(5 * 60);

/// Size of the buffer for each direction, as in the gate.
const PIECE_SIZE_BYTES: usize = 16 * 1024;

/// The bytes that one tunnel has carried.
#[derive(Debug, Default)]
pub(super) struct Moved {
    sent: AtomicU64,
    received: AtomicU64,
    /// Notified when bytes move.
    activity: Notify,
}

impl Moved {
    /// Bytes from the capsule.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Bytes to the capsule.
    pub(super) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Carries bytes both ways until both ends have closed, one breaks, or the tunnel is idle for `idle_max`. If one
    /// direction ends, the other continues.
    pub(super) async fn carry<I, O>(&self, inside: I, outside: O, idle_max: Duration)
    where
        I: AsyncRead + AsyncWrite,
        O: AsyncRead + AsyncWrite,
    {
        let (inside_read, inside_write) = tokio::io::split(inside);
        let (outside_read, outside_write) = tokio::io::split(outside);
        let both = async {
            tokio::try_join!(
                self.copy(inside_read, outside_write, &self.sent),
                self.copy(outside_read, inside_write, &self.received),
            )
        };
        tokio::select! {
            // After any end, both sides see their connection close.
            _ = both => (),
            () = self.idle(idle_max) => (),
        }
    }

    async fn copy<I: AsyncRead, O: AsyncWrite>(
        &self,
        mut from: ReadHalf<I>,
        mut to: WriteHalf<O>,
        counter: &AtomicU64,
    ) -> io::Result<()> {
        let mut piece = vec![0; PIECE_SIZE_BYTES];
        loop {
            let size_bytes = from.read(&mut piece).await?;
            if size_bytes == 0 {
                return to.shutdown().await;
            }
            to.write_all(&piece[..size_bytes]).await?;
            counter.fetch_add(size_bytes as u64, Ordering::Relaxed);
            self.activity.notify_one();
        }
    }

    /// Returns when the tunnel has been idle for `idle_max`.
    async fn idle(&self, idle_max: Duration) {
        while timeout(idle_max, self.activity.notified()).await.is_ok() {}
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    #[tokio::test]
    async fn end_of_one_direction_leaves_the_other_open() {
        let (mut capsule, inside) = duplex(64);
        let (mut host, outside) = duplex(64);
        let moved = Moved::default();
        let carried = moved.carry(inside, outside, IDLE_MAX);
        let talk = async {
            capsule.write_all(b"question").await.unwrap();
            capsule.shutdown().await.unwrap();
            let mut question = String::new();
            host.read_to_string(&mut question).await.unwrap();
            host.write_all(b"a longer answer").await.unwrap();
            drop(host);
            let mut answer = String::new();
            capsule.read_to_string(&mut answer).await.unwrap();
            (question, answer)
        };
        let ((), (question, answer)) = tokio::join!(carried, talk);
        assert_eq!(
            (question.as_str(), answer.as_str()),
            ("question", "a longer answer")
        );
        assert_eq!((moved.sent(), moved.received()), (8, 15));
    }

    #[tokio::test(start_paused = true)]
    async fn idle_tunnel_is_closed() {
        let (mut capsule, inside) = duplex(64);
        let (mut host, outside) = duplex(64);
        let moved = Moved::default();
        let began = tokio::time::Instant::now();
        let talk = async {
            // Twice just before the limit; then silence, with both ends open.
            for _ in 0..2 {
                tokio::time::sleep(IDLE_MAX.mul_f64(0.9)).await;
                capsule.write_all(b"x").await.unwrap();
            }
            let mut received = String::new();
            host.read_to_string(&mut received).await.unwrap();
            received
        };
        let carried = async {
            moved.carry(inside, outside, IDLE_MAX).await;
            began.elapsed()
        };
        let (lasted, received) = tokio::join!(carried, talk);
        assert_eq!(received, "xx");
        assert!(lasted >= IDLE_MAX.mul_f64(2.7), "{lasted:?}");
        assert!(lasted <= 3 * IDLE_MAX, "{lasted:?}");
        // The capsule's end is also closed.
        assert_eq!(capsule.read(&mut [0]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn host_that_does_not_read_blocks_the_capsule() {
        let (mut capsule, inside) = duplex(1);
        let (host, outside) = duplex(1);
        let moved = Moved::default();
        let flood = vec![0; 10 * PIECE_SIZE_BYTES];
        let carried = moved.carry(inside, outside, Duration::from_millis(50));
        let (sent, ()) = tokio::join!(capsule.write_all(&flood), carried);
        assert!(sent.is_err(), "the idle tunnel closed the connection");
        assert!(moved.sent() <= PIECE_SIZE_BYTES as u64);
        drop(host);
    }
}
