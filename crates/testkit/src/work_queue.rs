//! Conformance suite of work queues: deliveries, leases, early and late acknowledgements.

use std::time::Duration;

use aod_domain::id::{NodeId, RunId};
use aod_domain::subject::{self, Class, Pool};
use aod_ports::event_log::EventLog;
use aod_ports::work_queue::{Delivery, WorkQueue};
use futures::StreamExt as _;
use tokio::sync::oneshot;
use tokio::time::Instant;
use uuid::Uuid;

use crate::events::{launch, new_run, pool, soon};

/// A pull that certainly waits long enough for the events of the test.
const LONG: Duration = Duration::from_secs(20);

/// A queue derived from a log.
#[derive(Clone, Copy, Debug)]
pub struct Queues<'ports> {
    pub log: &'ports dyn EventLog,
    pub queue: &'ports dyn WorkQueue,
    /// How long a delivery stays with a silent holder.
    pub lease: Duration,
}

impl Queues<'_> {
    /// Runs the whole suite.
    pub async fn check_all(self) {
        self.a_launch_arrives_with_its_place_in_the_log().await;
        self.pools_and_classes_are_apart().await;
        self.a_pull_takes_what_is_there_and_waits_only_for_the_first()
            .await;
        self.silence_brings_a_launch_back_and_progress_keeps_it()
            .await;
        self.a_late_acknowledgement_takes_the_launch_from_its_new_holder()
            .await;
        self.what_is_given_back_comes_again_after_the_delay().await;
        self.a_dropped_pull_swallows_nothing().await;
        self.a_queue_that_is_forgotten_is_made_again().await;
        self.launch_is_offered_to_a_willing_node().await;
        self.what_is_offered_is_what_the_log_has().await;
    }

    async fn pool(self, text: &str) -> Pool {
        let pool = pool(text);
        self.queue.ensure(&pool).await.expect("consumers");
        pool
    }

    async fn launch(self, pool: &Pool, class: Class) -> (RunId, u64) {
        let run = new_run();
        let sequence = self.log.append(launch(run, pool, class)).await;
        (run, sequence.expect("an append"))
    }

    async fn pull(self, pool: &Pool, max: usize, wait: Duration) -> Vec<Delivery> {
        let pulled = soon(self.queue.pull(pool, Class::Root, max, wait)).await;
        pulled.expect("an answer")
    }

    async fn pull_one(self, pool: &Pool) -> Delivery {
        let mut pulled = self.pull(pool, 1, LONG).await;
        assert_eq!(pulled.len(), 1, "{pulled:?}");
        pulled.remove(0)
    }

    async fn is_empty(self, pool: &Pool) -> bool {
        self.pull(pool, 1, Duration::ZERO).await.is_empty()
    }

    async fn acknowledge(self, delivery: &Delivery) {
        let acknowledged = self.queue.acknowledge(&delivery.ack_subject).await;
        acknowledged.expect("a confirmation");
    }

    async fn progress(self, delivery: &Delivery) {
        let prolonged = self.queue.progress(&delivery.ack_subject).await;
        prolonged.expect("a confirmation");
    }

    async fn give_back(self, delivery: &Delivery, delay: Duration) {
        let given = self.queue.give_back(&delivery.ack_subject, delay).await;
        given.expect("a confirmation");
    }

    /// Pending and delivered launches.
    async fn waiting(self, pool: &Pool, class: Class) -> (u64, u64) {
        let all = self.queue.waiting().await.expect("an answer");
        let mut of = all
            .iter()
            .filter(|waiting| waiting.pool == *pool && waiting.class == class);
        let found = of.next().expect("a consumer that was made");
        (found.pending, found.delivered)
    }

    async fn a_launch_arrives_with_its_place_in_the_log(self) {
        let pool = self.pool("place").await;
        let (run, sequence) = self.launch(&pool, Class::Root).await;
        let delivery = self.pull_one(&pool).await;
        let found = (delivery.run, delivery.class, delivery.position.delivery);
        assert_eq!(found, (run, Class::Root, 1));
        let stored = self.log.read(&subject::run_all(run), 0, 1).await;
        assert_eq!(stored.expect("a read").first(), Some(&delivery.launch));
        assert_eq!(delivery.launch.sequence, sequence);
        self.acknowledge(&delivery).await;
        assert!(self.is_empty(&pool).await);
        // A repeated acknowledgement is harmless.
        self.acknowledge(&delivery).await;
    }

    async fn pools_and_classes_are_apart(self) {
        let (cpu, gpu) = (self.pool("cpu").await, self.pool("gpu-large").await);
        self.queue.ensure(&gpu).await.expect("made once");
        for class in [Class::Root, Class::Child, Class::Child] {
            self.launch(&gpu, class).await;
        }
        let children = soon(self.queue.pull(&gpu, Class::Child, 1, LONG)).await;
        assert_eq!(children.expect("an answer").len(), 1);
        assert!(self.is_empty(&cpu).await);
        let mut found = Vec::new();
        for (pool, class) in [
            (&cpu, Class::Child),
            (&cpu, Class::Root),
            (&gpu, Class::Child),
            (&gpu, Class::Root),
        ] {
            found.push(self.waiting(pool, class).await);
        }
        assert_eq!(found, [(0, 0), (0, 0), (1, 1), (1, 0)]);
    }

    async fn a_pull_takes_what_is_there_and_waits_only_for_the_first(self) {
        let pool = self.pool("batches").await;
        let begin = Instant::now();
        assert!(self.is_empty(&pool).await);
        let patient = Duration::from_millis(300);
        assert!(self.pull(&pool, 5, patient).await.is_empty());
        assert!(begin.elapsed() >= patient);

        for _ in 0..3 {
            self.launch(&pool, Class::Root).await;
        }
        soon(async { while self.waiting(&pool, Class::Root).await.0 < 3 {} }).await;
        let begin = Instant::now();
        assert_eq!(self.pull(&pool, 2, LONG).await.len(), 2);
        assert_eq!(self.pull(&pool, 5, LONG).await.len(), 1);
        assert!(begin.elapsed() < LONG, "a part of a batch does not wait");

        let pull = self.pull(&pool, 5, LONG);
        let (pulled, _) = tokio::join!(pull, self.launch(&pool, Class::Root));
        assert_eq!(pulled.len(), 1);
        assert!(begin.elapsed() < LONG);
    }

    async fn silence_brings_a_launch_back_and_progress_keeps_it(self) {
        let pool = self.pool("silence").await;
        self.launch(&pool, Class::Root).await;
        let first = self.pull_one(&pool).await;
        let begin = Instant::now();
        while begin.elapsed() < self.lease * 2 {
            self.progress(&first).await;
            let none = self.pull(&pool, 1, self.lease / 4).await;
            assert!(none.is_empty(), "held with progress");
        }
        let begin = Instant::now();
        let second = self.pull_one(&pool).await;
        let silence = begin.elapsed();
        assert!(silence > self.lease / 2, "came back after {silence:?}");
        assert_eq!((first.position.delivery, second.position.delivery), (1, 2));
        assert!(second.position > first.position);
        assert_eq!(second.launch, first.launch);
    }

    async fn a_late_acknowledgement_takes_the_launch_from_its_new_holder(self) {
        let pool = self.pool("late").await;
        self.launch(&pool, Class::Root).await;
        let first = self.pull_one(&pool).await;
        let second = self.pull_one(&pool).await;
        self.acknowledge(&first).await;
        // Progress of a stale holder is confirmed, and proves nothing.
        self.progress(&second).await;
        let none = self.pull(&pool, 1, self.lease * 2).await;
        assert!(none.is_empty(), "{none:?}");
    }

    async fn what_is_given_back_comes_again_after_the_delay(self) {
        let pool = self.pool("given-back").await;
        self.launch(&pool, Class::Root).await;
        let first = self.pull_one(&pool).await;
        self.give_back(&first, Duration::ZERO).await;
        let begin = Instant::now();
        let second = self.pull_one(&pool).await;
        assert!(begin.elapsed() < self.lease / 2, "at once");
        let delay = Duration::from_millis(700);
        self.give_back(&second, delay).await;
        let begin = Instant::now();
        let third = self.pull_one(&pool).await;
        let waited = begin.elapsed();
        assert!(waited + Duration::from_millis(50) >= delay, "{waited:?}");
        assert_eq!(third.position.delivery, 3);
    }

    async fn a_queue_that_is_forgotten_is_made_again(self) {
        let pool = self.pool("forgotten").await;
        self.queue.forget(&pool).await.expect("a confirmation");
        self.queue.forget(&pool).await.expect("it is gone anyway");
        let there = self.queue.waiting().await.expect("an answer");
        assert!(there.iter().all(|waiting| waiting.pool != pool));
        self.launch(&pool, Class::Root).await;
        self.queue.ensure(&pool).await.expect("consumers");
        assert_eq!(self.pull_one(&pool).await.position.delivery, 1);
    }

    async fn launch_is_offered_to_a_willing_node(self) {
        let pool = self.pool("offered").await;
        self.launch(&pool, Class::Root).await;
        let delivery = self.pull_one(&pool).await;
        let [here, other] = [1, 2].map(|number| NodeId::new(Uuid::from_u128(number)));
        let held = Duration::from_millis(70);
        let offer = async |to, patience| self.queue.offer(to, &delivery, &|| held, patience).await;
        let begin = Instant::now();
        let nobody = offer(here, LONG).await;
        assert!(!nobody.expect("an answer"), "no node listens");
        assert!(begin.elapsed() < LONG / 2, "the offer fails immediately");
        let mut offers = self.queue.offers(here).await.expect("a stream");
        let nobody = offer(other, LONG).await;
        assert!(!nobody.expect("an answer"), "only another node listens");
        let taking = async {
            let offered = offers.next().await.expect("a stream without end");
            let handed_over = take(offered.take).await;
            (offered.delivery, handed_over)
        };
        let (answered, (offered, handed_over)) =
            soon(async { tokio::join!(offer(here, LONG), taking) }).await;
        assert!(answered.expect("an answer"));
        assert_eq!(handed_over, Some(held));
        assert_eq!((offered.run, offered.class), (delivery.run, delivery.class));
        assert_eq!(offered.launch, delivery.launch);
        assert_eq!(offered.position, delivery.position);
        assert_eq!(offered.ack_subject, delivery.ack_subject);
        let refusing = async { drop(offers.next().await) };
        let (answered, ()) = soon(async { tokio::join!(offer(here, LONG), refusing) }).await;
        assert!(!answered.expect("an answer"), "no answer is a no");
        // The offer is taken after the first node has stopped waiting.
        let short = Duration::from_millis(100);
        let unanswered = offer(here, short).await;
        assert!(unanswered.is_err(), "{unanswered:?}");
        let late = soon(offers.next()).await.expect("a stream without end");
        let handed_over = soon(take(late.take)).await;
        assert_eq!(
            handed_over, None,
            "the launch has stayed with the first node"
        );
        // The node that has the launch acknowledges it.
        self.acknowledge(&delivery).await;
        assert!(self.is_empty(&pool).await);
    }

    async fn what_is_offered_is_what_the_log_has(self) {
        let pool = self.pool("forged").await;
        self.launch(&pool, Class::Root).await;
        let delivery = self.pull_one(&pool).await;
        let mut forged = delivery.clone();
        forged.launch.bytes = b"{\"made\":\"up\"}".as_slice().into();
        let here = NodeId::new(Uuid::from_u128(3));
        let mut offers = self.queue.offers(here).await.expect("a stream");
        let offering = self.queue.offer(here, &forged, &|| Duration::ZERO, LONG);
        let taking = async {
            let offered = offers.next().await.expect("a stream without end");
            take(offered.take).await.expect("the offering node waits");
            offered.delivery
        };
        let (answered, offered) = soon(async { tokio::join!(offering, taking) }).await;
        assert!(answered.expect("an answer"));
        assert_eq!(offered.launch, delivery.launch);
        self.acknowledge(&delivery).await;
    }

    async fn a_dropped_pull_swallows_nothing(self) {
        let pool = self.pool("dropped").await;
        for _ in 0..20 {
            let pull = self.queue.pull(&pool, Class::Root, 3, LONG);
            let pulled = tokio::time::timeout(Duration::from_millis(5), pull).await;
            assert!(pulled.is_err(), "{pulled:?}");
        }
        self.launch(&pool, Class::Root).await;
        assert_eq!(self.pull_one(&pool).await.position.delivery, 1);
    }
}

/// Takes an offered launch; none if it is not handed over.
async fn take(take: oneshot::Sender<oneshot::Sender<Duration>>) -> Option<Duration> {
    let (hand_over, handed_over) = oneshot::channel();
    let _ = take.send(hand_over);
    handed_over.await.ok()
}
