//! File descriptors. Each connection needs one, and so do all other files that the gateway must still be able to open.

use std::io;

/// Descriptors reserved for files, sources of clusters and the like, independent of the number of connections.
const RESERVED: usize = 256;

/// Descriptors reserved for each member: its connections, including replacements.
const RESERVED_PER_MEMBER: usize = 8;

/// Returns how many descriptors to keep free from client connections.
pub(crate) fn reserve(members: usize, streams: usize) -> usize {
    // Each stream into a pod has its own connection to the member.
    RESERVED + RESERVED_PER_MEMBER * members + streams
}

/// Raises the soft limit of the process to the hard one, as Go programs do. The usual soft limit of 1024 is meant for programs
/// that use `select`.
pub(crate) fn raise_limit() {
    #[cfg(unix)]
    {
        use nix::sys::resource::{Resource, getrlimit, setrlimit};
        let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| match soft < hard {
            true => setrlimit(Resource::RLIMIT_NOFILE, hard, hard),
            false => Ok(()),
        });
        if let Err(error) = raised {
            tracing::warn!(%error, "the limit of open files cannot be raised");
        }
    }
}

/// Returns how many descriptors the process may have, if that is known.
pub(crate) fn limit() -> Option<usize> {
    #[cfg(unix)]
    {
        use nix::sys::resource::{Resource, getrlimit};
        let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
        usize::try_from(soft).ok()
    }
    #[cfg(not(unix))]
    None
}

/// Returns how many of the `configured` connections fit beside a reserve. If little is left, a quarter of all descriptors is for
/// connections.
pub(crate) fn connections(limit: Option<usize>, reserve: usize, configured: usize) -> usize {
    let fitting = limit.map_or(usize::MAX, |limit| limit.saturating_sub(reserve).max(limit / 4).max(1));
    configured.min(fitting)
}

/// Returns whether the process or the machine has no descriptor left.
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    #[cfg(unix)]
    {
        use nix::errno::Errno;
        [Errno::EMFILE, Errno::ENFILE].iter().any(|errno| error.raw_os_error() == Some(*errno as i32))
    }
    #[cfg(not(unix))]
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_a_reserve() {
        assert_eq!(connections(None, 272, 10_000), 10_000);
        assert_eq!(connections(Some(1024), reserve(2, 0), 10_000), 752);
        assert_eq!(connections(Some(1024), reserve(2, 100), 10_000), 652);
        assert_eq!(connections(Some(1_048_576), reserve(1000, 0), 10_000), 10_000);
        assert_eq!(connections(Some(64), reserve(1, 0), 10_000), 16);
        assert_eq!(connections(Some(0), 272, 10_000), 1);
    }

    #[test]
    fn exhaustion_is_recognized() {
        assert!(
            is_exhausted(&io::Error::from_raw_os_error(24))
                && is_exhausted(&io::Error::from_raw_os_error(23))
        );
        assert!(!is_exhausted(&io::Error::from(io::ErrorKind::ConnectionAborted)));
    }
}
