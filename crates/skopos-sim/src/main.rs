//! `skopos-sim`: simulated hours of faults from the command line.

fn main() {}
