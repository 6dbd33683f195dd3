use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::event::delivery::Recorded;

/// An acknowledged state, as it is stored.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Row {
    uid: Arc<str>,
    version: String,
    digest: Option<[u8; 16]>,
    #[serde(default)]
    unsure: bool,
}

impl From<&Recorded> for Row {
    fn from(recorded: &Recorded) -> Self {
        Self {
            uid: recorded.uid.clone(),
            version: recorded.version.to_string(),
            digest: recorded.digest,
            unsure: recorded.unsure,
        }
    }
}

impl TryFrom<Row> for Recorded {
    type Error = String;

    fn try_from(row: Row) -> Result<Self, String> {
        let version = row.version.parse().map_err(|_| format!("{:?} is no version", row.version))?;
        Ok(Self { uid: row.uid, version, digest: row.digest, unsure: row.unsure })
    }
}
