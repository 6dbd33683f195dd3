//! One fault at a time, one sentence each.

use skopos_wire::ResourceVersion;

use super::secs;
use super::world::{Asked, Fault, World};
use crate::machine::*;

fn paged() -> MachineOptions {
    MachineOptions { initial: InitialList::Paged, ..MachineOptions::default() }
}

fn streamed() -> MachineOptions {
    MachineOptions::default()
}

fn relists(world: &World) -> usize {
    world.sink.commits.len() - 1
}

#[test]
fn list_in_pages_then_watch() {
    let mut world = World::synced(1, paged());
    assert!(world.asked.iter().filter(|(_, asked)| *asked == Asked::Page).count() >= 2);
    world.run(secs(1800));
    assert!(world.sink.batches > 1000);
    assert_eq!(relists(&world), 0);
    assert_eq!(world.machine.stats().failures, 0, "watches that end in their time are no failures");
    assert!(!world.sink.conditions.iter().any(Condition::is_failing));
}

#[test]
fn streamed_list_continues_as_watch() {
    let mut world = World::synced(2, streamed());
    assert_eq!(world.asked.len(), 1);
    world.run(secs(60));
    assert_eq!(world.asked.len(), 1);
    assert!(world.sink.batches > 50);
}

#[test]
fn remembers_streamed_list_without_end() {
    let mut world = World::new(3, streamed());
    world.set(Fault::NoEndBookmark);
    let took = world.until(secs(120), World::is_equal);
    assert!(took < secs(20), "{took:?}");
    assert!(!world.machine.watch_list_supported());
    world.set(Fault::None);
    world.give(Input::Relist);
    world.until(secs(60), |world| relists(world) == 1);
    assert_eq!(world.asked.iter().filter(|(_, asked)| *asked == Asked::Stream).count(), 1);
}

#[test]
fn streamed_list_refused_falls_back_at_once() {
    let mut world = World::new(4, streamed());
    world.set(Fault::NoStreams);
    let took = world.until(secs(120), World::is_equal);
    assert!(took < secs(2), "{took:?}");
}

#[test]
fn lost_connection_resumes_without_list() {
    for seed in 0..20 {
        let mut world = World::synced(seed, paged());
        for _ in 0..10 {
            world.set(Fault::Down);
            world.run(secs(3));
            assert_eq!(world.machine.state().condition, Condition::Unreachable);
            assert!(world.machine.state().attempts > 0 && world.machine.state().reason.is_some());
            world.set(Fault::None);
            let took = world.until(secs(60), World::is_equal);
            assert!(took <= secs(2), "{took:?}");
        }
        assert_eq!(relists(&world), 0);
    }
}

#[test]
fn cut_streams_resume_within_a_second() {
    let mut world = World::synced(1, paged());
    world.run(secs(60));
    for _ in 0..10 {
        world.cut_all();
        let took = world.until(secs(60), |world| world.machine.state().condition == Condition::Watching);
        assert!(took <= secs(1), "{took:?}");
        world.run(secs(11));
    }
    assert_eq!(relists(&world), 0);
}

#[test]
fn repeatedly_cut_streams_are_reopened_evenly() {
    for seed in 0..20 {
        let mut world = World::synced(seed, paged());
        world.run(secs(120));
        world.set(Fault::CutAfterEvent);
        let begun = world.now;
        world.run(secs(600));
        let opened: Vec<_> = world.asked.iter().map(|(at, _)| *at).filter(|at| *at >= begun).collect();
        assert!(opened[1].since(begun) <= secs(4), "cut twice in 4 s, and opened twice: {opened:?}");
        assert!(World::worst_minute(opened.iter().copied()) <= 6);
        let longest = opened.windows(2).map(|pair| pair[1].since(pair[0])).max().unwrap();
        assert!(longest <= secs(40), "{longest:?}: {opened:?}");
    }
}

#[test]
fn gone_relists_with_gap() {
    for event in [false, true] {
        let mut world = World::synced(5, paged());
        world.set(Fault::Gone { event });
        world.cut_all();
        let before = world.content();
        world.until(secs(60), |world| relists(world) == 1);
        assert_ne!(before, world.content());
        assert_eq!(world.sink.causes(), [ReplaceCause::Initial, ReplaceCause::Expired]);
        assert!(world.sink.commits[1].gap && !world.sink.commits[0].gap);
        world.run(secs(600));
        assert!(World::worst_minute(world.served_lists.iter().copied()) <= 2, "lists are bounded");
    }
}

#[test]
fn server_errors_and_throttling_never_list_again() {
    for code in [500, 502, 503, 504, 429, 401, 403, 404, 400] {
        let mut world = World::synced(6, paged());
        world.cut_all();
        world.set(Fault::Answer { code, retry_after: 0, watches_only: false });
        world.run(secs(300));
        let expected = match code {
            429 => Condition::Throttled,
            401 => Condition::Unauthorized,
            403 => Condition::Forbidden,
            404 => Condition::NotServed,
            400 => Condition::Rejected,
            _ => Condition::ServerError,
        };
        assert_eq!(world.machine.state().condition, expected);
        world.set(Fault::None);
        world.until(secs(45), |world| world.is_equal() && world.machine.state().attempts == 0);
        assert_eq!(relists(&world), 0);
    }
}

#[test]
fn retry_after_is_honoured() {
    let mut world = World::synced(7, paged());
    world.cut_all();
    world.set(Fault::Answer { code: 429, retry_after: 120, watches_only: false });
    let before = world.asked.len();
    world.run(secs(119));
    assert_eq!(world.asked.len(), before + 1);
    assert_eq!(world.machine.state().condition, Condition::Throttled);
    world.give(Input::RetryNow);
    world.run(secs(1));
    assert_eq!(world.asked.len(), before + 1, "the server's own wish counts more than a hint");
    world.run(secs(15));
    assert_eq!(world.asked.len(), before + 2);
}

#[test]
fn clean_close_in_a_loop_backs_off() {
    let mut world = World::synced(8, paged());
    world.set(Fault::CloseAtOnce);
    world.cut_all();
    let begun = world.asked.len();
    world.run(secs(600));
    assert!(world.asked.len() - begun <= 8 + 2 * 10, "{}", world.asked.len() - begun);
    assert_eq!(world.machine.state().condition, Condition::Retrying);
    assert_eq!(relists(&world), 0);
}

#[test]
fn replaces_stalled_stream_within_minute() {
    for seed in 0..30 {
        let mut world = World::synced(seed, if seed % 2 == 0 { paged() } else { streamed() });
        world.run(secs(seed * 7 % 60));
        world.set(Fault::Stall);
        let took = world.until(secs(600), |world| world.machine.stats().stalls == 1 && world.is_equal());
        assert!(took <= secs(60), "{took:?}");
        assert_eq!(relists(&world), 0);
        world.until(secs(30), |world| world.machine.state().condition == Condition::Watching);
    }
}

#[test]
fn stalled_stream_is_found_without_probes_too() {
    let mut world = World::synced(3, paged());
    world.probes_every = None;
    world.set(Fault::Stall);
    let took = world.until(secs(600), |world| world.machine.stats().stalls == 1);
    assert!(took <= secs(120), "{took:?}");
}

#[test]
fn quiet_collection_stays_fresh_without_lists() {
    let mut world = World::synced(9, paged());
    world.writes_every = None;
    let mut oldest = Duration::ZERO;
    for _ in 0..600 {
        world.server.tick();
        world.run(secs(1));
        oldest = oldest.max(world.now.since(world.sink.fresh.unwrap()));
    }
    assert_eq!(relists(&world), 0);
    assert_eq!(world.machine.stats().stalls, 0);
    assert!(oldest <= secs(50), "the age stays bounded: {oldest:?}");
    assert!(world.machine.stats().verification_watches <= 25, "{:?}", world.machine.stats());
}

#[test]
fn silence_without_bookmarks_lists_ever_more_rarely() {
    let mut world = World::synced(10, paged());
    world.writes_every = None;
    world.set(Fault::StallAll);
    for _ in 0..3600 {
        world.server.tick();
        world.run(secs(1));
    }
    let lists = relists(&world);
    assert!((3..=6).contains(&lists), "{lists}");
    assert!(world.sink.causes()[1..].iter().all(|cause| *cause == ReplaceCause::Unproven));
}

#[test]
fn buffered_streams_fall_back_to_lists() {
    for seed in 0..30 {
        let mut world = World::synced(seed, if seed % 2 == 0 { paged() } else { streamed() });
        world.set(Fault::HeldToEnd);
        let (mut oldest, begun) = (Duration::ZERO, relists(&world));
        for _ in 0..3600 {
            world.run(secs(1));
            oldest = oldest.max(world.now.since(world.sink.fresh.unwrap()));
        }
        assert!(oldest <= secs(200), "seed {seed}: {oldest:?}");
        let lists = relists(&world) - begun;
        assert!(
            (20..=40).contains(&lists),
            "seed {seed}: one in some two minutes, and not {lists} in an hour"
        );
        assert!(world.machine.stats().stalls > 0);
    }
}

#[test]
fn watches_that_are_never_answered_give_way_to_lists() {
    for seed in 0..30 {
        let mut world = World::synced(seed, if seed % 2 == 0 { paged() } else { streamed() });
        world.set(Fault::StreamsUnanswered);
        world.cut_all();
        let (mut oldest, begun) = (Duration::ZERO, relists(&world));
        for _ in 0..3600 {
            world.run(secs(1));
            oldest = oldest.max(world.now.since(world.sink.fresh.unwrap()));
        }
        assert!(oldest <= secs(600), "seed {seed}: {oldest:?}");
        let lists = relists(&world) - begun;
        assert!((6..=20).contains(&lists), "seed {seed}: {lists} lists in an hour");
    }
}

#[test]
fn watch_lost_after_outage_causes_no_list() {
    for seed in 0..30 {
        let mut world = World::synced(seed, paged());
        world.run(secs(30 + seed));
        for (fault, outage) in [(Fault::Down, 300), (Fault::CutAtOnce, 2), (Fault::Silence, 200)] {
            world.set(fault);
            world.cut_all();
            world.run(secs(outage));
        }
        world.set(Fault::None);
        world.until(secs(120), World::is_equal);
        assert_eq!(relists(&world), 0, "seed {seed}");
    }
}

#[test]
fn rollback_starts_epoch_within_probe_interval() {
    for seed in 0..60 {
        let mut world = World::synced(seed, if seed % 2 == 0 { paged() } else { streamed() });
        world.run(secs(120 + seed));
        world.server.roll_back(60);
        let told = world.until(secs(600), |world| world.machine.state().condition != Condition::Watching);
        assert!(told <= secs(30), "{told:?}");
        let healed = world.until(secs(600), |world| world.sink.epoch == 1 && world.is_equal());
        assert!(healed <= secs(2), "{healed:?}: one list");
        assert_eq!(world.machine.stats().rollbacks, 1);
        assert_eq!(world.sink.causes().last(), Some(&ReplaceCause::Rollback));
        world.run(secs(60));
        assert_eq!(world.sink.epoch, 1);
    }
}

#[test]
fn one_regressed_list_is_not_believed() {
    let mut world = World::synced(11, paged());
    world.run(secs(60));
    world.set(Fault::Regress { changes: 30, times: 1 });
    world.give(Input::Relist);
    world.until(secs(60), |world| relists(world) == 1);
    assert_eq!(world.machine.stats().regressed_lists, 1);
    assert_eq!(world.sink.epoch, 0);
    assert_eq!(world.sink.causes()[1], ReplaceCause::Requested);
}

#[test]
fn two_regressed_lists_are_a_rollback() {
    let mut world = World::synced(12, paged());
    world.run(secs(60));
    world.server.roll_back(30);
    world.give(Input::Relist);
    world.until(secs(60), |world| world.sink.epoch == 1);
    assert_eq!(world.machine.stats().regressed_lists, 1);
}

#[test]
fn retries_too_large_version_before_relist() {
    let mut world = World::synced(13, paged());
    world.set(Fault::TooLarge);
    world.cut_all();
    world.run(secs(4));
    assert_eq!(relists(&world), 0);
    world.until(secs(60), |world| relists(world) == 1);
    assert_eq!(world.sink.causes()[1], ReplaceCause::TooLargeResourceVersion);
    world.set(Fault::None);
    world.until(secs(45), World::is_equal);
}

#[test]
fn expired_continue_token_lists_without_pages() {
    let mut world = World::new(14, paged());
    world.set(Fault::ExpiredTokens);
    let took = world.until(secs(60), World::is_equal);
    assert!(took <= secs(5), "{took:?}");
    assert_eq!(world.served_lists.len(), 2);
}

#[test]
fn retries_page_cut_in_middle() {
    let mut world = World::new(15, paged());
    world.until(secs(5), |world| world.asked.iter().any(|(_, asked)| *asked == Asked::Page));
    world.set(Fault::CutLists);
    world.run(secs(2));
    world.set(Fault::None);
    world.until(secs(10), World::is_equal);
    assert_eq!(world.served_lists.len(), 1, "the list was not begun anew");
}

#[test]
fn replayed_events_are_dropped() {
    let mut world = World::synced(16, paged());
    world.set(Fault::Replays);
    world.run(secs(120));
    let stats = world.machine.stats();
    assert!(stats.duplicates + stats.disordered > 50, "{stats:?}");
    assert_eq!(relists(&world), 0);
}

#[test]
fn damaged_frame_is_requested_again() {
    let mut world = World::synced(17, paged());
    world.writes_every = Some(secs(20));
    world.set(Fault::Garbage);
    world.run(secs(600));
    assert!(world.machine.stats().undecodable > 3);
    assert_eq!(relists(&world), 0);
    world.set(Fault::None);
    world.until(secs(60), World::is_equal);
}

#[test]
fn garbage_without_end_is_bounded() {
    let mut world = World::synced(18, paged());
    world.set(Fault::AllGarbage);
    world.run(secs(1200));
    let minutes = 20;
    assert!(world.served_lists.len() <= 2 * minutes + 3);
    let asked = world.asked.iter().filter(|(_, asked)| *asked != Asked::Page).count();
    assert!(asked <= 6 * minutes + 10, "{asked}");
    world.set(Fault::None);
    world.until(secs(60), |world| world.is_equal() && world.machine.state().condition == Condition::Watching);
}

/// Writes until the next entry is of this kind, and makes it undecodable.
fn poison(world: &mut World, rotten: bool, deletion: bool) -> String {
    use super::server::Kind;
    world.writes_every = None;
    world.run(secs(1));
    loop {
        let mut rng = world.rng.clone();
        let entry = world.server.write(&mut rng);
        let fits = (entry.kind == Kind::Deleted) == deletion;
        entry.poisoned = fits;
        entry.rotten = fits && rotten;
        let name = entry.name.clone();
        world.rng = rng;
        if fits {
            return name;
        }
    }
}

#[test]
fn get_repairs_undecodable_event() {
    let mut world = World::synced(19, paged());
    poison(&mut world, false, false);
    world.until(secs(30), |world| world.is_equal() && world.machine.state().condition == Condition::Watching);
    assert_eq!(world.machine.stats().get_requests, 1);
    assert_eq!(relists(&world), 0);
}

#[test]
fn undecodable_deletion_removes_key_without_get() {
    let mut world = World::synced(20, paged());
    poison(&mut world, false, true);
    world.until(secs(30), World::is_equal);
    assert_eq!(world.machine.stats().get_requests, 0);
    assert_eq!(relists(&world), 0);
}

#[test]
fn quarantines_object_until_decodable() {
    let mut world = World::synced(21, paged());
    let name = poison(&mut world, true, false);
    world.until(secs(30), |world| matches!(world.machine.state().condition, Condition::Degraded(_)));
    let Condition::Degraded(Degradation::Undecodable { key, count }) = &world.machine.state().condition
    else {
        panic!()
    };
    assert_eq!((key.as_ref().unwrap().name(), *count), (&*name, 1));
    assert_eq!(relists(&world), 0);
    // The others continue, and the next good event of the key ends it.
    world.writes_every = Some(secs(1));
    world.until(secs(200), World::is_equal);
    assert_eq!(world.machine.state().condition, Condition::Watching);
}

#[test]
fn rotten_object_in_a_list_keeps_its_old_content() {
    for options in [paged(), streamed()] {
        let mut world = World::synced(22, options);
        let name = poison(&mut world, true, false);
        world.until(secs(30), |world| matches!(world.machine.state().condition, Condition::Degraded(_)));
        let old = world.content().get(&name).copied();
        world.give(Input::Relist);
        world.until(secs(60), |world| relists(world) == 1);
        assert_eq!(world.content().get(&name).copied(), old);
        world.run(secs(5));
        assert!(matches!(world.machine.state().condition, Condition::Degraded(_)));
    }
}

#[test]
fn suspended_process_opens_its_stream_again() {
    let mut world = World::synced(23, paged());
    world.set(Fault::Stall);
    world.give(Input::Suspended { by: secs(1000) });
    let batches = world.sink.batches;
    let took = world.until(secs(10), |world| world.sink.batches > batches && world.is_equal());
    assert!(took <= secs(2));
    assert_eq!(relists(&world), 0);
}

#[test]
fn clock_leap_causes_no_failure() {
    let mut world = World::new(24, paged());
    world.run(Duration::from_millis(100));
    // The list was requested; the process gets no CPU for two minutes, and then the response is there.
    world.now = world.now + secs(120);
    world.until(secs(3), World::is_equal);
    assert_eq!(world.machine.stats().failures, 0);
}

#[test]
fn checkpoint_resumes_without_a_list() {
    let first = World::synced(25, paged());
    let resource_version = ResourceVersion::from(first.sink.rv.unwrap());
    let resume = Some(Resume { resource_version, epoch: 7 });
    let mut machine = Machine::new(MachineOptions { resume, ..paged() }, 1, Time::ORIGIN);
    let mut sink = super::recorder::Recorder::default();
    machine.handle(Time::ORIGIN, Input::Timeout, &mut sink);
    let Some(Action::Watch(request)) = machine.poll_action() else { panic!() };
    let before = first.sink.rv.unwrap() - 1;
    assert_eq!(request.start, WatchStart::After(before.into()), "it may have a part of its RV only");
    assert_eq!(machine.epoch(), 7);
}

#[test]
fn frequent_relists_wait_while_watch_continues() {
    let mut world = World::synced(29, paged());
    world.give(Input::Relist);
    world.until(secs(2), |world| {
        relists(world) == 1 && world.machine.state().condition == Condition::Watching
    });
    world.give(Input::Relist);
    world.give(Input::Relist);
    let (begun, batches) = (world.now, world.sink.batches);
    world.run(secs(50));
    assert!(world.sink.batches - batches > 30);
    assert_eq!(relists(&world), 1);
    world.until(secs(20), |world| relists(world) == 2);
    assert!(world.now.since(begun) <= secs(62));
    world.run(secs(120));
    assert_eq!(relists(&world), 2, "asked for twice in a row, made once");
}

#[test]
fn stop_ends_everything() {
    for seconds in 0..30 {
        let mut world = World::new(26, if seconds % 2 == 0 { paged() } else { streamed() });
        if seconds % 3 == 0 {
            world.set(Fault::Answer { code: 500, retry_after: 0, watches_only: false });
        }
        world.run(Duration::from_millis(100 * seconds));
        world.give(Input::Stop);
        assert!(world.machine.is_stopped() && world.machine.poll_timeout().is_none());
        world.give(Input::Relist);
        world.run(secs(60));
        assert_eq!(world.machine.state().condition, Condition::Stopped);
    }
}

#[test]
fn a_hint_shortens_a_wait() {
    let mut world = World::synced(27, paged());
    world.probes_every = None;
    world.cut_all();
    world.set(Fault::Answer { code: 503, retry_after: 0, watches_only: false });
    world.run(secs(200));
    world.set(Fault::None);
    world.give(Input::RetryNow);
    let took = world.until(secs(60), World::is_equal);
    assert!(took <= secs(1), "{took:?}");
}

#[test]
fn store_read_error_lists_again() {
    use skopos_wire::{Status, WatchEvent};
    let mut world = World::synced(28, paged());
    let status = br#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"unable to transform","reason":"StorageReadError","code":500}"#;
    let status = Box::new(Status::from_slice(status).unwrap());
    let id = world.machine.watch_id().unwrap();
    world.give(Input::Events { id, events: vec![Ok(WatchEvent::Error(status))] });
    world.until(secs(10), |world| relists(world) == 1);
    assert_eq!(world.sink.causes()[1], ReplaceCause::ServerReadError);
}
