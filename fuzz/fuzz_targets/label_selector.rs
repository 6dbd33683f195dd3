#![no_main]

#[path = "../../crates/skopos-wire/tests/bodies/mod.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|text: &str| bodies::label_selector(text));
