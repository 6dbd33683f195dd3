//! What this crate's own tests share.

/// The number of cases of a property test: `few`, or what `SKOPOS_CASES` says.
pub(crate) fn cases(few: u32) -> u32 {
    std::env::var("SKOPOS_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(few)
}
