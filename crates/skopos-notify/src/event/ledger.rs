//! The ledger: the states that the receiver of an event sink has acknowledged, on disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use redb::{Database, ReadableTable as _, TableDefinition};
use serde::{Deserialize, Serialize};
use skopos::{ObjectKey, ResourceVersion};
use skopos_fleet::checkpoint::private_folder;

use super::delivery::{DeadLetter, EventKey, Recorded};

/// A ledger in its own file. Each commit is atomic, and on disk when it returns.
pub struct Ledger {
    path: PathBuf,
    /// `None` after a failure. The library then requires the file to be reopened, which repairs a partial write.
    database: Mutex<Option<Database>>,
}

/// Content of a ledger.
#[derive(Debug, Default)]
pub struct LedgerContent {
    /// True if there was no ledger, so that everything is reported as new.
    pub is_new: bool,
    /// The cluster that the ledger is about.
    pub cluster: Option<Arc<str>>,
    /// The epoch that was reported.
    pub history: History,
    /// The states that the receiver has acknowledged.
    pub recorded: Vec<(EventKey, Recorded)>,
    /// Messages that the receiver rejected for good.
    pub dead: Vec<(EventKey, DeadLetter)>,
    /// Reason for which the receiver wants no more messages.
    pub disabled: Option<String>,
}

/// An epoch of a cluster's history, in which versions are comparable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// Its number; it rises.
    pub epoch: u64,
    /// The highest version of each resource that was seen in it.
    pub versions: BTreeMap<Arc<str>, u64>,
}

/// A change of a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LedgerChange {
    /// The state that was acknowledged; `None` removes it.
    Recorded(EventKey, Option<Recorded>),
    /// A message that the receiver rejected for good; `None` removes it.
    Dead(EventKey, Option<DeadLetter>),
    /// Everything beside objects.
    Meta {
        /// Reason for which the receiver wants no more messages.
        disabled: Option<String>,
        /// The cluster that the ledger is about.
        cluster: Option<Arc<str>>,
        /// The epoch.
        history: History,
    },
}

/// A ledger that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// Another process has it.
    #[error("the ledger {0} is in use: another notifier runs with this folder")]
    InUse(PathBuf),
    /// It cannot be read or written.
    #[error("the ledger {path} cannot be used: {problem}; check the disk of state.folder")]
    Storage {
        /// The file.
        path: PathBuf,
        /// The error.
        problem: String,
    },
}

const RECORDED: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("recorded");
const DEAD: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("dead");
const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
const CLUSTER: &str = "cluster";
const HISTORY: &str = "history";
const DISABLED: &str = "disabled";
/// Cache size. A ledger is read once, at the start.
const CACHE_BYTES: usize = 4 * 1024 * 1024;

/// An entry in its form on disk.
#[derive(Serialize, Deserialize)]
struct Row {
    uid: Arc<str>,
    version: String,
    digest: Option<[u8; 16]>,
    #[serde(default)]
    unsure: bool,
}

impl Ledger {
    /// Opens the ledger of a sink in a folder, and reads it. A damaged ledger is moved away, and everything is reported again.
    ///
    /// # Errors
    /// When another process uses it, or the disk fails.
    pub fn open(folder: &Path, sink: &str) -> Result<(Self, LedgerContent), LedgerError> {
        let path = Self::path(folder, sink);
        private_folder(folder).map_err(|error| LedgerError::storage(&path, error))?;
        match Self::read(&path) {
            Err(OpenError::Damaged(problem)) => {
                let aside = path.with_extension("damaged");
                tracing::error!(
                    ledger = %path.display(), problem, kept = %aside.display(),
                    "the ledger is damaged: it is put aside, and everything is told again"
                );
                std::fs::rename(&path, &aside).map_err(|error| LedgerError::storage(&path, error))?;
                Self::read(&path).map_err(|error| error.into_error(&path))
            }
            other => other.map_err(|error| error.into_error(&path)),
        }
    }

    /// Returns whether there is a ledger of a sink in a folder.
    pub fn exists(folder: &Path, sink: &str) -> bool {
        Self::path(folder, sink).exists()
    }

    /// Writes changes, all or none. It blocks until they are on disk.
    ///
    /// # Errors
    /// When the disk fails. The ledger is then unchanged.
    pub fn write(&self, changes: &[LedgerChange]) -> Result<(), LedgerError> {
        let mut database = self.database.lock();
        let open = match database.take() {
            Some(open) => open,
            None => open_file(&self.path).map_err(|error| LedgerError::storage(&self.path, error))?,
        };
        commit(&open, changes).map_err(|error| LedgerError::storage(&self.path, error))?;
        *database = Some(open);
        Ok(())
    }

    /// Returns the error of a write that did not complete.
    pub(crate) fn not_run(&self, error: impl ToString) -> LedgerError {
        LedgerError::storage(&self.path, error)
    }

    fn path(folder: &Path, sink: &str) -> PathBuf {
        folder.join(format!("ledger-{}.redb", crate::file_name(sink)))
    }

    fn read(path: &Path) -> Result<(Self, LedgerContent), OpenError> {
        let is_new = !path.exists();
        let database = open_file(path)?;
        // Creates the tables, and detects a disk that cannot be written to.
        commit(&database, &[])?;
        let content = content(&database, is_new)?;
        Ok((Self { path: path.to_owned(), database: Mutex::new(Some(database)) }, content))
    }
}

fn open_file(path: &Path) -> Result<Database, redb::DatabaseError> {
    Database::builder().set_cache_size(CACHE_BYTES).create(path)
}

fn commit(database: &Database, changes: &[LedgerChange]) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut recorded = transaction.open_table(RECORDED)?;
        let mut dead = transaction.open_table(DEAD)?;
        let mut meta = transaction.open_table(META)?;
        for change in changes {
            match change {
                LedgerChange::Recorded(key, Some(entry)) => {
                    drop(recorded.insert(&*encode_key(key), &*encode(&Row::from(entry)))?);
                }
                LedgerChange::Recorded(key, None) => drop(recorded.remove(&*encode_key(key))?),
                LedgerChange::Dead(key, Some(letter)) => {
                    drop(dead.insert(&*encode_key(key), &*encode(letter))?);
                }
                LedgerChange::Dead(key, None) => drop(dead.remove(&*encode_key(key))?),
                LedgerChange::Meta { disabled, cluster, history } => {
                    drop(meta.insert(DISABLED, &*encode(disabled))?);
                    drop(meta.insert(CLUSTER, &*encode(cluster))?);
                    drop(meta.insert(HISTORY, &*encode(history))?);
                }
            }
        }
    }
    Ok(transaction.commit()?)
}

fn content(database: &Database, is_new: bool) -> Result<LedgerContent, OpenError> {
    use redb::ReadableDatabase as _;
    let transaction = database.begin_read().map_err(redb::Error::from)?;
    let mut content = LedgerContent { is_new, ..LedgerContent::default() };
    for row in transaction.open_table(RECORDED).map_err(redb::Error::from)?.iter()? {
        let (key, value) = row?;
        let row: Row = decode(value.value())?;
        content.recorded.push((decode_key(key.value())?, row.into_recorded()?));
    }
    for row in transaction.open_table(DEAD).map_err(redb::Error::from)?.iter()? {
        let (key, value) = row?;
        content.dead.push((decode_key(key.value())?, decode(value.value())?));
    }
    let meta = transaction.open_table(META).map_err(redb::Error::from)?;
    if let Some(cluster) = meta.get(CLUSTER)? {
        content.cluster = decode(cluster.value())?;
    }
    if let Some(history) = meta.get(HISTORY)? {
        content.history = decode(history.value())?;
    }
    if let Some(problem) = meta.get(DISABLED)? {
        content.disabled = decode(problem.value())?;
    }
    Ok(content)
}

impl History {
    /// Notes the version of a complete view of a resource. Returns true if this begins a new epoch.
    pub fn saw(&mut self, resource: &Arc<str>, version: &ResourceVersion) -> bool {
        let Some(version) = version.as_u64().filter(|version| *version > 0) else { return false };
        let known = self.versions.insert(resource.clone(), version);
        if known.is_none_or(|known| known <= version) {
            return false;
        }
        // Versions of other resources went back too, or will.
        self.versions.retain(|of, _| of == resource);
        self.epoch += 1;
        true
    }
}

enum OpenError {
    InUse,
    Damaged(String),
    Storage(String),
}

impl OpenError {
    fn into_error(self, path: &Path) -> LedgerError {
        match self {
            Self::InUse => LedgerError::InUse(path.to_owned()),
            Self::Damaged(problem) | Self::Storage(problem) => LedgerError::storage(path, problem),
        }
    }
}

impl LedgerError {
    fn storage(path: &Path, error: impl ToString) -> Self {
        Self::Storage { path: path.to_owned(), problem: error.to_string() }
    }
}

impl<E: Into<redb::Error>> From<E> for OpenError {
    fn from(error: E) -> Self {
        match error.into() {
            redb::Error::DatabaseAlreadyOpen => Self::InUse,
            redb::Error::Io(error) if error.kind() != std::io::ErrorKind::InvalidData => {
                Self::Storage(error.to_string())
            }
            damaged => Self::Damaged(damaged.to_string()),
        }
    }
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

impl Row {
    fn into_recorded(self) -> Result<Recorded, OpenError> {
        let version =
            self.version.parse().map_err(|_| OpenError::Damaged("a version is no number".into()))?;
        Ok(Recorded { uid: self.uid, version, digest: self.digest, unsure: self.unsure })
    }
}

/// Encodes resource and object, separated by NUL, which no resource contains.
fn encode_key(key: &EventKey) -> Vec<u8> {
    [key.resource.as_bytes(), b"\0", key.object.sort_bytes()].concat()
}

fn decode_key(bytes: &[u8]) -> Result<EventKey, OpenError> {
    let damaged = || OpenError::Damaged("a key cannot be read".into());
    let text = std::str::from_utf8(bytes).map_err(|_| damaged())?;
    let mut parts = text.splitn(3, '\0');
    let (Some(resource), Some(namespace), Some(name)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(damaged());
    };
    Ok(EventKey { resource: resource.into(), object: ObjectKey::namespaced(namespace, name) })
}

fn encode(value: &impl Serialize) -> Vec<u8> {
    // Maps with keys that are not text could fail; there are none.
    serde_json::to_vec(value).unwrap_or_default()
}

fn decode<T: for<'a> Deserialize<'a>>(bytes: &[u8]) -> Result<T, OpenError> {
    serde_json::from_slice(bytes)
        .map_err(|error| OpenError::Damaged(format!("an entry cannot be read: {error}")))
}
