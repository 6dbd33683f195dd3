//! See `field_selector` in the crate's `tests/bodies`.
#![no_main]

#[path = "../../tests/bodies/mod.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|text: &str| bodies::field_selector(text));
