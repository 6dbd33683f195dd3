//! See `object` in the crate's `tests/bodies`.
#![no_main]

#[path = "../../tests/bodies/mod.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::object(data));
