//! Limits on shared resources: a fair semaphore, limits for each caller, and a limit on log lines.

pub(crate) mod fair;
pub(crate) mod log_limit;
pub(crate) mod per_user_limit;
