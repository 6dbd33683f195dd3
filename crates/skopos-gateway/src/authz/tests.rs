use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use serde_json::{Value, json};
use skopos_wire::Status;
use tokio::sync::Semaphore;

use super::*;
use crate::authz::ask::AskError;
use crate::config::{Authorization, PolicyRule};
use crate::testing::{Script, extra};

type Reply = Result<(u16, Value), AskError>;

fn jane() -> Arc<Identity> {
    Arc::new(Identity {
        uid: "7".into(),
        extra: extra("scopes", &["a", "b"]),
        ..Identity::authenticated("jane", ["dev".to_owned()])
    })
}

fn pods() -> Attributes {
    Attributes::resource("list", "", "v1", "pods").in_namespace("shop")
}

fn allowing() -> Script {
    Script::reviewing(|_, _| json!({"allowed": true, "reason": "RBAC"}))
}

fn authorizer(script: &Script) -> Authorizer {
    Authorizer::new(&Config::default(), script.arc())
}

fn with_policy(mode: AuthorizationMode, when_member_is_down: MemberDown) -> Config {
    let rule =
        PolicyRule { users: vec!["jane".into()], resources: vec!["pods".into()], ..PolicyRule::default() };
    let authorization =
        Authorization { mode, when_member_is_down, policy: vec![rule], ..Authorization::default() };
    Config { authorization, ..Config::default() }
}

impl Authorizer {
    /// Decides as [`Authorizer::decide`], and returns denials in the API server's words.
    ///
    /// # Errors
    /// 403 when denied; 429 or 503 when that could not be decided.
    async fn require(
        &self,
        cluster: &str,
        who: &Arc<Identity>,
        what: &Attributes,
    ) -> Result<Decision, Status> {
        let decision = self.decide(cluster, who, what).await;
        if decision.allowed { Ok(decision) } else { Err(what.forbidden(who, &decision)) }
    }
}

#[tokio::test(start_paused = true)]
async fn review_carries_full_identity_and_attributes() {
    let script = allowing();
    let what = Attributes { subresource: "log".into(), name: "web-0".into(), ..pods() };
    let decision = authorizer(&script).decide("a", &jane(), &what).await;
    assert_eq!(
        (decision.allowed, decision.source, &*decision.reason),
        (true, DecisionSource::Member, "RBAC")
    );
    let (cluster, question) = script.asked().remove(0);
    assert_eq!(cluster, "a");
    assert_eq!(
        question,
        json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": "jane",
                "uid": "7",
                "groups": ["dev", "system:authenticated"],
                "extra": {"scopes": ["a", "b"]},
                "resourceAttributes": {
                    "verb": "list", "group": "", "version": "v1", "resource": "pods", "subresource": "log",
                    "namespace": "shop", "name": "web-0",
                },
            },
        })
    );
}

#[tokio::test(start_paused = true)]
async fn a_decision_is_of_exactly_one_question() {
    let script = allowing();
    let authorizer = authorizer(&script);
    let (jane, what) = (jane(), pods());
    let change = |change: &dyn Fn(&mut Identity)| {
        let mut other = Identity::clone(&jane);
        change(&mut other);
        Arc::new(other)
    };
    let others = [
        change(&|who| who.user = "joe".into()),
        change(&|who| who.uid = "8".into()),
        change(&|who| who.groups.push("ops".into())),
        change(&|who| who.groups.clear()),
        change(&|who| who.extra = extra("scopes", &["a"])),
        change(&|who| who.extra = extra("scope", &["a", "b"])),
        change(&|who| who.extra.clear()),
    ];
    let questions = [
        Attributes { verb: "watch".into(), ..what.clone() },
        Attributes { group: "apps".into(), ..what.clone() },
        Attributes { version: "v2".into(), ..what.clone() },
        Attributes { resource: "secrets".into(), ..what.clone() },
        Attributes { subresource: "status".into(), ..what.clone() },
        Attributes { namespace: "".into(), ..what.clone() },
        Attributes { name: "web".into(), ..what.clone() },
        Attributes { path: "/version".into(), ..what.clone() },
    ];
    authorizer.decide("a", &jane, &what).await;
    authorizer.decide("b", &jane, &what).await;
    for other in &others {
        authorizer.decide("a", other, &what).await;
    }
    for question in &questions {
        authorizer.decide("a", &jane, question).await;
    }
    assert_eq!(script.asked().len(), 2 + others.len() + questions.len());
    // All of them are cached.
    authorizer.decide("a", &jane, &what).await;
    for question in &questions {
        authorizer.decide("a", &jane, question).await;
    }
    assert_eq!(script.asked().len(), 2 + others.len() + questions.len());
}

#[tokio::test(start_paused = true)]
async fn allow_and_deny_are_cached_for_ten_seconds() {
    for allowed in [true, false] {
        let script = Script::reviewing(move |_, _| json!({"allowed": allowed}));
        let authorizer = authorizer(&script);
        authorizer.decide("a", &jane(), &pods()).await;
        tokio::time::advance(Duration::from_millis(9_900)).await;
        let kept = authorizer.decide("a", &jane(), &pods()).await;
        assert!(kept.allowed == allowed && kept.age < Duration::from_secs(10) && script.asked().len() == 1);
        tokio::time::advance(Duration::from_millis(200)).await;
        script.answers(move |_, _| Ok((201, json!({"status": {"allowed": !allowed}}))));
        assert_eq!(authorizer.decide("a", &jane(), &pods()).await.allowed, !allowed);
    }
}

/// Callers choose the names, so overlong ones must not fill memory.
#[tokio::test(start_paused = true)]
async fn decision_on_overlong_name_is_not_cached() {
    for (length, asked) in [(253, 1), (MAX_KEY_BYTES, 2)] {
        let script = allowing();
        let authorizer = authorizer(&script);
        let what = Attributes { name: "x".repeat(length), ..pods() };
        for _ in 0..2 {
            assert!(authorizer.decide("a", &jane(), &what).await.allowed);
        }
        assert_eq!(script.asked().len(), asked, "{length}");
    }
}

#[tokio::test(start_paused = true)]
async fn many_at_once_ask_once() {
    let script = allowing();
    let authorizer = authorizer(&script);
    let (jane, pods) = (jane(), pods());
    let all = (0..100).map(|_| authorizer.decide("a", &jane, &pods));
    assert!(futures::future::join_all(all).await.iter().all(|decision| decision.allowed));
    assert_eq!(script.asked().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn whatever_is_no_clear_yes_is_a_no() {
    let answers: [(&str, Reply, u16); 11] = [
        ("no", Ok((201, json!({"status": {"allowed": false}}))), 403),
        ("denied", Ok((201, json!({"status": {"allowed": true, "denied": true}}))), 403),
        ("empty status", Ok((201, json!({"status": {}}))), 403),
        ("unknown", Err(AskError::Unknown("a".into())), 403),
        ("no status", Ok((201, json!({"kind": "SubjectAccessReview", "spec": {"allowed": true}}))), 503),
        ("no review", Ok((201, json!([]))), 503),
        ("forbidden", Ok((403, json!({"status": {"allowed": true}}))), 503),
        ("not there", Ok((404, json!({"status": {"allowed": true}}))), 503),
        ("failing", Ok((503, json!({"status": {"allowed": true}}))), 503),
        ("down", Err(AskError::Down("refused".into())), 503),
        ("busy", Ok((429, json!({"status": {"allowed": true}}))), 429),
    ];
    for (name, answer, code) in answers {
        let script = Script::new(move |_, _| answer.clone());
        let status = authorizer(&script).require("a", &jane(), &pods()).await.unwrap_err();
        assert_eq!(status.code, code, "{name}");
        let plain = "pods is forbidden: User \"jane\" cannot list resource \"pods\" in API group \"\" in the namespace \"shop\"";
        match code {
            // A denial has the API server's words and no more: it is not a doubt.
            403 => assert_eq!(status.message, plain, "{name}"),
            _ => assert!(
                status.message.contains("whether User \"jane\" can list v1/pods in shop"),
                "{name}: {}",
                status.message
            ),
        }
        assert_eq!(status.retry_after_seconds().is_some(), code == 429, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn retries_busy_member_within_deadline() {
    let script = Script::new(|_, _| Ok((429, json!({}))));
    let authorizer = authorizer(&script);
    let (jane, pods) = (jane(), pods());
    let well_again = async {
        sleep(Duration::from_millis(1500)).await;
        script.answers(|_, _| Ok((201, json!({"status": {"allowed": true}}))));
    };
    let (decision, ()) = tokio::join!(authorizer.decide("a", &jane, &pods), well_again);
    assert_eq!((decision.allowed, decision.source), (true, DecisionSource::Member));
    assert!(script.asked().len() <= 3, "it is left alone for a second: {}", script.asked().len());
    // A busy member is not an outage, in which the rules of the configuration would decide.
    script.answers(|_, _| Ok((429, json!({}))));
    let config = with_policy(AuthorizationMode::Member, MemberDown::Policy);
    let begun = Instant::now();
    let decision = Authorizer::new(&config, script.arc()).decide("a", &jane, &pods).await;
    assert_eq!((decision.allowed, decision.source), (false, DecisionSource::MemberBusy));
    assert!(begun.elapsed() <= config.cache.member_deadline.0, "{:?}", begun.elapsed());
}

/// A member whose API Priority and Fairness has 20 seats and 50 waiting requests for the gateway. A review takes 50 ms.
#[derive(Clone, Default)]
struct Crowded {
    inside: Arc<AtomicUsize>,
    seats: Arc<std::sync::OnceLock<Semaphore>>,
    of_mallory: Arc<AtomicUsize>,
    most_of_mallory: Arc<AtomicUsize>,
}

impl Ask for Crowded {
    fn ask(
        &self,
        _: &str,
        request: Request<Bytes>,
        _: Duration,
    ) -> BoxFuture<'static, Result<Response<Bytes>, AskError>> {
        let crowded = self.clone();
        let question: Value = serde_json::from_slice(request.body()).unwrap();
        Box::pin(async move {
            let answer = |code: u16, body: Value| {
                Ok(Response::builder().status(code).body(body.to_string().into()).unwrap())
            };
            if crowded.inside.load(Ordering::Relaxed) >= 70 {
                return answer(429, json!({}));
            }
            let is_mallory = question["spec"]["user"] == "mallory";
            let _inside = Inside::new(&crowded.inside);
            let _of_mallory = is_mallory.then(|| Inside::new(&crowded.of_mallory));
            crowded.most_of_mallory.fetch_max(crowded.of_mallory.load(Ordering::Relaxed), Ordering::Relaxed);
            let _seat = crowded.seats.get_or_init(|| Semaphore::new(20)).acquire().await;
            sleep(Duration::from_millis(50)).await;
            answer(201, json!({"status": {"allowed": !is_mallory}}))
        })
    }

    fn generation(&self, _: &str) -> Option<u64> {
        Some(0)
    }
}

/// Counts a request inside the member, until it ends or is cancelled.
struct Inside(Arc<AtomicUsize>);

impl Inside {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count.clone())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn flood_of_reviews_does_not_starve_other_callers() {
    let crowded = Crowded::default();
    let authorizer = Authorizer::new(&Config::default(), Arc::new(crowded.clone()));
    let (bob, mallory) = (Identity::authenticated("bob", []), Identity::authenticated("mallory", []));
    let (bob, mallory) = (Arc::new(bob), Arc::new(mallory));
    let named = |n: usize| pods().named(format!("made-up-{n}"));
    let flood = async |worker: usize| {
        for n in 0.. {
            authorizer.decide("a", &mallory, &named(1_000 * worker + n)).await;
            tokio::task::yield_now().await;
        }
    };
    let floods = futures::future::join_all((0..150).map(flood));
    let others = async {
        let mut slowest = Duration::ZERO;
        for n in 0..140 {
            let begun = Instant::now();
            let decision = authorizer.decide("a", &bob, &named(n)).await;
            assert_eq!((decision.allowed, decision.source), (true, DecisionSource::Member), "{n}");
            slowest = slowest.max(begun.elapsed());
            sleep(Duration::from_millis(400)).await;
        }
        slowest
    };
    let watch = Attributes { verb: "watch".into(), ..pods() };
    tokio::select! {
        _ = floods => unreachable!("it goes on"),
        ended = authorizer.revoked("a", &bob, &watch) => panic!("the watch ended: {ended:?}"),
        slowest = others => assert!(slowest <= Duration::from_millis(200), "{slowest:?}"),
    }
    assert_eq!(crowded.most_of_mallory.load(Ordering::Relaxed), 8);
}

#[tokio::test(start_paused = true)]
async fn refuses_excess_reviews_of_one_caller() {
    let script = allowing();
    script.takes(Duration::from_secs(2));
    let authorizer = authorizer(&script);
    let jane = jane();
    let asked =
        (0..500).map(|n| {
            let (authorizer, jane, what) = (&authorizer, &jane, pods().named(format!("made-up-{n}")));
            async move {
                authorizer.require("a", jane, &what).await.map_err(|status| (status.code, status.message))
            }
        });
    let other = Arc::new(Identity::authenticated("joe", []));
    let (answers, joe) = tokio::join!(futures::future::join_all(asked), async {
        sleep(Duration::from_millis(1)).await;
        authorizer.decide("a", &other, &pods()).await
    });
    assert!(joe.allowed);
    let refused: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
    assert!(refused.len() > 200 && refused.iter().all(|(code, _)| *code == 429), "{}", refused.len());
    assert!(refused.iter().any(|(_, message)| message.contains("too many reviews of your rights")));
}

/// Waiting for a permit says nothing about the member.
#[tokio::test(start_paused = true)]
async fn busy_caller_does_not_mark_member_down() {
    let script = allowing();
    script.takes(Duration::from_secs(2));
    let authorizer = authorizer(&script);
    let jane = jane();
    let asked =
        (0..100).map(|n| {
            let (authorizer, jane, what) = (&authorizer, &jane, pods().named(format!("made-up-{n}")));
            async move {
                authorizer.decide_by("a", jane, &what, Instant::now() + Duration::from_millis(2900)).await
            }
        });
    let decisions = futures::future::join_all(asked).await;
    let sources: Vec<_> = decisions.iter().map(|decision| decision.source).collect();
    assert!(!sources.contains(&DecisionSource::MemberDown), "{sources:?}");
    script.takes(Duration::from_millis(10));
    let begun = Instant::now();
    let joe = Arc::new(Identity::authenticated("joe", []));
    assert!(authorizer.decide_by("a", &joe, &pods(), begun + Duration::from_secs(3)).await.allowed);
}

#[tokio::test(start_paused = true)]
async fn undecided_reviews_end_no_watch_until_they_stay_so() {
    let script = allowing();
    let authorizer = authorizer(&script);
    let (jane, watch) = (jane(), pods());
    let revoked = authorizer.revoked("a", &jane, &watch);
    tokio::pin!(revoked);
    for reply in [Ok((429, json!({}))), Err(AskError::Down("refused".into())), Ok((500, json!({})))] {
        script.answers(move |_, _| reply.clone());
        assert!(tokio::time::timeout(Duration::from_secs(240), &mut revoked).await.is_err());
        script.answers(|_, _| Ok((201, json!({"status": {"allowed": true}}))));
        assert!(tokio::time::timeout(Duration::from_secs(60), &mut revoked).await.is_err());
    }
    // A denial takes effect at once, even after undecided reviews.
    script.answers(|_, _| Ok((429, json!({}))));
    assert!(tokio::time::timeout(Duration::from_secs(60), &mut revoked).await.is_err());
    script.answers(|_, _| Ok((201, json!({"status": {"allowed": false}}))));
    let ended = tokio::time::timeout(Duration::from_secs(10), &mut revoked).await.unwrap();
    assert_eq!(ended.end_reason(), "the right is gone");

    script.answers(|_, _| Ok((429, json!({}))));
    let begun = Instant::now();
    let ended = authorizer.revoked("a", &jane, &watch).await;
    assert_eq!(ended.end_reason(), "the right could not be confirmed");
    assert!(begun.elapsed() >= MAX_UNDECIDED && begun.elapsed() <= MAX_UNDECIDED + Duration::from_secs(70));
}

#[tokio::test(start_paused = true)]
async fn decision_on_silent_member_ends_at_deadline() {
    let script = allowing();
    script.takes(Duration::from_secs(3600));
    let before = Instant::now();
    let decision = authorizer(&script).decide("a", &jane(), &pods()).await;
    assert_eq!((decision.allowed, decision.source), (false, DecisionSource::MemberDown));
    assert_eq!(before.elapsed(), Config::default().cache.member_deadline.0);
}

#[tokio::test(start_paused = true)]
async fn a_down_member_is_asked_once_a_second() {
    let script = Script::new(|_, _| Err(AskError::Down("refused".into())));
    let authorizer = authorizer(&script);
    for _ in 0..100 {
        authorizer.decide("a", &jane(), &pods()).await;
    }
    assert!(script.asked().len() <= 2, "{}", script.asked().len());
    script.answers(|_, _| Ok((201, json!({"status": {"allowed": true}}))));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(authorizer.decide("a", &jane(), &pods()).await.allowed);
}

#[tokio::test(start_paused = true)]
async fn silent_member_is_awaited_once() {
    let script = allowing();
    script.takes(Duration::from_secs(5));
    let authorizer = authorizer(&script);
    let decide = async |cluster: &str| {
        let (begun, within) = (Instant::now(), Duration::from_secs(3));
        let decision = authorizer.decide_by(cluster, &jane(), &pods(), begun + within).await;
        (decision.source, decision.allowed, begun.elapsed())
    };
    let (none, member) = (DecisionSource::MemberDown, DecisionSource::Member);
    assert_eq!(decide("a").await, (none, false, Duration::from_secs(3)));
    for _ in 0..120 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(decide("a").await, (none, false, Duration::ZERO));
    }
    let asked = script.asked().len();
    assert!(
        (10..=16).contains(&asked),
        "each takes 3 s and is followed by a pause of 1 s: {asked} in a minute"
    );

    // The member has recovered. The first caller learns it a moment later, without having waited.
    script.takes(Duration::from_millis(10));
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(decide("a").await, (none, false, Duration::ZERO));
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(decide("a").await, (member, true, Duration::ZERO));
    assert_eq!(decide("b").await, (member, true, Duration::from_millis(10)));
}

/// Each of many clusters is asked a moment after the shared deadline began to run.
#[tokio::test(start_paused = true)]
async fn member_past_shared_deadline_is_not_awaited_again() {
    let script = allowing();
    script.takes(Duration::from_secs(5));
    let authorizer = authorizer(&script);
    let decide = async || {
        let (begun, within) = (Instant::now(), Duration::from_millis(2990));
        let decision = authorizer.decide_by("a", &jane(), &pods(), begun + within).await;
        (decision.source, begun.elapsed())
    };
    assert_eq!(decide().await, (DecisionSource::MemberDown, Duration::from_millis(2990)));
    assert_eq!(decide().await, (DecisionSource::MemberDown, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn member_down_long_ago_is_awaited() {
    let script = Script::new(|_, _| Err(AskError::Down("refused".into())));
    let authorizer = authorizer(&script);
    let within = Duration::from_secs(3);
    let (jane, pods) = (jane(), pods());
    assert!(authorizer.decide_by("a", &jane, &pods, Instant::now() + within).await.is_undecided());
    script.answers(|_, _| Ok((201, json!({"status": {"allowed": true}}))));
    tokio::time::advance(Duration::from_secs(30)).await;
    assert!(authorizer.decide_by("a", &jane, &pods, Instant::now() + within).await.allowed);
}

#[tokio::test(start_paused = true)]
async fn reloaded_policy_applies_to_open_watches() {
    let script = allowing();
    let before = with_policy(AuthorizationMode::Policy, MemberDown::Deny);
    let authorizer = Authorizer::new(&before, script.arc());
    let (watcher, jane, watch) = (authorizer.clone(), jane(), pods());
    let revoked = watcher.revoked("a", &jane, &watch);
    tokio::pin!(revoked);
    assert!(tokio::time::timeout(Duration::from_secs(300), &mut revoked).await.is_err());
    let mut after = before;
    after.authorization.policy.clear();
    authorizer.take_over(&after);
    let ended = tokio::time::timeout(Duration::from_secs(60), &mut revoked).await;
    assert!(!ended.unwrap().allowed);
}

#[tokio::test(start_paused = true)]
async fn policy_decides_only_when_member_is_down() {
    let config = with_policy(AuthorizationMode::Member, MemberDown::Policy);
    let secrets = Attributes { resource: "secrets".into(), ..pods() };
    let down = Script::new(|_, _| Err(AskError::Down("refused".into())));
    let authorizer = Authorizer::new(&config, down.arc());
    let decision = authorizer.decide("a", &jane(), &pods()).await;
    assert_eq!((decision.allowed, decision.source), (true, DecisionSource::Policy));
    assert!(!authorizer.decide("a", &jane(), &secrets).await.allowed);

    // A member that answers decides itself. One that refuses, is busy or fails is not down.
    for code in [201, 403, 404, 429, 500, 501] {
        let script = Script::new(move |_, _| Ok((code, json!({"status": {"allowed": false}}))));
        let decision = Authorizer::new(&config, script.arc()).decide("a", &jane(), &pods()).await;
        assert!(!decision.allowed, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn policy_mode_sends_no_review() {
    let script = allowing();
    let config = with_policy(AuthorizationMode::Policy, MemberDown::Deny);
    let authorizer = Authorizer::new(&config, script.arc());
    assert!(authorizer.decide("a", &jane(), &pods()).await.allowed);
    assert!(!authorizer.decide("a", &Arc::new(Identity::authenticated("joe", [])), &pods()).await.allowed);
    assert!(script.asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn trusts_only_loopback_user_when_configured() {
    let script = Script::reviewing(|_, _| json!({"allowed": false}));
    let mut config = Config::default();
    let loopback = Arc::new(Identity::loopback());
    assert!(!Authorizer::new(&config, script.arc()).decide("a", &loopback, &pods()).await.allowed);
    config.authorization.loopback = LoopbackTrust::Trusted;
    let trusting = Authorizer::new(&config, script.arc());
    assert_eq!(trusting.decide("a", &loopback, &pods()).await.source, DecisionSource::Trusted);
    assert!(!trusting.decide("a", &jane(), &pods()).await.allowed);
}

#[tokio::test(start_paused = true)]
async fn revoked_right_ends_watch_within_sixty_seconds() {
    let script = allowing();
    let authorizer = authorizer(&script);
    let (jane, watch) = (jane(), Attributes { verb: "watch".into(), ..pods() });
    let revoked = authorizer.revoked("a", &jane, &watch);
    tokio::pin!(revoked);
    for _ in 0..20 {
        assert!(tokio::time::timeout(Duration::from_secs(30), &mut revoked).await.is_err());
    }
    // Another caller asks just before, so the cached decision is old.
    authorizer.decide("a", &jane, &watch).await;
    script.answers(|_, _| Ok((201, json!({"status": {"allowed": false}}))));
    let ended = tokio::time::timeout(Duration::from_secs(60), &mut revoked).await;
    assert!(!ended.unwrap().allowed);
}

#[tokio::test(start_paused = true)]
async fn cluster_account_is_denied_elsewhere_in_any_mode() {
    for mode in [AuthorizationMode::Member, AuthorizationMode::Policy] {
        let script = allowing();
        let authorizer = Authorizer::new(&with_policy(mode, MemberDown::Policy), script.arc());
        let jane = Arc::new(Identity { home: Some("home".into()), ..Identity::clone(&jane()) });
        assert!(authorizer.decide("home", &jane, &pods()).await.allowed);
        let asked = script.asked().len();
        let refused = authorizer.require("b", &jane, &pods()).await.unwrap_err();
        assert!(refused.code == 403 && refused.message.contains("sharedAccounts"), "{}", refused.message);
        assert_eq!(script.asked().len(), asked, "nobody is asked");
    }
}
