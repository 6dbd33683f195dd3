use std::sync::Arc;

use crate::credentials::Credentials;
use crate::hub::Hub;

/// The owner of the shared state: ends everything when dropped.
pub(crate) struct Owner {
    pub(crate) hub: Arc<Hub>,
    pub(crate) credentials: Credentials,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.hub.close();
    }
}
