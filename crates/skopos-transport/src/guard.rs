//! Which addresses may be connected to.

use std::{fmt, net::IpAddr, sync::Arc};

/// Asked for each address of each dial, after the name was resolved and before anything is sent to it: so the address that
/// is judged is the one that is connected to, whatever the name means a moment later. Behind a proxy nobody could ask it: a
/// configuration with both is refused.
#[derive(Clone, Default)]
pub struct AddressGuard(Option<Arc<Judge>>);

type Judge = dyn Fn(IpAddr) -> Result<(), Arc<str>> + Send + Sync;

impl AddressGuard {
    /// Every address may be connected to: the default.
    pub fn open() -> Self {
        Self(None)
    }

    /// Those that `judge` lets pass; an error says why not, for the person who reads it.
    pub fn new(judge: impl Fn(IpAddr) -> Result<(), Arc<str>> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(judge)))
    }

    /// Every address may be connected to.
    pub(crate) fn is_open(&self) -> bool {
        self.0.is_none()
    }

    /// What it says of an address.
    ///
    /// # Errors
    ///
    /// When it may not be connected to, with the reason.
    pub fn check(&self, address: IpAddr) -> Result<(), Arc<str>> {
        self.0.as_ref().map_or(Ok(()), |judge| judge(address))
    }
}

impl fmt::Debug for AddressGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "AddressGuard(some)" } else { "AddressGuard(all)" })
    }
}
