//! Who asks: from a client certificate or a bearer token to an [`Identity`].

mod identity;

pub use identity::Identity;
