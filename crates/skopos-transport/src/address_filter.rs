//! Filter of addresses that may be connected to.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// A filter that checks each address of each dial, after name resolution and before anything is sent. So the checked
/// address is the one that is connected to, even if the name resolves differently a moment later. Behind a proxy it could
/// not be applied, so a configuration with both is rejected.
#[derive(Clone, Default)]
pub struct AddressFilter(Option<Arc<Check>>);

type Check = dyn Fn(IpAddr) -> Result<(), Arc<str>> + Send + Sync;

impl AddressFilter {
    /// Creates a filter that allows every address: the default.
    pub fn open() -> Self {
        Self(None)
    }

    /// Creates a filter that allows the addresses that `check` accepts. Its error is the human-readable reason.
    pub fn new(check: impl Fn(IpAddr) -> Result<(), Arc<str>> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(check)))
    }

    /// Returns whether every address is allowed.
    pub(crate) fn is_open(&self) -> bool {
        self.0.is_none()
    }

    /// Checks an address.
    ///
    /// # Errors
    /// If the address is denied, with the reason.
    pub fn check(&self, address: IpAddr) -> Result<(), Arc<str>> {
        self.0.as_ref().map_or(Ok(()), |check| check(address))
    }
}

impl fmt::Debug for AddressFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "AddressFilter(some)" } else { "AddressFilter(all)" })
    }
}
