#![no_main]

#[path = "../../crates/skopos-transport/tests/bodies/mod.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|text: &str| bodies::kubeconfig(text));
