//! The faults. Their rows are those of the project's catalogue of faults.

use std::time::Duration;

use peer_protocol::WatchList;
use skopos_testserver::{
    CloseMode as ServerHow, Damage, Fault as Inner, FaultGuard, Lag, Match, Status, TestServer,
};

use crate::proxy::{CloseMode, Door, Wire};
use crate::server::Kind;

/// A fault, and how it is inflicted.
#[derive(Clone)]
pub(crate) struct Fault {
    /// For `--only`.
    pub(crate) id: &'static str,
    /// Its row in the catalogue.
    pub(crate) row: u8,
    /// For people.
    pub(crate) title: &'static str,
    /// The real server, where a proxy or a kill suffices.
    pub(crate) server: Kind,
    pub(crate) begin: Begin,
    pub(crate) harm: Harm,
    /// How long it lasts; `None`: it is over at once, or never ends.
    pub(crate) lasts: Option<Duration>,
    /// Done once the objects have changed under the fault.
    pub(crate) after_changes: Option<fn(&TestServer)>,
    /// How the first list is made.
    pub(crate) watch_list: WatchList,
    /// Waited for longer than for the others.
    pub(crate) cap: Option<Duration>,
}

/// When a fault begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    /// Some seconds after the sync.
    Synced,
    /// Before the clients start.
    First,
}

/// What is done.
#[derive(Clone, Copy)]
pub(crate) enum Harm {
    /// To the bytes of connections, by the proxies.
    Wire { open: Wire, new: Wire },
    /// To connections as such, by the proxies.
    Cut { kill: Option<CloseMode>, door: Door },
    /// The server is killed, and starts again when the fault ends.
    Crash,
    /// The clients' processes are stopped, as those of a machine that is suspended.
    Freeze,
    /// By the server, to the client of a user agent.
    Inside(fn(&TestServer, &str) -> Vec<FaultGuard>),
    /// By the server, to all.
    Whole(fn(&TestServer) -> Vec<FaultGuard>),
}

/// How many changes a restored etcd has forgotten. Fewer than the scene makes before it begins; more than it makes in the
/// two minutes after, so that the server does not pass its old resourceVersion at once.
const ROLLED_BACK: u64 = 150;

/// All faults, in the order of the page.
pub(crate) fn all() -> Vec<Fault> {
    [connections(), start(), silence(), frames(), answers(), history(), closing()].concat()
}

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

const LOST: Wire = Wire { to_server_lost: true, to_client_lost: true, rate: None, cut_after: None };
const LOST_TO_CLIENT: Wire = Wire { to_server_lost: false, ..LOST };
const LOST_TO_SERVER: Wire = Wire { to_client_lost: false, ..LOST };
const WELL: Wire = Wire { to_server_lost: false, to_client_lost: false, rate: None, cut_after: None };

fn fault(id: &'static str, row: u8, title: &'static str, harm: Harm) -> Fault {
    let server = if matches!(harm, Harm::Inside(_) | Harm::Whole(_)) { Kind::Test } else { Kind::Real };
    Fault {
        id,
        row,
        title,
        server,
        begin: Begin::Synced,
        harm,
        lasts: None,
        after_changes: None,
        watch_list: WatchList::Default,
        cap: None,
    }
}

impl Fault {
    fn lasts(self, seconds: u64) -> Self {
        Self { lasts: Some(secs(seconds)), ..self }
    }

    fn first(self) -> Self {
        Self { begin: Begin::First, ..self }
    }
}

fn connections() -> Vec<Fault> {
    let open = |wire| Harm::Wire { open: wire, new: WELL };
    vec![
        fault("hole", 1, "black hole, open connections, both ways", open(LOST)),
        fault("hole-to-client", 1, "black hole, open connections, to the client", open(LOST_TO_CLIENT)),
        fault("hole-to-server", 1, "black hole, open connections, to the server", open(LOST_TO_SERVER)),
        fault("hole-all", 1, "black hole, all connections, for 60 s", Harm::Wire { open: LOST, new: LOST })
            .lasts(60),
        fault("rst", 3, "connections reset", Harm::Cut { kill: Some(CloseMode::Rst), door: Door::Open }),
        fault(
            "fin",
            4,
            "connections closed in order",
            Harm::Cut { kill: Some(CloseMode::Fin), door: Door::Open },
        ),
        fault(
            "cut",
            13,
            "connections cut after 3 KB, for 30 s",
            Harm::Wire {
                open: Wire { cut_after: Some(0), ..WELL },
                new: Wire { cut_after: Some(3_000), ..WELL },
            },
        )
        .lasts(30),
        fault(
            "refused",
            38,
            "reset, then refused for 40 s",
            Harm::Cut { kill: Some(CloseMode::Rst), door: Door::Refuse },
        )
        .lasts(40),
        fault(
            "silent",
            39,
            "closed, then accepted in silence for 60 s",
            Harm::Cut { kill: Some(CloseMode::Fin), door: Door::Silent },
        )
        .lasts(60),
        fault("crash-5", 26, "server killed, back after 5 s", Harm::Crash).lasts(5),
        fault("crash-32", 26, "server killed, back after 32 s", Harm::Crash).lasts(32),
        fault("freeze", 31, "client suspended for 60 s", Harm::Freeze).lasts(60),
    ]
}

fn start() -> Vec<Fault> {
    let closed = |door| Harm::Cut { kill: None, door };
    vec![
        fault("start-refused", 39, "start: refused for 60 s", closed(Door::Refuse)).lasts(60).first(),
        fault("start-silent", 39, "start: accepted in silence for 60 s", closed(Door::Silent))
            .lasts(60)
            .first(),
        fault("start-hole", 1, "start: black hole for 60 s", Harm::Wire { open: WELL, new: LOST })
            .lasts(60)
            .first(),
        fault(
            "start-slow",
            11,
            "start: 100 bytes a second for 120 s",
            Harm::Wire { open: WELL, new: Wire { rate: Some(100), ..WELL } },
        )
        .lasts(120)
        .first(),
        fault(
            "start-headers",
            12,
            "start: no response headers for 120 s",
            Harm::Whole(|server| vec![server.faults().inject(Inner::WithholdHeaders).everywhere()]),
        )
        .lasts(120)
        .first(),
        Fault {
            watch_list: WatchList::On,
            ..fault(
                "start-bookmark",
                35,
                "start: streamed list without its end bookmark",
                Harm::Whole(|server| {
                    vec![server.faults().inject(Inner::WithholdBookmarks).on(Match::watch())]
                }),
            )
            .first()
        },
    ]
}

fn silence() -> Vec<Fault> {
    vec![
        fault(
            "stall",
            8,
            "watch stream stalls, PING is answered",
            Harm::Inside(|server, agent| {
                vec![server.faults().inject(Inner::Stall).on(Match::watch().user_agent(agent)).times(1)]
            }),
        ),
        fault(
            "stall-all",
            50,
            "all watch streams stall for 120 s, PING is answered",
            Harm::Whole(|server| vec![server.faults().inject(Inner::Stall).on(Match::watch())]),
        )
        .lasts(120),
        fault(
            "headers",
            12,
            "watch renewed, no response headers for 120 s",
            Harm::Whole(|server| {
                let guard = server.faults().inject(Inner::WithholdHeaders).on(Match::watch());
                server.close_watches();
                vec![guard]
            }),
        )
        .lasts(120),
        fault(
            "lag",
            33,
            "reconnected to a server that lags for 60 s",
            Harm::Whole(|server| {
                let at = server.resource_version();
                let guard = server.faults().inject(Inner::Lag(Lag::Frozen { at })).on(Match::watch());
                server.faults().kill_connections(ServerHow::Fin);
                vec![guard]
            }),
        )
        .lasts(60),
    ]
}

fn once(server: &TestServer, agent: &str, fault: Inner) -> Vec<FaultGuard> {
    vec![server.faults().inject(fault).on(Match::watch().user_agent(agent)).times(1)]
}

fn frames() -> Vec<Fault> {
    vec![
        fault(
            "half",
            13,
            "half a frame, then the end",
            Harm::Inside(|server, agent| once(server, agent, Inner::HalfFrame)),
        ),
        fault(
            "garbage",
            14,
            "one frame is garbage",
            Harm::Inside(|server, agent| once(server, agent, Inner::GarbageFrame)),
        ),
        fault(
            "undecodable",
            15,
            "one object cannot be decoded",
            Harm::Inside(|server, agent| once(server, agent, Inner::Undecodable(Damage::Labels))),
        ),
        Fault {
            cap: Some(secs(720)),
            ..fault(
                "lost",
                47,
                "one event is lost",
                Harm::Inside(|server, agent| once(server, agent, Inner::DropEvents)),
            )
        },
        fault(
            "repeated",
            51,
            "each event comes twice, for 30 s",
            Harm::Whole(|server| vec![server.faults().inject(Inner::RepeatEvents).on(Match::watch())]),
        )
        .lasts(30),
    ]
}

fn answers() -> Vec<Fault> {
    fn all(server: &TestServer, answer: Inner) -> Vec<FaultGuard> {
        let guard = server.faults().inject(answer).everywhere();
        server.close_watches();
        vec![guard]
    }
    vec![
        fault("401", 18, "401 for 60 s", Harm::Whole(|server| all(server, Inner::status(401, 0)))).lasts(60),
        fault("403", 19, "403 for 60 s", Harm::Whole(|server| all(server, Inner::status(403, 0)))).lasts(60),
        fault(
            "404",
            20,
            "404 for 60 s",
            Harm::Whole(|server| all(server, Inner::Status(Status::resource_not_served()))),
        )
        .lasts(60),
        fault(
            "429",
            24,
            "429 with Retry-After: 10, for 30 s",
            Harm::Whole(|server| all(server, Inner::too_many_requests(10))),
        )
        .lasts(30),
        fault("503", 25, "503 for 30 s", Harm::Whole(|server| all(server, Inner::status(503, 0)))).lasts(30),
        fault(
            "redirect",
            27,
            "redirect elsewhere for 30 s",
            Harm::Whole(|server| all(server, Inner::Redirect("http://127.0.0.1:9/".into()))),
        )
        .lasts(30),
    ]
}

fn history() -> Vec<Fault> {
    vec![
        fault(
            "410",
            22,
            "410 as a status, once",
            Harm::Inside(|server, agent| {
                let guards = once(server, agent, Inner::Status(Status::watch_expired()));
                // Told three times, once for each client; a watch that is already closed is not harmed by it.
                server.close_watches();
                guards
            }),
        ),
        fault(
            "410-always",
            22,
            "410 as a status on every watch that resumes, for 60 s",
            Harm::Whole(|server| {
                let gone = Inner::Status(Status::watch_expired());
                let at = server.resource_version().to_string();
                let guard = server.faults().inject(gone).on(Match::watch().query("resourceVersion", at));
                server.close_watches();
                vec![guard]
            }),
        )
        .lasts(60),
        fault(
            "410-stream",
            22,
            "410 in the stream, once",
            Harm::Inside(|server, agent| once(server, agent, Inner::ErrorEvent(Status::watch_expired()))),
        ),
        Fault {
            server: Kind::Test,
            after_changes: Some(|server| server.compact()),
            ..fault(
                "compacted",
                46,
                "disconnected for 10 s, history compacted",
                Harm::Cut { kill: Some(CloseMode::Rst), door: Door::Refuse },
            )
            .lasts(10)
        },
        fault(
            "rollback",
            32,
            "resourceVersion goes back (restored etcd)",
            Harm::Whole(|server| {
                let back = server.resource_version().saturating_sub(ROLLED_BACK);
                server.roll_back(back).expect("a new server has all its versions");
                Vec::new()
            }),
        ),
    ]
}

fn closing() -> Vec<Fault> {
    vec![
        fault(
            "goaway",
            6,
            "GOAWAY",
            Harm::Whole(|server| {
                server.faults().go_away();
                Vec::new()
            }),
        ),
        fault(
            "goaway-storm",
            7,
            "GOAWAY with each answer, for 30 s",
            Harm::Whole(|server| {
                let guard = server.faults().inject(Inner::GoAway).everywhere();
                server.close_watches();
                vec![guard]
            }),
        )
        .lasts(30),
        fault(
            "streams",
            10,
            "one stream per connection",
            Harm::Whole(|server| {
                server.faults().limit_streams(Some(1));
                server.faults().kill_connections(ServerHow::Fin);
                Vec::new()
            }),
        ),
        fault(
            "closing",
            37,
            "each watch ends at once, for 30 s",
            Harm::Whole(|server| vec![server.faults().inject(Inner::Close).on(Match::watch())]),
        )
        .lasts(30),
    ]
}
