//! Candidates on the test server, under virtual time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use parking_lot::Mutex;
use skopos_lease::{BootClock, Candidate, Election, EndReason, LeaseOptions, Status};
use skopos_testserver::{Fault, Match, TestServer};
use skopos_transport::{
    Dialed, Protocol, Transport, TransportErrorKind, TransportOptions, WallClock, dialer_fn,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

const MINUTE: Duration = Duration::from_secs(60);

/// A candidate, as if in a process of its own.
struct Process {
    candidate: Candidate,
    stop: CancellationToken,
    cut: Arc<AtomicBool>,
    tasks: JoinSet<()>,
}

/// The work done in terms: the candidate, the number of the term, its start and its end.
type Diary = Arc<Mutex<Vec<(&'static str, u64, Instant, Instant)>>>;

impl Process {
    fn start(server: &TestServer, name: &'static str, change: impl FnOnce(&mut LeaseOptions)) -> Self {
        let cut = Arc::new(AtomicBool::new(false));
        let (server, is_cut) = (server.clone(), cut.clone());
        let dialer = dialer_fn(move |_| {
            let connected = if is_cut.load(Ordering::SeqCst) { None } else { server.connect().ok() };
            async move {
                let refused = || TransportErrorKind::Refused { to: "memory".into(), reason: "cut".into() };
                connected.map(|stream| Dialed::new(stream, Protocol::Http2)).ok_or_else(refused)
            }
        });
        let config = kube::Config::new("http://memory.test".parse().expect("a URL"));
        let options = TransportOptions { seed: Some(7), wall_clock: None, ..TransportOptions::default() };
        let transport = Transport::with_dialer(config, options, dialer).expect("a transport");
        let mut options = LeaseOptions::new("default", "leader");
        (options.identity, options.seed) = (name.to_owned(), Some(1));
        change(&mut options);
        let election = Election::with_transport(transport, options).expect("an election");
        let (candidate, stop, mut tasks) = (election.candidate(), CancellationToken::new(), JoinSet::new());
        tasks.spawn(election.run(stop.clone()));
        Self { candidate, stop, cut, tasks }
    }

    /// Works in each term, and records its times.
    fn works(&mut self, name: &'static str, diary: &Diary) {
        let (mut candidate, diary) = (self.candidate.clone(), diary.clone());
        self.tasks.spawn(async move {
            while let Ok(term) = candidate.term().await {
                let began = Instant::now();
                let _ = term.run(std::future::pending::<()>()).await;
                diary.lock().push((name, term.number(), began, Instant::now()));
            }
        });
    }

    async fn leads(&mut self) -> u64 {
        timeout(3 * MINUTE, self.candidate.term()).await.expect("a leader").expect("it runs").number()
    }

    async fn is(&mut self, what: impl Fn(&Status) -> bool) -> Status {
        let reached = async {
            while !what(&self.candidate.status()) {
                self.candidate.changed().await;
            }
        };
        let reached = timeout(3 * MINUTE, reached).await;
        reached.unwrap_or_else(|_| panic!("{:?}", self.candidate.status()));
        self.candidate.status()
    }

    async fn stop(mut self) {
        self.stop.cancel();
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        timeout(MINUTE, ended).await.expect("it stops");
    }
}

fn server() -> TestServer {
    TestServer::builder().start_in_memory().expect("the server starts")
}

fn at_once(options: &mut LeaseOptions) {
    options.acquire_on_create = true;
}

fn no_overlap(diary: &Diary) {
    let mut terms = diary.lock().clone();
    terms.sort_by_key(|(.., began, _)| *began);
    for pair in terms.windows(2) {
        assert!(pair[0].3 <= pair[1].2, "{pair:?}");
        assert!(pair[0].1 < pair[1].1, "{pair:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn released_lease_is_acquired_within_1s() {
    let server = server();
    let diary = Diary::default();
    let mut one = Process::start(&server, "one", at_once);
    one.works("one", &diary);
    let first = one.leads().await;
    let mut two = Process::start(&server, "two", at_once);
    two.is(|status| *status == Status::Standby { holder: Some("one".into()) }).await;
    let lease = server.get("leases", Some("default"), "leader").unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], "one");
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 15);
    sleep(MINUTE).await;
    let begun = Instant::now();
    one.stop().await;
    assert_eq!(two.leads().await, first + 1);
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    two.works("two", &diary);
    two.stop().await;
    let lease = server.get("leases", Some("default"), "leader").unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], "", "released");
    no_overlap(&diary);
    assert_eq!(diary.lock().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn release_before_watch_starts_is_seen() {
    let server = server();
    let mut one = Process::start(&server, "one", at_once);
    one.leads().await;
    let late = Fault::DelayHeaders(Duration::from_secs(3));
    let guard = server.faults().inject(late).on(Match::list());
    let mut two = Process::start(&server, "two", at_once);
    two.is(|status| matches!(status, Status::Standby { .. })).await;
    let begun = Instant::now();
    one.stop().await;
    two.leads().await;
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    guard.heal();
    two.stop().await;
}

#[tokio::test(start_paused = true)]
async fn work_ends_before_other_candidate_leads() {
    let server = server();
    let diary = Diary::default();
    let mut one = Process::start(&server, "one", at_once);
    one.works("one", &diary);
    one.leads().await;
    let mut two = Process::start(&server, "two", at_once);
    two.works("two", &diary);
    two.is(|status| matches!(status, Status::Standby { .. })).await;
    sleep(MINUTE).await;
    one.cut.store(true, Ordering::SeqCst);
    server.faults().kill_connections(skopos_testserver::CloseMode::Rst);
    two.leads().await;
    assert_eq!(diary.lock().len(), 1, "the first one has ended before");
    assert!(one.candidate.last_error().is_some_and(|problem| problem.contains("cut")));
    one.cut.store(false, Ordering::SeqCst);
    one.is(|status| *status == Status::Standby { holder: Some("two".into()) }).await;
    two.stop().await;
    one.leads().await;
    one.stop().await;
    no_overlap(&diary);
    assert_eq!(diary.lock().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn outage_shorter_than_term_keeps_term() {
    let server = server();
    let mut one = Process::start(&server, "one", at_once);
    let number = one.leads().await;
    for _ in 0..10 {
        server.pause().await;
        sleep(Duration::from_secs(5)).await;
        server.resume().await.unwrap();
        sleep(Duration::from_secs(10)).await;
        assert_eq!(one.candidate.status(), Status::Leader { number });
    }
    one.stop().await;
}

#[tokio::test(start_paused = true)]
async fn deleted_lease_is_claimed_before_next_term() {
    let server = server();
    let diary = Diary::default();
    let mut processes = Vec::new();
    for name in ["one", "two"] {
        let mut process = Process::start(&server, name, |_| {});
        process.works(name, &diary);
        processes.push(process);
    }
    let mut leases = BTreeSet::new();
    for _ in 0..3 {
        let begun = Instant::now();
        let led = async {
            while !processes.iter().any(|one| matches!(one.candidate.status(), Status::Leader { .. })) {
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(MINUTE, led).await.expect("a leader");
        for process in &mut processes {
            if matches!(process.candidate.status(), Status::Leader { .. }) {
                leases.insert(process.candidate.term().await.unwrap().lease_uid().to_owned());
            }
        }
        assert!(begun.elapsed() > Duration::from_secs(14), "who created it waited: {:?}", begun.elapsed());
        let before = diary.lock().len();
        server.delete("leases", Some("default"), "leader").unwrap();
        sleep(Duration::from_secs(1)).await;
        assert_eq!(diary.lock().len(), before + 1);
    }
    for process in processes {
        process.stop().await;
    }
    let mut terms = diary.lock().clone();
    terms.sort_by_key(|(.., began, _)| *began);
    assert!(terms.windows(2).all(|pair| pair[0].3 <= pair[1].2), "{terms:?}");
    assert!(leases.len() == 3 && !leases.contains(""), "terms of another Lease are told apart: {leases:?}");
}

#[tokio::test(start_paused = true)]
async fn unfit_candidate_yields_to_other() {
    let server = server();
    let mut one = Process::start(&server, "one", at_once);
    one.leads().await;
    let mut two = Process::start(&server, "two", at_once);
    two.is(|status| matches!(status, Status::Standby { .. })).await;
    let begun = Instant::now();
    one.candidate.set_fit(false);
    two.leads().await;
    let took = begun.elapsed();
    assert!(took >= MINUTE && took < MINUTE + Duration::from_secs(1), "{took:?}");
    two.stop().await;
    // There is no other: an unfit leader is better than none.
    one.leads().await;
    one.stop().await;
}

#[tokio::test(start_paused = true)]
async fn finishing_work_keeps_rest_of_term() {
    let server = server();
    let mut one = Process::start(&server, "one", at_once);
    let term = one.candidate.term().await.unwrap();
    sleep(Duration::from_secs(1)).await;
    let holder =
        || server.get("leases", Some("default"), "leader").unwrap()["spec"]["holderIdentity"].clone();
    let work = term.finish(async {
        one.stop.cancel();
        term.ended().await;
        assert_eq!(term.remaining(), None);
        sleep(Duration::from_secs(3)).await;
        holder()
    });
    assert_eq!(work.await.unwrap(), "one", "not released while it works");
    assert!(term.finish(async {}).await.is_err() || holder() == "one");
    let ended = async { while one.tasks.join_next().await.is_some() {} };
    timeout(MINUTE, ended).await.expect("it stops");
    assert_eq!(holder(), "");
    assert_eq!(term.finish(async {}).await.unwrap_err().reason, EndReason::Stopped);
}

#[tokio::test(start_paused = true)]
async fn work_stops_after_suspend() {
    let server = server();
    let slept = Arc::new(AtomicU64::new(0));
    let clock = slept.clone();
    let mut one = Process::start(&server, "one", |options| {
        at_once(options);
        options.clock = BootClock::from_fn(move || Duration::from_secs(clock.load(Ordering::SeqCst)));
    });
    let term = one.candidate.term().await.unwrap();
    let mut steps = 0;
    let work = term.run(async {
        loop {
            steps += 1;
            if steps == 5 {
                slept.store(60, Ordering::SeqCst);
            }
            tokio::task::yield_now().await;
        }
    });
    let over: Result<(), _> = work.await;
    assert_eq!(over.unwrap_err().reason, EndReason::Expired);
    assert_eq!(steps, 5, "not one step after it woke up");
    let again = one.leads().await;
    assert!(again > term.number());
    one.stop().await;
}

#[tokio::test(start_paused = true)]
async fn refused_request_is_reported_and_retried() {
    let server = server();
    let guard = server.faults().inject(Fault::status(403, 0)).on(Match::any());
    let mut one = Process::start(&server, "one", at_once);
    sleep(MINUTE).await;
    assert_eq!(one.candidate.status(), Status::Starting);
    let problem = one.candidate.last_error().expect("a problem");
    assert!(problem.contains("403"), "{problem}");
    let tries = server.requests().iter().filter(|request| request.path.contains("/leases/leader")).count();
    assert!((5..=60).contains(&tries), "{tries} in a minute");
    guard.heal();
    one.leads().await;
    assert_eq!(one.candidate.last_error(), None);
    one.stop().await;
}

#[tokio::test(start_paused = true)]
async fn wall_clocks_that_differ_by_hours_change_no_leader() {
    let server = server();
    let dated = |year: u64| move || UNIX_EPOCH + Duration::from_secs((year - 1970) * 31_557_600);
    let mut first = Process::start(&server, "first", |options| {
        at_once(options);
        options.wall_clock = WallClock::from_fn(dated(1990));
    });
    let number = first.leads().await;
    let mut second = Process::start(&server, "second", |options| {
        at_once(options);
        options.wall_clock = WallClock::from_fn(dated(2060));
    });
    second.is(|status| *status == Status::Standby { holder: Some("first".into()) }).await;
    let lease = server.get("leases", Some("default"), "leader").expect("a Lease");
    assert!(lease["spec"]["renewTime"].as_str().is_some_and(|date| date.starts_with("1990-")), "{lease}");
    sleep(10 * MINUTE).await;
    assert_eq!(first.candidate.status(), Status::Leader { number });
    assert_eq!(second.candidate.status(), Status::Standby { holder: Some("first".into()) });
    first.stop().await;
    assert_eq!(second.leads().await, number + 1);
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn restored_server_gets_leader_without_storm() {
    let requests = Arc::new(AtomicU64::new(0));
    let seen = requests.clone();
    let count = move |_: &skopos_testserver::RequestRecord| {
        seen.fetch_add(1, Ordering::SeqCst);
    };
    let server = TestServer::builder().on_request(count).start_in_memory().expect("the server starts");
    let mut processes =
        ["one", "two"].map(|name| Process::start(&server, name, |options| options.acquire_on_create = true));
    let diary = Diary::default();
    processes[0].leads().await;
    sleep(Duration::from_secs(5)).await;
    let past = server.resource_version();
    processes[0].works("one", &diary);
    processes[1].works("two", &diary);
    sleep(MINUTE).await;
    server.roll_back(past).expect("that version is kept");
    let before = requests.load(Ordering::SeqCst);
    sleep(MINUTE).await;
    let sent = requests.load(Ordering::SeqCst) - before;
    assert!(sent < 400, "{sent} requests in a minute");
    let leads = |process: &Process| matches!(process.candidate.status(), Status::Leader { .. });
    assert_eq!(processes.iter().filter(|process| leads(process)).count(), 1);
    for process in processes {
        process.stop().await;
    }
    let mut terms = diary.lock().clone();
    terms.sort_by_key(|(.., began, _)| *began);
    assert!(terms.windows(2).all(|pair| pair[0].3 <= pair[1].2), "{terms:?}");
}

#[tokio::test(start_paused = true)]
async fn missing_namespace_is_reported_and_polled_rarely() {
    let requests = Arc::new(AtomicU64::new(0));
    let seen = requests.clone();
    let count = move |_: &skopos_testserver::RequestRecord| {
        seen.fetch_add(1, Ordering::SeqCst);
    };
    let server = TestServer::builder().on_request(count).start_in_memory().expect("the server starts");
    let mut process = Process::start(&server, "one", |options| options.namespace = "nowhere".into());
    sleep(10 * MINUTE).await;
    let sent = requests.load(Ordering::SeqCst);
    assert!(sent < 600, "{sent} requests in ten minutes");
    let problem = process.candidate.last_error().expect("a problem");
    assert!(problem.contains("create its namespace"), "{problem}");
    let namespace =
        serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "nowhere"}});
    server.create(namespace).expect("a namespace");
    process.leads().await;
    process.stop().await;
}
