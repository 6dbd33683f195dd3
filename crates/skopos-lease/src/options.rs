use std::time::Duration;

use skopos_transport::WallClock;

use crate::clock::BootClock;
use crate::error::ElectionError;

/// The Lease of an election, the candidate's identity, and the times.
#[derive(Clone, Debug)]
pub struct LeaseOptions {
    /// The Lease's namespace.
    pub namespace: String,
    /// The Lease's name.
    pub name: String,
    /// The candidate's identity. It must be unique among all processes that ever compete for this Lease; by default the
    /// host's name and a random UUID.
    pub identity: String,
    /// The time that other candidates wait after the last renewal that they have seen, in whole seconds, at least 2 s.
    /// Default 15 s, as in client-go. A term is valid for 80 % of it.
    pub duration: Duration,
    /// True if a candidate that creates the Lease leads at once. Default: `false`, so the very first candidate waits one
    /// duration: a Lease that was deleted while it was held says nothing about its holder. For tests, and for clusters where
    /// Leases are never deleted.
    pub acquire_on_create: bool,
    /// The time for which the holder may be unfit ([`Candidate::set_fit`](crate::Candidate::set_fit)) before it steps down.
    /// Default 60 s.
    pub unfit_limit: Duration,
    /// The seed of every random choice, for repeatable tests.
    pub seed: Option<u64>,
    /// The clock of terms.
    pub clock: BootClock,
    /// The clock for the dates of renewals. The dates are for people: candidates never compare them.
    pub wall_clock: WallClock,
}

/// The times derived from the duration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub(crate) duration: Duration,
    /// The validity of a term after its last renewal was sent: the rest is for clocks that run at other rates.
    pub(crate) valid: Duration,
    /// The timeout of a request: a stalled one leaves time for three others.
    pub(crate) request_timeout: Duration,
    /// The interval of renewals. 2 s of 15 s, as in client-go (`retryPeriod`).
    pub(crate) renew_interval: Duration,
    pub(crate) unfit_limit: Duration,
    pub(crate) acquire_on_create: bool,
}

impl LeaseOptions {
    /// Makes options with client-go's times and a unique identity.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: unique_identity(),
            duration: Duration::from_secs(15),
            acquire_on_create: false,
            unfit_limit: Duration::from_secs(60),
            seed: None,
            clock: BootClock::system(),
            wall_clock: WallClock::system(),
        }
    }

    /// Checks options that would otherwise fail later, or break the promise of one leader.
    pub(crate) fn timing(&self) -> Result<Timing, ElectionError> {
        let wrong =
            |option, value: &str, reason| ElectionError::Option { option, value: value.to_owned(), reason };
        for (option, value) in [("namespace", &self.namespace), ("name", &self.name)] {
            if !is_name(value) {
                return Err(wrong(
                    option,
                    value,
                    "it has to be a DNS name: a-z, 0-9, '-' and '.', at most 253 characters",
                ));
            }
        }
        if self.identity.is_empty() {
            return Err(wrong(
                "identity",
                "",
                "it must not be empty: an empty holder means that the Lease is free",
            ));
        }
        let seconds = self.duration.as_secs();
        if seconds < 2 || self.duration.subsec_nanos() != 0 || i32::try_from(seconds).is_err() {
            let value = format!("{:?}", self.duration);
            return Err(wrong(
                "duration",
                &value,
                "it has to be whole seconds (leaseDurationSeconds), at least 2",
            ));
        }
        let valid = self.duration * 4 / 5;
        Ok(Timing {
            duration: self.duration,
            valid,
            request_timeout: valid / 4,
            renew_interval: valid / 6,
            unfit_limit: self.unfit_limit,
            acquire_on_create: self.acquire_on_create,
        })
    }
}

/// Returns whether this is a valid `metadata.name` of a Lease (RFC 1123 subdomain).
fn is_name(name: &str) -> bool {
    let inside = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let part = |part: &str| {
        let bytes = part.as_bytes();
        matches!((bytes.first(), bytes.last()), (Some(first), Some(last)) if inside(first) && inside(last))
            && bytes.iter().all(|byte| inside(byte) || *byte == b'-')
    };
    name.len() <= 253 && name.split('.').all(part)
}

fn unique_identity() -> String {
    #[cfg(unix)]
    let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_default();
    #[cfg(not(unix))]
    let host = String::new();
    format!("{host}_{}", uuid::Uuid::new_v4())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_invalid_options_with_requirement() {
        let good = LeaseOptions::new("a", "b.c-d");
        assert!(good.timing().is_ok());
        let told = |change: fn(&mut LeaseOptions)| {
            let mut options = good.clone();
            change(&mut options);
            options.timing().unwrap_err().to_string()
        };
        assert!(told(|options| options.name = "B".into()).contains("DNS name"));
        assert!(told(|options| options.namespace = String::new()).contains("namespace"));
        assert!(told(|options| options.name = "../x".into()).contains("DNS name"));
        assert!(told(|options| options.identity.clear()).contains("free"));
        assert!(told(|options| options.duration = Duration::from_secs(1)).contains("at least 2"));
        assert!(told(|options| options.duration = Duration::from_millis(2500)).contains("whole seconds"));
    }

    #[test]
    fn generated_identities_are_unique() {
        assert_ne!(LeaseOptions::new("a", "b").identity, LeaseOptions::new("a", "b").identity);
    }
}
