//! Puts the model in the place of threads, for this package alone.

fn main() {
    println!("cargo::rustc-cfg=shuttle");
    // A feature that the sources know and that has nothing to do with threads.
    println!("cargo::rustc-check-cfg=cfg(feature, values(\"kube-runtime\"))");
}
