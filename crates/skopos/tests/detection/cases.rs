//! The faults.

use skopos::{InitialList, Limits, Status};
use skopos_testserver::{CloseMode, ConnectionId, Connections, Damage, Direction, Fault, Lag, Match};

use super::bed::{Case, Harm};
use super::bounds::*;
use super::support::{World, secs};

pub(crate) fn all() -> Vec<Case> {
    [connections(), silence(), streams(), answers(), history(), bodies(), harmless()]
        .into_iter()
        .flatten()
        .collect()
}

fn connections() -> Vec<Case> {
    vec![
        Case::once("connection reset (RST)", CONNECTION_LOST, |world| {
            world.server.faults().kill_connections(CloseMode::Rst);
            Harm::over()
        }),
        Case::once("connection closed (FIN)", CONNECTION_LOST, |world| {
            world.server.faults().kill_connections(CloseMode::Fin);
            Harm::over()
        }),
        Case::once("GOAWAY", CONNECTION_LOST, |world| {
            world.server.faults().go_away();
            Harm::over()
        }),
        Case::once("watch stream reset (RST_STREAM)", CONNECTION_LOST, |world| {
            Harm::new(world.server.faults().inject(Fault::Reset).on(Match::watch()).times(1))
        }),
        Case::lasting("connections refused for 40 s", CONNECTION_LOST, 40, |_| Harm::paused())
            .load(Whose::DeadCluster),
        Case::lasting("connections refused for 5 min", DOWN_FOR_LONG, 300, |_| Harm::paused())
            .load(Whose::DeadCluster),
        Case::lasting("every request kills its connection", KILLED, 180, |world| {
            let kill = world.server.faults().inject(Fault::KillConnection(CloseMode::Rst)).everywhere();
            world.server.faults().kill_connections(CloseMode::Rst);
            Harm::new(kill)
        }),
        Case::once("one stream per connection from now on", CONNECTION_LOST, |world| {
            world.server.faults().limit_streams(Some(1));
            world.server.faults().kill_connections(CloseMode::Fin);
            Harm::over()
        }),
        hole("black hole: open connections, both ways", Connections::Existing, Direction::Both, 0),
        hole("black hole: open connections, to the server", Connections::Existing, Direction::ToServer, 0)
            .noticed_as("ping_timeout"),
        hole("black hole: open connections, to the client", Connections::Existing, Direction::ToClient, 0),
        hole("black hole: all connections, both ways", Connections::All, Direction::Both, 180)
            .load(Whose::DeadCluster),
        hole("black hole: all connections, to the server", Connections::All, Direction::ToServer, 180)
            .noticed_as("ping_timeout")
            .load(Whose::DeadCluster),
        hole("black hole: all connections, to the client", Connections::All, Direction::ToClient, 180)
            .load(Whose::DeadCluster),
    ]
}

fn hole(fault: &'static str, connections: Connections, direction: Direction, seconds: u64) -> Case {
    Case::lasting(fault, BLACK_HOLE, seconds, move |world| {
        Harm::new(world.server.faults().black_hole(connections, direction))
    })
}

fn silence() -> Vec<Case> {
    vec![
        Case::once("one watch stalled, PING alive", STALLED, |world| {
            Harm::new(world.server.faults().inject(Fault::Stall).on(Match::watch()).times(1))
        }),
        Case::lasting("all watches stalled, PING alive", STALLED, 300, |world| {
            Harm::new(world.server.faults().inject(Fault::Stall).on(Match::watch()))
        }),
        Case::lasting("a proxy holds what watches bring until they end", STALLED, 300, |world| {
            let harm = Harm::new(world.server.faults().inject(Fault::HoldUntilEnd).on(Match::watch()));
            world.server.close_watches();
            harm
        }),
        Case::lasting("one server lags for good, another does not", STALLED, 0, |world| {
            let at = world.server.resource_version();
            let lag = Fault::Lag(Lag::Frozen { at });
            let behind = Match::watch().connection(connection_of_the_watch(world));
            Harm::new(world.server.faults().inject(lag).on(behind))
        }),
        Case::lasting("all servers lag by 10 s", STALLED, 60, |world| {
            Harm::new(world.server.faults().inject(Fault::Lag(Lag::By(secs(10)))).everywhere())
        }),
        Case::lasting("no headers for a list", LIST_UNANSWERED, 120, |world| {
            Harm::new(world.server.faults().inject(Fault::WithholdHeaders).on(Match::list()))
        })
        .late_start()
        .options(paged)
        .noticed_as("headers_deadline"),
        Case::lasting("no headers for a watch", WATCH_UNANSWERED, 200, |world| {
            let harm = Harm::new(world.server.faults().inject(Fault::WithholdHeaders).on(Match::watch()));
            world.server.close_watches();
            harm
        })
        .noticed_as("headers_deadline"),
        Case::lasting("headers of a watch held until its first event", WATCH_UNANSWERED, 120, |world| {
            let harm =
                Harm::new(world.server.faults().inject(Fault::HoldHeadersUntilData).on(Match::watch()));
            world.server.close_watches();
            harm
        }),
        Case::lasting("a list body byte by byte (slow loris)", SLOW_BODY, 180, |world| {
            let slow = Fault::Slow { bytes: 1, every: secs(1) };
            Harm::new(world.server.faults().inject(slow).on(Match::list()))
        })
        .late_start()
        .options(paged)
        .noticed_as("progress_deadline"),
    ]
}

fn streams() -> Vec<Case> {
    vec![
        watch_case("half a frame, then the end", BROKEN_FRAME, 0, || Fault::HalfFrame),
        watch_case("a garbage frame", BROKEN_FRAME, 0, || Fault::GarbageFrame),
        Case::lasting("garbage frames only", BROKEN_FRAME, 120, |world| {
            Harm::new(world.server.faults().inject(Fault::GarbageFrame).on(Match::watch()))
        }),
        watch_case("an object with broken labels, once", BROKEN_FRAME, 0, || {
            Fault::Undecodable(Damage::Labels)
        }),
        watch_case("an object without a name, once", BROKEN_FRAME, 0, || Fault::Undecodable(Damage::NoName)),
        Case::lasting("undecodable objects on watches only", BROKEN_FRAME, 120, |world| {
            Harm::new(world.server.faults().inject(Fault::Undecodable(Damage::Labels)).on(Match::watch()))
        }),
        Case::lasting("undecodable objects in watches and lists", BROKEN_FRAME, 120, |world| {
            let damage = |on| world.server.faults().inject(Fault::Undecodable(Damage::Labels)).on(on);
            Harm::new(damage(Match::watch())).and(damage(Match::list()))
        }),
        watch_case("the watch ends cleanly, once", CONNECTION_LOST, 0, || Fault::Close),
        Case::lasting("each watch ends cleanly at once", CLOSED_IN_A_LOOP, 180, |world| {
            Harm::new(world.server.faults().inject(Fault::Close).on(Match::watch()))
        }),
        Case::lasting("each watch ends cleanly after 2 s", CLOSED_IN_A_LOOP, 180, |world| {
            Harm::new(world.server.faults().inject(Fault::CloseAfter(secs(2))).on(Match::watch()))
        }),
        Case::lasting("events lost on the way", DIVERGENCE, 0, |world| {
            let harm = Harm::new(world.server.faults().inject(Fault::DropEvents).on(Match::watch()).times(1));
            world.put("a", "lost", "1");
            harm
        })
        .options(|options| skopos::FactoryOptions { audit_interval: Some(secs(600)), ..options }),
    ]
}

fn watch_case(fault: &'static str, bounds: Bounds, seconds: u64, make: fn() -> Fault) -> Case {
    Case::lasting(fault, bounds, seconds, move |world| {
        Harm::new(world.server.faults().inject(make()).on(Match::watch()).times(1))
    })
}

fn answers() -> Vec<Case> {
    vec![
        answer("401 to every request", ANSWERED, || Fault::status(401, 0)),
        answer("403 to every request", ANSWERED, || Fault::status(403, 0)),
        answer("404 to every request", ANSWERED, || Fault::Status(Status::resource_not_served())),
        answer("429 with Retry-After: 20", THROTTLED, || Fault::too_many_requests(20)),
        answer("429 of a watch cache that is not ready", THROTTLED, || Fault::cache_not_ready(20)),
        answer("500 to every request", ANSWERED, || Fault::status(500, 0)),
        answer("503 to every request", ANSWERED, || Fault::status(503, 0)),
        answer("504 to every request", ANSWERED, || Fault::status(504, 0)),
        answer("502 with a proxy's HTML", ANSWERED, || Fault::Answer {
            code: 502,
            headers: vec![(http::header::CONTENT_TYPE, "text/html".into())],
            body: "<html><body>Bad Gateway</body></html>".into(),
        }),
        answer("redirect to another host", ANSWERED, || Fault::Redirect("http://elsewhere.test/".into())),
    ]
}

/// Answers all requests with this fault, and ends the open watch, whose permission is checked only when it starts.
fn answer(fault: &'static str, bounds: Bounds, make: fn() -> Fault) -> Case {
    Case::lasting(fault, bounds, 180, move |world| {
        let harm = Harm::new(world.server.faults().inject(make()).everywhere());
        world.server.close_watches();
        harm
    })
}

fn history() -> Vec<Case> {
    vec![
        Case::once("410 as a status", HISTORY_GONE, |world| {
            let gone = Fault::Status(Status::watch_expired());
            let harm = Harm::new(world.server.faults().inject(gone).on(Match::watch()).times(1));
            world.server.close_watches();
            harm
        }),
        watch_case("410 in the stream", HISTORY_GONE, 0, || Fault::ErrorEvent(Status::watch_expired())),
        Case::lasting("compaction while disconnected", HISTORY_GONE_MEANWHILE, 10, |_| {
            Harm::paused_and_compacted()
        }),
        Case::once("resourceVersion rolled back (restored etcd)", ROLLED_BACK, |world| {
            world.server.roll_back(world.server.resource_version() - 10).expect("rolled back");
            Harm::over()
        })
        .prepare(|world| {
            for n in 0..20 {
                world.put("a", &format!("perhaps-undone-{n}"), "1");
            }
        }),
    ]
}

fn bodies() -> Vec<Case> {
    vec![
        hostile("a watch body without an end of line", || Fault::EndlessLine, Match::watch),
        hostile("a list body without an end", || Fault::EndlessLine, Match::list)
            .late_start()
            .options(small_and_paged),
        hostile("a list with an object of 1 GB", || Fault::GiantObject { bytes: 1 << 30 }, Match::list)
            .late_start()
            .options(small_and_paged),
        hostile(
            "a gzip bomb of 2 MB behind a cap of 1 MB as a watch",
            || Fault::GzipBomb { bytes: 2 << 20 },
            Match::watch,
        ),
        hostile(
            "a gzip bomb of 2 MB behind a cap of 1 MB as a list",
            || Fault::GzipBomb { bytes: 2 << 20 },
            Match::list,
        )
        .late_start()
        .options(small_and_paged),
        hostile("a list in gzip that is cut off", || Fault::TruncatedGzip, Match::list)
            .late_start()
            .options(small_and_paged),
    ]
}

fn hostile(fault: &'static str, make: fn() -> Fault, on: fn() -> Match) -> Case {
    Case::lasting(fault, HOSTILE, 180, move |world| {
        let harm = Harm::new(world.server.faults().inject(make()).on(on()));
        world.server.close_watches();
        harm
    })
    .options(|options| skopos::FactoryOptions { limits: small(), ..options })
}

fn harmless() -> Vec<Case> {
    vec![
        Case::lasting("events repeated out of order", HARMLESS, 60, |world| {
            Harm::new(world.server.faults().inject(Fault::RepeatEvents).on(Match::watch()))
        }),
        Case::lasting("no bookmarks", HARMLESS, 600, |world| {
            Harm::new(world.server.faults().inject(Fault::WithholdBookmarks).on(Match::watch()))
        }),
        Case::once("streamed list without its end bookmark", NO_END_BOOKMARK, |world| {
            Harm::new(world.server.faults().inject(Fault::WithholdBookmarks).on(Match::watch()))
        })
        .late_start()
        .noticed_when_recovered(),
        Case::lasting("headers 5 s late", HARMLESS, 60, |world| {
            Harm::new(world.server.faults().inject(Fault::DelayHeaders(secs(5))).everywhere())
        }),
        Case::lasting("each answer with GOAWAY", HARMLESS, 120, |world| {
            Harm::new(world.server.faults().inject(Fault::GoAway).everywhere())
        }),
    ]
}

fn paged(mut options: skopos::FactoryOptions) -> skopos::FactoryOptions {
    options.machine.initial = InitialList::Paged;
    options
}

/// Returns limits that are reached in a moment of real time.
fn small() -> Limits {
    Limits { max_object_bytes: 1 << 20, max_frame_bytes: 1 << 20, ..Limits::default() }
}

fn small_and_paged(options: skopos::FactoryOptions) -> skopos::FactoryOptions {
    skopos::FactoryOptions { limits: small(), ..paged(options) }
}

fn connection_of_the_watch(world: &World) -> ConnectionId {
    let requests = world.server.requests();
    requests.iter().rev().find(|request| request.is_open_watch()).expect("an open watch").connection
}
