use std::fmt;

/// The reason why a term ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndReason {
    /// Another candidate has the Lease.
    Lost {
        /// Its identity; `None` if another client released the Lease.
        holder: Option<String>,
    },
    /// No renewal was acknowledged in time.
    Expired,
    /// The Lease was deleted.
    Deleted,
    /// The server has an older version of the Lease than before: it was restored from a backup.
    Restored,
    /// The Lease names another candidate as the preferred one.
    Preferred {
        /// Its identity.
        holder: String,
    },
    /// The candidate could not do its work.
    Unfit,
    /// The election was stopped.
    Stopped,
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost { holder: Some(holder) } => write!(f, "{holder} has the Lease"),
            Self::Lost { holder: None } => f.write_str("the Lease was released by another client"),
            Self::Expired => f.write_str("no renewal was acknowledged in time"),
            Self::Deleted => f.write_str("the Lease was deleted"),
            Self::Restored => f.write_str("the Lease is an older one: the server was restored from a backup"),
            Self::Preferred { holder } => write!(f, "the Lease prefers {holder}"),
            Self::Unfit => f.write_str("this candidate cannot do its work"),
            Self::Stopped => f.write_str("the election was stopped"),
        }
    }
}
