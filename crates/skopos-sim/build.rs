//! Lets the compiler know of a flag that only `cargo xtask sim` sets.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(tokio_unstable)");
}
