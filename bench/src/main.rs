//! Skopos against kube-rs in one run.
fn main() {}
