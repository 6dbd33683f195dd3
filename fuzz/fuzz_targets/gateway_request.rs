#![no_main]

#[path = "../../crates/skopos-gateway/tests/bodies/mod.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|text: &str| bodies::gateway_request(text));
