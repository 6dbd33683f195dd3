//! Properties under any events in any order: the invariants hold, the load is bounded, and at the end the content is the
//! server's. `PROPTEST_CASES` sets more than the few cases of an ordinary run.

use proptest::prelude::*;

use super::course::{Beginning, Course, Event};
use super::world::{Asked, Fault, World};
use super::{hostile, secs};
use crate::machine::*;

fn faults() -> impl Strategy<Value = Fault> {
    let code = prop::sample::select(vec![400u16, 401, 403, 404, 410, 429, 500, 502, 503, 504]);
    prop_oneof![
        3 => Just(Fault::None),
        1 => Just(Fault::Down),
        1 => (code, 0u64..20, any::<bool>())
            .prop_map(|(code, retry_after, watches_only)| Fault::Answer { code, retry_after, watches_only }),
        1 => Just(Fault::Silence),
        1 => Just(Fault::StreamsUnanswered),
        1 => Just(Fault::CloseAtOnce),
        1 => Just(Fault::CutAtOnce),
        1 => Just(Fault::CutAfterEvent),
        1 => Just(Fault::Stall),
        1 => Just(Fault::StallAll),
        1 => Just(Fault::HeldToEnd),
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

fn events() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => faults().prop_map(Event::Fault),
        2 => Just(Event::Cut),
        1 => Just(Event::Compact),
        1 => any::<bool>().prop_map(|rotten| Event::Poison { rotten }),
        1 => Just(Event::Relist),
        1 => Just(Event::Hint),
        1 => Just(Event::Suspended),
        1 => any::<u8>().prop_map(Event::Burst),
        1 => any::<u8>().prop_map(Event::Late),
        1 => Just(Event::SlowProbe),
        1 => Just(Event::Timeout),
        1 => Just(Event::Back),
        1 => Just(Event::RollBack),
    ]
}

fn beginnings() -> impl Strategy<Value = Beginning> {
    let resumed = prop::option::of(0..World::CHANGES_BEFORE);
    (any::<bool>(), any::<bool>(), resumed).prop_map(|(streamed, changes, resumed)| Beginning {
        initial: if streamed { InitialList::Streamed } else { InitialList::Paged },
        content: if changes { Content::Changes } else { Content::Objects },
        resumed,
    })
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

    /// Checks I1 to I8, I10, I15 and I23 for one reflector, under any sequence of faults.
    #[test]
    fn converges_after_any_faults(
        seed in any::<u64>(),
        beginning in beginnings(),
        course in prop::collection::vec((events(), 1u64..90), 1..12),
    ) {
        let events = course.into_iter().map(|(event, seconds)| (event, secs(seconds))).collect();
        Course { seed, beginning, events }.run();
    }

    /// Runs the fuzz target `machine`: bytes that encode a course.
    #[test]
    fn any_bytes_are_a_course_that_ends_well(bytes in prop::collection::vec(any::<u8>(), 0..50)) {
        Course::from_bytes(&bytes).run();
    }

    /// Runs the fuzz target `machine_inputs`.
    #[test]
    fn invariants_hold_for_any_server_input(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        hostile::converse(&bytes);
    }

    /// Checks I15: the load of one reflector on a server with a permanent fault.
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
        world.run(secs(900));
        // From the very beginning, the first list included. Pages count with their list.
        let asked = world.asked.iter().filter(|(_, asked)| *asked != Asked::Page).map(|(at, _)| *at);
        let worst = World::worst_minute(asked);
        prop_assert!(worst <= 6, "{} requests in a minute", worst);
        let lists = World::worst_minute(world.served_lists.iter().copied());
        prop_assert!(lists <= 2, "{} lists in a minute", lists);
    }

    /// Checks I19: a rollback is detected even during another fault.
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
        // The next probe shows it, and a list heals it as soon as the budget allows one.
        world.until(secs(30), |world| world.sink.epoch == 1 || world.machine.state().condition != Condition::Watching);
        world.until(secs(90), |world| world.sink.epoch == 1 && world.is_equal());
    }
}

/// Runs the inputs that the fuzzer has found and that are kept.
#[test]
fn replays_machine_fuzz_seeds() {
    let read = |target: &str| {
        let seeds = format!("{}/../../fuzz/seeds/{target}", env!("CARGO_MANIFEST_DIR"));
        // The published crate does not include them.
        let seeds = std::fs::read_dir(seeds).into_iter().flatten();
        seeds.map(|seed| std::fs::read(seed.unwrap().path()).unwrap())
    };
    read("machine").for_each(|bytes| Course::from_bytes(&bytes).run());
    read("machine_inputs").for_each(|bytes| hostile::converse(&bytes));
}
