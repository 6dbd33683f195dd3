//! A course of faults between the machine and a model of a server; I1 to I8 after every step, and a good end.
#![no_main]
#![allow(dead_code, reason = "the model serves the scenarios of the crate's own tests, too")]

// The model is the one of the crate's own tests. There it finds the machine under these paths.
use skopos_reflect::*;
mod machine {
    pub(crate) use skopos_reflect::*;
}

#[path = "../../crates/skopos-reflect/src/machine/tests/course.rs"]
mod course;
#[path = "../../crates/skopos-reflect/src/machine/tests/history.rs"]
mod history;
#[path = "../../crates/skopos-reflect/src/machine/tests/recorder.rs"]
mod recorder;
#[path = "../../crates/skopos-reflect/src/machine/tests/server.rs"]
mod server;
#[path = "../../crates/skopos-reflect/src/machine/tests/world.rs"]
mod world;

libfuzzer_sys::fuzz_target!(|data: &[u8]| course::Course::from_bytes(data).run());
