//! Whatever happens in whatever order: the invariants hold, the load is bounded, and once all is well again, the content
//! is the server's. `PROPTEST_CASES` asks for more than the few cases of an ordinary run.

use proptest::prelude::*;

use super::secs;
use super::world::{Fault, World};
use crate::machine::*;

fn faults() -> impl Strategy<Value = Fault> {
    let code = prop::sample::select(vec![400u16, 401, 403, 404, 410, 429, 500, 502, 503, 504]);
    prop_oneof![
        3 => Just(Fault::None),
        1 => Just(Fault::Down),
        1 => (code, 0u64..20, any::<bool>())
            .prop_map(|(code, retry_after, watches_only)| Fault::Answer { code, retry_after, watches_only }),
        1 => Just(Fault::Silence),
        1 => Just(Fault::CloseAtOnce),
        1 => Just(Fault::CutAtOnce),
        1 => Just(Fault::CutAfterEvent),
        1 => Just(Fault::Stall),
        1 => Just(Fault::StallAll),
        1 => Just(Fault::NoBookmarks),
        1 => Just(Fault::NoEndBookmark),
        1 => Just(Fault::NoStreams),
        1 => any::<bool>().prop_map(|event| Fault::Gone { event }),
        1 => Just(Fault::TooLarge),
        1 => Just(Fault::CutLists),
        1 => Just(Fault::ExpiredTokens),
        1 => Just(Fault::Replays),
        1 => Just(Fault::Garbage),
        1 => Just(Fault::AllGarbage),
        1 => Just(Fault::Flaky),
    ]
}

#[derive(Clone, Debug)]
enum Event {
    Fault(Fault),
    Cut,
    Compact,
    Poison { rotten: bool },
    Relist,
    Hint,
    Suspended,
}

fn events() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => faults().prop_map(Event::Fault),
        2 => Just(Event::Cut),
        1 => Just(Event::Compact),
        1 => any::<bool>().prop_map(|rotten| Event::Poison { rotten }),
        1 => Just(Event::Relist),
        1 => Just(Event::Hint),
        1 => Just(Event::Suspended),
    ]
}

fn options(streamed: bool) -> MachineOptions {
    let initial = if streamed { InitialList::Streamed } else { InitialList::Paged };
    MachineOptions { initial, ..MachineOptions::default() }
}

fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(64)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 200, ..ProptestConfig::default() })]

    /// I1 to I8, I10, I15 and I23 for one link, under any course of faults.
    #[test]
    fn any_course_of_events_ends_with_the_servers_content(
        seed in any::<u64>(),
        streamed in any::<bool>(),
        course in prop::collection::vec((events(), 1u64..90), 1..12),
    ) {
        let mut world = World::new(seed, options(streamed));
        for (event, seconds) in course {
            match event {
                Event::Fault(fault) => world.set(fault),
                Event::Cut => world.cut_all(),
                Event::Compact => world.server.compacted = world.server.rv,
                Event::Poison { rotten } => {
                    let mut rng = world.rng.clone();
                    let entry = world.server.write(&mut rng);
                    entry.poisoned = true;
                    entry.rotten = rotten;
                    world.rng = rng;
                }
                Event::Relist => world.give(Input::Relist),
                Event::Hint => world.give(Input::RetryNow),
                Event::Suspended => world.give(Input::Suspended { by: secs(10) }),
            }
            world.run(secs(seconds));
        }
        world.set(Fault::None);
        // Every object is written again in time, so that also those that were set aside can be read.
        world.run(secs(400));
        world.until(secs(300), |world| world.is_equal() && world.machine.state().condition == Condition::Watching);
        prop_assert_eq!(world.machine.state().attempts, 0);
        prop_assert!(world.now.since(world.sink.fresh.unwrap()) <= secs(60));
    }

    /// I15: the load of one link on a server in permanent trouble.
    #[test]
    fn permanent_faults_meet_a_bounded_load(
        seed in any::<u64>(),
        streamed in any::<bool>(),
        before in any::<bool>(),
        fault in faults(),
    ) {
        let mut world =
            if before { World::synced(seed, options(streamed)) } else { World::new(seed, options(streamed)) };
        world.set(fault);
        if before {
            world.cut_all();
        }
        // A burst is allowed in the beginning.
        world.run(secs(300));
        let begun = world.now;
        world.asked.clear();
        world.run(secs(600));
        let worst = World::worst_minute(world.asked.iter().map(|(at, _)| *at));
        // Looks are taken beside the requests that fail.
        let pages = world.asked.iter().filter(|(_, asked)| matches!(asked, super::world::Asked::Page)).count();
        // A stream that stood for long in between may be followed by another burst.
        let burst = if fault == Fault::Flaky { 10 } else { 2 };
        prop_assert!(worst <= 6 + burst + pages, "{} requests in a minute", worst);
        let average = (world.asked.len() - pages) as f64 / 10.0;
        prop_assert!(average <= if fault == Fault::Flaky { 9.0 } else { 6.0 }, "{} requests a minute", average);
        let lists = World::worst_minute(world.served_lists.iter().copied().filter(|at| *at >= begun));
        prop_assert!(lists <= 3, "{} lists in a minute", lists);
    }

    /// I19: a rollback is noticed also when it happens during another fault.
    #[test]
    fn rolled_back_history_begins_an_epoch(
        seed in any::<u64>(),
        streamed in any::<bool>(),
        fault in faults(),
        seconds in 1u64..60,
    ) {
        let mut world = World::synced(seed, options(streamed));
        world.run(secs(200));
        world.set(fault);
        world.run(secs(seconds));
        world.server.roll_back(150);
        world.set(Fault::None);
        world.until(secs(300), |world| world.sink.epoch == 1 && world.is_equal());
    }
}
