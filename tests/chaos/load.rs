//! The steady load: clients that request file handoffs between capsules, retry at another gateway if one does not
//! answer, and compare every answer with the correct one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use aod_domain::digest::Digest;
use aod_tests::programs::Person;
use fastrand::Rng;
use reqwest::{Client, RequestBuilder, StatusCode};
use serde_json::{Value, json};

/// Number of clients, each with one run at a time: nested runs hold two containers, and two of three nodes must have
/// the capacity for all.
pub(crate) const CLIENTS: usize = 6;

/// Maximum concurrent runs, by a rule: one client always waits for admission.
pub(crate) const BUCKET: usize = CLIENTS - 1;

/// How long a client has a gateway wait for a result, in seconds.
const WAIT_SECONDS: u64 = 3;

/// Maximum time for an answer, including the gateway's wait; afterwards the client asks another gateway.
const ANSWER_PATIENCE: Duration = Duration::from_secs(WAIT_SECONDS + 2);

/// Maximum time for a connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(2);

/// Pause between two tries.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Pause between two runs of a client.
const REST: Duration = Duration::from_millis(200);

/// Rows of the smallest and the largest table: about 1 KB and 200 KB.
const ROWS: std::ops::Range<u32> = 100..20_000;

/// Maximum time that the worker computes, in seconds.
const WORK_SECONDS_MAX: u32 = 3;

const TABLE: &str = "table.csv";

/// The worker's output before the bytes of its input.
const FIRST_LINE: &[u8] = b"made by the worker\n";

/// State shared by all clients.
#[derive(Debug)]
pub(crate) struct Load {
    people: Vec<Person>,
    http: Client,
    seed: u64,
    next: AtomicU64,
    is_over: AtomicBool,
    pub(crate) ended: AtomicU64,
    pub(crate) retries: AtomicU64,
}

/// One try of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Try {
    pub(crate) gateway: usize,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
}

/// One request of a client, until its answer.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    /// The last one got an answer.
    pub(crate) tries: Vec<Try>,
}

/// The outcome of one requested run.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) number: u64,
    /// None if no gateway accepted it.
    pub(crate) run: Option<String>,
    /// None until the answer; then whether it is correct, or the difference.
    pub(crate) verdict: Option<Result<(), String>>,
}

/// The observations of a client.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) asked: Vec<Asked>,
    pub(crate) questions: Vec<Question>,
}

/// A request and its correct answer: both follow from its number.
struct Request {
    table: Vec<u8>,
    seconds: u32,
}

impl Request {
    fn draw(seed: u64, number: u64) -> Self {
        let mut random = Rng::with_seed(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let rows = (0..random.u32(ROWS)).map(|row| format!("{row},{}\n", random.u32(..)));
        Self {
            table: rows.collect::<String>().into_bytes(),
            seconds: random.u32(0..=WORK_SECONDS_MAX),
        }
    }

    fn made(&self) -> Vec<u8> {
        [FIRST_LINE, &self.table].concat()
    }

    fn expected(&self) -> Value {
        json!({
            "returned": "made.bin",
            "returned_sha256": Digest::of(self.made()).to_string(),
            "answer": {"received_sha256": Digest::of(&self.table).to_string(), "made": "made.bin"},
        })
    }
}

impl Load {
    pub(crate) fn new(people: Vec<Person>, seed: u64) -> Arc<Self> {
        let http = Client::builder()
            .no_proxy()
            .connect_timeout(CONNECT_PATIENCE)
            .timeout(ANSWER_PATIENCE)
            .build()
            .expect("an HTTP client");
        Arc::new(Self {
            people,
            http,
            seed,
            next: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            ended: AtomicU64::new(0),
            retries: AtomicU64::new(0),
        })
    }

    /// Stops further runs.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// The number of the next run.
    pub(crate) fn next_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// A person at one of the gateways, in turn.
    pub(crate) fn person(&self, number: u64) -> &Person {
        let gateways = self.people.len() as u64;
        &self.people[usize::try_from(number % gateways).unwrap_or_default()]
    }
}

/// One client.
pub(crate) struct Asker {
    load: Arc<Load>,
    gateway: usize,
    /// Shared, so that it can be read after the client was abandoned.
    seen: Arc<std::sync::Mutex<Seen>>,
}

impl Asker {
    pub(crate) fn new(load: Arc<Load>, number: usize) -> Self {
        let gateway = number % load.people.len();
        Self {
            load,
            gateway,
            seen: Arc::default(),
        }
    }

    pub(crate) fn seen(&self) -> Arc<std::sync::Mutex<Seen>> {
        Arc::clone(&self.seen)
    }

    /// Requests one run after the other until the load ends.
    pub(crate) async fn work(mut self) {
        while !self.load.is_over() {
            let number = self.load.next_number();
            let index = self.begin(number);
            let verdict = self.run(number, index).await;
            self.note(|seen| seen.asked[index].verdict = Some(verdict));
            self.load.ended.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(REST).await;
        }
    }

    /// Notes that a run is requested; returns its place in [`Seen::asked`].
    pub(crate) fn begin(&self, number: u64) -> usize {
        self.note(|seen| {
            seen.asked.push(Asked {
                number,
                run: None,
                verdict: None,
            });
            seen.asked.len() - 1
        })
    }

    pub(crate) fn note<T>(&self, change: impl FnOnce(&mut Seen) -> T) -> T {
        change(
            &mut self
                .seen
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner),
        )
    }

    /// One run from its files to its answer; an error describes a wrong answer.
    async fn run(&mut self, number: u64, index: usize) -> Result<(), String> {
        let request = Request::draw(self.load.seed, number);
        let table = request.table.clone();
        let (_, uploaded) = self
            .ask(|person, http, _| {
                person
                    .request(http, "POST", "/v1/files")
                    .header("content-type", "application/octet-stream")
                    .body(table.clone())
            })
            .await?;
        let body = json!({
            "capsule": "caller",
            "arguments": {"table": TABLE, "seconds": request.seconds},
            "files": [{"name": TABLE, "file": parsed(&uploaded)["file"]}],
        });
        let result = self.result(number, index, &body).await?;
        if result["output"] != request.expected() {
            return Err(format!("wrong answer: {result}"));
        }
        let run = result["id"].as_str().ok_or("no id in the result")?;
        let path = format!("/v1/runs/{run}/files/made.bin");
        let (_, made) = self
            .ask(|person, http, _| person.request(http, "GET", &path))
            .await?;
        if made != request.made() {
            return Err("the file has other bytes".to_owned());
        }
        Ok(())
    }

    /// Requests the run of `body`, and waits for its result.
    pub(crate) async fn result(
        &mut self,
        number: u64,
        index: usize,
        body: &Value,
    ) -> Result<Value, String> {
        let key = format!("chaos-{}-{number}", self.load.seed);
        let (_, started) = self
            .ask(|person, http, is_first| {
                let prefer = if is_first {
                    format!("wait={WAIT_SECONDS}")
                } else {
                    "respond-async".to_owned()
                };
                person
                    .request(http, "POST", "/v1/runs")
                    .header("prefer", prefer)
                    .header("idempotency-key", &key)
                    .json(body)
            })
            .await?;
        let run = parsed(&started)["id"]
            .as_str()
            .ok_or("no id in the answer")?
            .to_owned();
        self.note(|seen| seen.asked[index].run = Some(run.clone()));
        loop {
            let (status, result) = self
                .ask(|person, http, is_first| {
                    let wait = if is_first { WAIT_SECONDS } else { 0 };
                    person.request(http, "GET", &format!("/v1/runs/{run}/result?wait={wait}"))
                })
                .await?;
            if status == StatusCode::OK {
                return Ok(parsed(&result));
            }
        }
    }

    /// Repeats a request at one gateway after the other until there is an answer; the closure learns whether this is
    /// the first try. An error is a rejection, which must not happen.
    async fn ask(
        &mut self,
        question: impl Fn(&Person, &Client, bool) -> RequestBuilder,
    ) -> Result<(StatusCode, Vec<u8>), String> {
        let mut tries = Vec::new();
        loop {
            let began = Instant::now();
            let person = &self.load.people[self.gateway];
            let answer = answer(question(person, &self.load.http, tries.is_empty())).await;
            tries.push(Try {
                gateway: self.gateway,
                began,
                ended: Instant::now(),
            });
            if let Some((status, body)) = answer {
                self.note(|seen| seen.questions.push(Question { tries }));
                if status.is_success() {
                    return Ok((status, body));
                }
                return Err(format!("{status}: {}", String::from_utf8_lossy(&body)));
            }
            self.load.retries.fetch_add(1, Ordering::Relaxed);
            self.gateway = (self.gateway + 1) % self.load.people.len();
            tokio::time::sleep(RETRY_AFTER).await;
        }
    }
}

/// A usable answer: none from a gateway that is temporarily unable, which is worth a retry.
pub(crate) async fn answer(request: RequestBuilder) -> Option<(StatusCode, Vec<u8>)> {
    let response = request.send().await.ok()?;
    let status = response.status();
    let passes = status == StatusCode::TOO_MANY_REQUESTS || matches!(status.as_u16(), 502..=504);
    if passes {
        return None;
    }
    Some((status, response.bytes().await.ok()?.to_vec()))
}

pub(crate) fn parsed(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap_or_default()
}
