//! Size limits on input.

/// Caps on input from the server.
///
/// The defaults let every object of a real cluster pass with a wide margin (etcd's own default is 1.5 MiB per request).
/// They stop a hostile or broken server before it costs memory.
///
/// ```
/// # use skopos_wire::Limits;
/// let limits = Limits { max_object_bytes: 1 << 20, ..Limits::default() };
/// # assert_eq!(limits.max_depth, 512);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one object's JSON, and of one list item. 64 MiB by default; at most 4 GiB - 1.
    pub max_object_bytes: usize,
    /// Bytes of one watch frame: an object and the envelope around it. 64 MiB + 64 KiB by default.
    pub max_frame_bytes: usize,
    /// Bytes of a list body outside its items: kind, metadata, or a whole Status. 1 MiB by default.
    pub max_envelope_bytes: usize,
    /// Items of one list body (one page). 10 million by default.
    pub max_list_items: usize,
    /// Maximum depth of nested objects and arrays. 512 by default, which is also the highest value that has an effect.
    pub max_depth: usize,
    /// Labels of one object. 4096 by default.
    pub max_labels: usize,
    /// Bytes of a name, namespace, uid or resourceVersion. 1024 by default; Kubernetes allows names of at most 253.
    pub max_name_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_object_bytes: 64 << 20,
            max_frame_bytes: (64 << 20) + (64 << 10),
            max_envelope_bytes: 1 << 20,
            max_list_items: 10_000_000,
            max_depth: crate::json::DEPTH_CAP,
            max_labels: 4096,
            max_name_bytes: 1024,
        }
    }
}
