//! Type of a watch event.

/// Type of a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// The object was created, or came into the selection.
    Added,
    /// The object changed.
    Modified,
    /// The object was deleted, or left the selection.
    Deleted,
}

/// Text after the object in a watch frame.
pub(crate) const FRAME_TAIL: &[u8] = b"}\n";

impl EventType {
    /// Returns the type as watches name it, such as `ADDED`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }

    /// Returns the text before the object in a watch frame; `}` and a newline follow the object.
    pub fn frame_head(self) -> &'static [u8] {
        match self {
            Self::Added => b"{\"type\":\"ADDED\",\"object\":",
            Self::Modified => b"{\"type\":\"MODIFIED\",\"object\":",
            Self::Deleted => b"{\"type\":\"DELETED\",\"object\":",
        }
    }
}
