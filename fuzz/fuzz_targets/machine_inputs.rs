//! The machine against a server that says anything at any time.
#![no_main]
#![allow(dead_code, reason = "the model serves the scenarios of the crate's own tests, too")]

// As in the target `machine`.
use skopos_reflect::*;
mod machine {
    pub(crate) use skopos_reflect::*;
}

#[path = "../../crates/skopos-reflect/src/machine/tests/history.rs"]
mod history;
#[path = "../../crates/skopos-reflect/src/machine/tests/hostile.rs"]
mod hostile;
#[path = "../../crates/skopos-reflect/src/machine/tests/recorder.rs"]
mod recorder;
#[path = "../../crates/skopos-reflect/src/machine/tests/server.rs"]
mod server;
#[path = "../../crates/skopos-reflect/src/machine/tests/world.rs"]
mod world;

libfuzzer_sys::fuzz_target!(|data: &[u8]| hostile::converse(data));
