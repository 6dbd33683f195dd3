/// The counters of a machine. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MachineStats {
    /// List requests sent; each page is one.
    pub list_requests: u64,
    /// Lists that were made visible.
    pub lists: u64,
    /// Lists that were started because the previous state could not be continued.
    pub relists: u64,
    /// Watches opened, verification watches and streamed lists included.
    pub watch_requests: u64,
    /// Live reads of one object.
    pub get_requests: u64,
    /// Changes applied.
    pub changes: u64,
    /// Bookmarks received.
    pub bookmarks: u64,
    /// Events dropped because they were applied before.
    pub duplicates: u64,
    /// Events dropped because they were out of order within their own stream.
    pub disordered: u64,
    /// Frames and items that could not be decoded.
    pub undecodable: u64,
    /// Requests that failed, for any reason.
    pub failures: u64,
    /// Verification watches opened.
    pub verification_watches: u64,
    /// Streams found stalled by a verification watch, and replaced.
    pub stalls: u64,
    /// Rollbacks of the server's history that were found.
    pub rollbacks: u64,
    /// Lists thrown away because their RV was lower than one seen before.
    pub regressed_lists: u64,
}
