//! Part of an object that a write changes.

/// Part of an object that a write changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectPart {
    /// The object, without its status if that is a subresource.
    Main,
    /// The status.
    Status,
    /// Everything: the server's own writes.
    Whole,
    /// The replica count, through the scale subresource.
    Scale,
}

impl ObjectPart {
    /// Returns the subresource as named in `managedFields`.
    pub(super) fn subresource(self) -> Option<&'static str> {
        match self {
            Self::Main | Self::Whole => None,
            Self::Status => Some("status"),
            Self::Scale => Some("scale"),
        }
    }
}
