#![no_main]

#[path = "../../crates/skopos-wire/tests/bodies/mod.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::protobuf_object(data));
