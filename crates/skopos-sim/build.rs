//! Declares a flag that only `cargo xtask sim` sets to the compiler.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(tokio_unstable)");
}
