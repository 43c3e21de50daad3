use aod_ports::peers::IsEnough;
use aod_testkit::Scratch;
use uuid::Uuid;

use super::*;

fn node(number: u128) -> NodeId {
    NodeId::new(Uuid::from_u128(number))
}

/// Peers of node 5 that answer nothing; a peer may ask while node 5 waits for their answers.
#[derive(Debug)]
struct Silent {
    questions: tokio::sync::Semaphore,
    answers: tokio::sync::Semaphore,
}

#[async_trait]
impl Peers for Silent {
    fn me(&self) -> NodeId {
        node(5)
    }

    async fn ask(&self, _: Digest, _: IsEnough<'_>) -> Result<Vec<Answer>, BoxError> {
        self.questions.add_permits(1);
        self.answers.acquire().await?.forget();
        Ok(Vec::new())
    }

    async fn piece(&self, _: NodeId, _: Digest, _: Range<u64>) -> Result<Piece, BoxError> {
        Err("no peer serves".into())
    }

    async fn serve(&self, _: Arc<dyn Holder>) {}
}

/// Node 5 asks, and meanwhile the node `asker` does: checks the choice, and what node 5 answers afterwards.
async fn check(asker: u128, expected: Source, afterwards: Option<Standing>) {
    let scratch = Scratch::new("neighbors");
    let cache = Cache::open(scratch.path(), 1 << 20).expect("a cache");
    let peers = Arc::new(Silent {
        questions: tokio::sync::Semaphore::new(0),
        answers: tokio::sync::Semaphore::new(0),
    });
    let neighbors = Neighbors::new(Arc::clone(&peers) as _, cache);
    let digest = Digest::of("an artifact");
    assert_eq!(neighbors.standing(digest, node(asker)), None);

    let turn = neighbors.begin(digest);
    let (failed, received) = (BTreeSet::new(), Arc::new(AtomicU64::new(7)));
    let other = async {
        let _asked = peers.questions.acquire().await.expect("a question");
        let standing = neighbors.standing(digest, node(asker));
        assert_eq!(standing, Some(Standing::Asking));
        let piece = neighbors.piece(digest, 0..1).await;
        assert_eq!(piece, Piece::Wait { fetched_bytes: 0 });
        peers.answers.add_permits(1);
    };
    let (chosen, ()) = tokio::join!(turn.choose(&failed, &received), other);
    assert_eq!(chosen, expected);
    if chosen == Source::Store {
        let piece = neighbors.piece(digest, 0..1).await;
        assert_eq!(piece, Piece::Wait { fetched_bytes: 7 });
        assert_eq!(neighbors.standing(digest, node(asker)), afterwards);
    }
    drop(turn);
    assert_eq!(neighbors.standing(digest, node(asker)), None);
    assert_eq!(neighbors.piece(digest, 0..1).await, Piece::Missing);
}

#[tokio::test]
async fn node_waits_for_a_lower_one_that_asks_meanwhile() {
    check(1, Source::Node(node(1)), None).await;
}

#[tokio::test]
async fn node_fetches_before_a_higher_one_that_asks_meanwhile() {
    check(9, Source::Store, Some(Standing::Fetching)).await;
}
