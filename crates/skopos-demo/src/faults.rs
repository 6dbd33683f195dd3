//! Faults that a user can inflict on the demo: their names, keys and meanings.
use std::time::Duration;

use clap::ValueEnum;

/// A way in which a cluster fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum)]
pub enum FaultName {
    /// Connections stay open, but nothing goes through them any more
    BlackHole,
    /// All connections are reset (RST)
    Reset,
    /// All connections are closed in order (FIN)
    Close,
    /// Watch streams deliver nothing more, while their connection answers PINGs
    Stall,
    /// The server comes back from a short outage without its history: watches meet 410 Gone
    Compact,
    /// The server goes away without a word and comes back on the same port
    Restart,
    /// The gateway pauses the virtual cluster: its API server is gone until it is resumed the same way
    Pause,
    /// The server answers with an older view, as a second API server that lags behind would
    Lag,
    /// The server's history goes back, as after an etcd restore from a backup
    Rollback,
    /// A watch delivers an object that cannot be decoded
    Undecodable,
    /// Every request is answered with 503 Service Unavailable
    Unavailable,
    /// Everything broken is mended
    Heal,
}

impl FaultName {
    /// All faults, in the order in which they are shown.
    pub(crate) const ALL: [Self; 12] = [
        Self::BlackHole,
        Self::Reset,
        Self::Close,
        Self::Stall,
        Self::Compact,
        Self::Restart,
        Self::Pause,
        Self::Lag,
        Self::Rollback,
        Self::Undecodable,
        Self::Unavailable,
        Self::Heal,
    ];

    /// Returns the key that inflicts it.
    pub(crate) const fn key(self) -> char {
        match self {
            Self::BlackHole => 'b',
            Self::Reset => 'r',
            Self::Close => 'f',
            Self::Stall => 's',
            Self::Compact => 'c',
            Self::Restart => 'R',
            Self::Pause => 'p',
            Self::Lag => 'l',
            Self::Rollback => 'o',
            Self::Undecodable => 'e',
            Self::Unavailable => '5',
            Self::Heal => 'h',
        }
    }

    /// Returns the fault of a key.
    pub(crate) fn from_key(key: char) -> Option<Self> {
        Self::ALL.into_iter().find(|fault| fault.key() == key)
    }

    /// Returns a short label for the line of keys.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::BlackHole => "black hole",
            Self::Reset => "RST",
            Self::Close => "FIN",
            Self::Stall => "stall",
            Self::Compact => "compact",
            Self::Restart => "restart",
            Self::Pause => "pause/resume",
            Self::Lag => "lag",
            Self::Rollback => "RV rollback",
            Self::Undecodable => "undecodable",
            Self::Unavailable => "503",
            Self::Heal => "heal",
        }
    }

    /// Returns a line for the log.
    pub(crate) const fn tale(self) -> &'static str {
        match self {
            Self::BlackHole => "black hole: the open connections swallow everything",
            Self::Reset => "RST: every connection is reset",
            Self::Close => "FIN: every connection is closed",
            Self::Stall => "stall: the watches fall silent, their connections stay alive",
            Self::Compact => "compaction: the server is away for a second and loses its history",
            Self::Restart => "restart: the server is away for two seconds",
            Self::Pause => "pause: the gateway is asked to pause it, as `skopos vc pause` does",
            Self::Lag => "lag: the server answers from an older view; see the ages grow",
            Self::Rollback => "rollback: the server's history goes back, as after a restore",
            Self::Undecodable => "undecodable: a watch delivers a broken object",
            Self::Unavailable => "503: every request is refused",
            Self::Heal => "heal: the server is as it should be",
        }
    }

    /// Returns the cluster's state during the fault.
    pub(crate) const fn condition(self) -> &'static str {
        match self {
            Self::BlackHole => "black hole",
            Self::Stall => "streams stalled",
            Self::Compact | Self::Restart => "away",
            Self::Pause => "paused",
            Self::Lag => "lagging",
            Self::Unavailable => "answering 503",
            other => other.label(),
        }
    }

    /// Returns whether the table shows the fault while it lasts.
    pub(crate) const fn is_shown(self) -> bool {
        !matches!(self, Self::Undecodable)
    }

    /// Returns whether a trouble with this reason belongs to the fault. Some faults begin by closing connections, which is
    /// seen at once, and is only a side effect.
    pub(crate) fn explains(self, reason: &str) -> bool {
        let words: &[&str] = match self {
            Self::BlackHole => &["no answer", "silent", "no data arrives", "stalled"],
            Self::Stall | Self::Lag => &["no data arrives", "stalled", "never brought", "silent"],
            Self::Reset => &["reset"],
            Self::Close => &["closed", "GOAWAY"],
            Self::Restart => &["reset", "refused", "closed"],
            Self::Compact => &["reset", "refused", "closed", "410", "Expired", "too old"],
            Self::Rollback => &["back", "history", "no data arrives", "410", "Expired", "too old"],
            Self::Undecodable => &["decode", "undecodable", "not valid", "invalid", "cannot be read"],
            Self::Unavailable => &["503"],
            Self::Pause | Self::Heal => &[],
        };
        words.iter().any(|word| reason.contains(word))
    }

    /// Returns whether the fault shows only in a cluster whose objects change.
    pub(crate) const fn needs_changes(self) -> bool {
        matches!(self, Self::Lag | Self::Compact)
    }

    /// Returns the duration of the fault. `None`: it happens at one moment, or lasts until healed.
    pub(crate) const fn lasts(self) -> Option<Duration> {
        match self {
            Self::Compact => Some(Duration::from_secs(1)),
            Self::Restart => Some(Duration::from_secs(2)),
            Self::Unavailable => Some(Duration::from_secs(5)),
            Self::Lag => Some(Duration::from_secs(20)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_a_key_of_its_own() {
        for fault in FaultName::ALL {
            assert_eq!(FaultName::from_key(fault.key()), Some(fault));
        }
        assert_eq!(FaultName::ALL.len(), FaultName::value_variants().len());
        assert_eq!(FaultName::from_key('q'), None);
    }
}
