//! What every queue of launches must do: deliveries, leases, acknowledgements early and late.

use std::time::Duration;

use aod_domain::id::{NodeId, RunId};
use aod_domain::subject::{self, Class, Label};
use aod_ports::event_log::EventLog;
use aod_ports::work_queue::{Delivery, WorkQueue};
use futures::StreamExt as _;
use tokio::time::Instant;
use uuid::Uuid;

use crate::events::{label, launch, new_run, soon};

/// A pull that is sure to wait long enough for what the test has caused.
const LONG: Duration = Duration::from_secs(20);

/// A queue that is made of a log.
#[derive(Clone, Copy, Debug)]
pub struct Queues<'ports> {
    pub log: &'ports dyn EventLog,
    pub queue: &'ports dyn WorkQueue,
    /// How long a delivery is held in silence.
    pub lease: Duration,
}

impl Queues<'_> {
    /// Runs all of it.
    pub async fn check_all(self) {
        self.a_launch_arrives_with_its_place_in_the_log().await;
        self.labels_and_classes_are_apart().await;
        self.a_pull_takes_what_is_there_and_waits_only_for_the_first()
            .await;
        self.silence_brings_a_launch_back_and_progress_keeps_it()
            .await;
        self.a_late_acknowledgement_takes_the_launch_from_its_new_holder()
            .await;
        self.what_is_given_back_comes_again_after_the_delay().await;
        self.a_dropped_pull_swallows_nothing().await;
        self.a_queue_that_is_forgotten_is_made_again().await;
        self.a_launch_is_handed_to_whoever_takes_it().await;
    }

    async fn label(self, text: &str) -> Label {
        let label = label(text);
        self.queue.ensure(&label).await.expect("consumers");
        label
    }

    async fn launch(self, label: &Label, class: Class) -> (RunId, u64) {
        let run = new_run();
        let sequence = self.log.append(launch(run, label, class)).await;
        (run, sequence.expect("an append"))
    }

    async fn pull(self, label: &Label, max: usize, wait: Duration) -> Vec<Delivery> {
        let pulled = soon(self.queue.pull(label, Class::Root, max, wait)).await;
        pulled.expect("an answer")
    }

    async fn pull_one(self, label: &Label) -> Delivery {
        let mut pulled = self.pull(label, 1, LONG).await;
        assert_eq!(pulled.len(), 1, "{pulled:?}");
        pulled.remove(0)
    }

    async fn is_empty(self, label: &Label) -> bool {
        self.pull(label, 1, Duration::ZERO).await.is_empty()
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

    /// Launches that wait, and that are delivered.
    async fn waiting(self, label: &Label, class: Class) -> (u64, u64) {
        let all = self.queue.waiting().await.expect("an answer");
        let mut of = all
            .iter()
            .filter(|waiting| waiting.label == *label && waiting.class == class);
        let found = of.next().expect("a consumer that was made");
        (found.pending, found.delivered)
    }

    async fn a_launch_arrives_with_its_place_in_the_log(self) {
        let label = self.label("place").await;
        let (run, sequence) = self.launch(&label, Class::Root).await;
        let delivery = self.pull_one(&label).await;
        let found = (delivery.run, delivery.class, delivery.position.delivery);
        assert_eq!(found, (run, Class::Root, 1));
        let stored = self.log.read(&subject::run_all(run), 0, 1).await;
        assert_eq!(stored.expect("a read").first(), Some(&delivery.launch));
        assert_eq!(delivery.launch.sequence, sequence);
        self.acknowledge(&delivery).await;
        assert!(self.is_empty(&label).await);
        // To acknowledge again is harmless.
        self.acknowledge(&delivery).await;
    }

    async fn labels_and_classes_are_apart(self) {
        let (cpu, gpu) = (self.label("cpu").await, self.label("gpu-large").await);
        self.queue.ensure(&gpu).await.expect("made once");
        for class in [Class::Root, Class::Child, Class::Child] {
            self.launch(&gpu, class).await;
        }
        let children = soon(self.queue.pull(&gpu, Class::Child, 1, LONG)).await;
        assert_eq!(children.expect("an answer").len(), 1);
        assert!(self.is_empty(&cpu).await);
        let mut found = Vec::new();
        for (label, class) in [
            (&cpu, Class::Child),
            (&cpu, Class::Root),
            (&gpu, Class::Child),
            (&gpu, Class::Root),
        ] {
            found.push(self.waiting(label, class).await);
        }
        assert_eq!(found, [(0, 0), (0, 0), (1, 1), (1, 0)]);
    }

    async fn a_pull_takes_what_is_there_and_waits_only_for_the_first(self) {
        let label = self.label("batches").await;
        let begin = Instant::now();
        assert!(self.is_empty(&label).await);
        let patient = Duration::from_millis(300);
        assert!(self.pull(&label, 5, patient).await.is_empty());
        assert!(begin.elapsed() >= patient);

        for _ in 0..3 {
            self.launch(&label, Class::Root).await;
        }
        soon(async { while self.waiting(&label, Class::Root).await.0 < 3 {} }).await;
        let begin = Instant::now();
        assert_eq!(self.pull(&label, 2, LONG).await.len(), 2);
        assert_eq!(self.pull(&label, 5, LONG).await.len(), 1);
        assert!(begin.elapsed() < LONG, "a part of a batch does not wait");

        let pull = self.pull(&label, 5, LONG);
        let (pulled, _) = tokio::join!(pull, self.launch(&label, Class::Root));
        assert_eq!(pulled.len(), 1);
        assert!(begin.elapsed() < LONG);
    }

    async fn silence_brings_a_launch_back_and_progress_keeps_it(self) {
        let label = self.label("silence").await;
        self.launch(&label, Class::Root).await;
        let first = self.pull_one(&label).await;
        let begin = Instant::now();
        while begin.elapsed() < self.lease * 2 {
            self.progress(&first).await;
            let none = self.pull(&label, 1, self.lease / 4).await;
            assert!(none.is_empty(), "held with progress");
        }
        let begin = Instant::now();
        let second = self.pull_one(&label).await;
        let silence = begin.elapsed();
        assert!(silence > self.lease / 2, "came back after {silence:?}");
        assert_eq!((first.position.delivery, second.position.delivery), (1, 2));
        assert!(second.position > first.position);
        assert_eq!(second.launch, first.launch);
    }

    async fn a_late_acknowledgement_takes_the_launch_from_its_new_holder(self) {
        let label = self.label("late").await;
        self.launch(&label, Class::Root).await;
        let first = self.pull_one(&label).await;
        let second = self.pull_one(&label).await;
        self.acknowledge(&first).await;
        // The progress of one who holds nothing is confirmed: it proves nothing.
        self.progress(&second).await;
        let none = self.pull(&label, 1, self.lease * 2).await;
        assert!(none.is_empty(), "{none:?}");
    }

    async fn what_is_given_back_comes_again_after_the_delay(self) {
        let label = self.label("given-back").await;
        self.launch(&label, Class::Root).await;
        let first = self.pull_one(&label).await;
        self.give_back(&first, Duration::ZERO).await;
        let begin = Instant::now();
        let second = self.pull_one(&label).await;
        assert!(begin.elapsed() < self.lease / 2, "at once");
        let delay = Duration::from_millis(700);
        self.give_back(&second, delay).await;
        let begin = Instant::now();
        let third = self.pull_one(&label).await;
        let waited = begin.elapsed();
        assert!(waited + Duration::from_millis(50) >= delay, "{waited:?}");
        assert_eq!(third.position.delivery, 3);
    }

    async fn a_queue_that_is_forgotten_is_made_again(self) {
        let label = self.label("forgotten").await;
        self.queue.forget(&label).await.expect("a confirmation");
        self.queue.forget(&label).await.expect("it is gone anyway");
        let there = self.queue.waiting().await.expect("an answer");
        assert!(there.iter().all(|waiting| waiting.label != label));
        self.launch(&label, Class::Root).await;
        self.queue.ensure(&label).await.expect("consumers");
        assert_eq!(self.pull_one(&label).await.position.delivery, 1);
    }

    async fn a_launch_is_handed_to_whoever_takes_it(self) {
        let label = self.label("offered").await;
        self.launch(&label, Class::Root).await;
        let delivery = self.pull_one(&label).await;
        let [here, other] = [1, 2].map(|number| NodeId::new(Uuid::from_u128(number)));
        let held = Duration::from_millis(70);
        let offer = async |to, patience| {
            let offered = self.queue.offer(to, &delivery, held, patience).await;
            offered.unwrap_or(false)
        };
        let begin = Instant::now();
        assert!(!offer(here, LONG).await, "nobody is there");
        assert!(begin.elapsed() < LONG / 2, "which is known at once");
        let mut offers = self.queue.offers(here).await.expect("a stream");
        assert!(!offer(other, LONG).await, "somebody else is there");
        for is_taken in [true, false] {
            let taking = async {
                let offered = offers.next().await.expect("a stream without end");
                offered.answer.send(is_taken).expect("somebody waits");
                (offered.delivery, offered.held)
            };
            let (answered, (offered, found)) =
                soon(async { tokio::join!(offer(here, LONG), taking) }).await;
            assert_eq!(answered, is_taken);
            assert_eq!((offered.run, offered.class), (delivery.run, delivery.class));
            assert_eq!((&offered.launch, found), (&delivery.launch, held));
            assert_eq!(offered.position, delivery.position);
            assert_eq!(offered.ack_subject, delivery.ack_subject);
        }
        let ignoring = async { drop(offers.next().await) };
        let (answered, ()) = soon(async { tokio::join!(offer(here, LONG), ignoring) }).await;
        assert!(!answered, "no answer is a no");
        assert!(
            !offer(here, Duration::from_millis(100)).await,
            "nobody looks"
        );
        // Whoever has it acknowledges it.
        self.acknowledge(&delivery).await;
        assert!(self.is_empty(&label).await);
    }

    async fn a_dropped_pull_swallows_nothing(self) {
        let label = self.label("dropped").await;
        for _ in 0..20 {
            let pull = self.queue.pull(&label, Class::Root, 3, LONG);
            let pulled = tokio::time::timeout(Duration::from_millis(5), pull).await;
            assert!(pulled.is_err(), "{pulled:?}");
        }
        self.launch(&label, Class::Root).await;
        assert_eq!(self.pull_one(&label).await.position.delivery, 1);
    }
}
