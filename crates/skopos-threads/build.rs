//! Puts the model in the place of threads, for this package alone.

fn main() {
    println!("cargo::rustc-cfg=shuttle");
    // Features that the sources know and that have nothing to do with threads.
    println!("cargo::rustc-check-cfg=cfg(feature, values(\"kube-runtime\", \"testserver\"))");
}
