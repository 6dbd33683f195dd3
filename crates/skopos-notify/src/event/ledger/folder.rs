//! Ledgers on disk, each in its own file. Each commit is atomic, and on disk when it returns.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use redb::{Database, ReadableTable as _, TableDefinition};
use serde::{Deserialize, Serialize};
use skopos::ObjectKey;
use skopos_fleet::checkpoint::private_folder;
use tokio::task::spawn_blocking;

use super::row::Row;
use super::{Ledger, LedgerChange, LedgerContent, LedgerError, LedgerStore};
use crate::event::delivery::EventKey;

/// A folder of ledgers. A ledger is open in one process at a time.
///
/// A damaged ledger is moved away, and everything is reported again.
#[derive(Clone, Debug)]
pub struct LedgerFolder(PathBuf);

/// An open file.
#[derive(Clone)]
struct LedgerFile(Arc<Inside>);

struct Inside {
    path: PathBuf,
    /// `None` after a failure. The library then requires the file to be reopened, which repairs a partial write.
    database: Mutex<Option<Database>>,
}

const RECORDED: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("recorded");
const DEAD: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("dead");
const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
const CLUSTER: &str = "cluster";
const HISTORY: &str = "history";
const DISABLED: &str = "disabled";
/// Cache size. A ledger is read once, at the start.
const CACHE_BYTES: usize = 4 * 1024 * 1024;

impl LedgerFolder {
    /// Names a folder. It is made when a ledger is opened.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self(folder.into())
    }

    fn path(&self, sink: &str) -> PathBuf {
        self.0.join(format!("ledger-{}.redb", crate::file_name(sink)))
    }
}

#[async_trait]
impl LedgerStore for LedgerFolder {
    async fn open(&self, sink: &str) -> Result<(Arc<dyn Ledger>, LedgerContent), LedgerError> {
        let (folder, path) = (self.0.clone(), self.path(sink));
        let opening = path.clone();
        // A disk that hangs must not hang the runtime.
        let opened = spawn_blocking(move || LedgerFile::open(&folder, &opening)).await;
        let (file, content) = opened.unwrap_or_else(|error| Err(LedgerError::storage(&path, error)))?;
        Ok((Arc::new(file), content))
    }

    async fn read(&self, sink: &str) -> Result<LedgerContent, LedgerError> {
        match self.path(sink).exists() {
            true => Ok(self.open(sink).await?.1),
            false => Ok(LedgerContent::default()),
        }
    }
}

#[async_trait]
impl Ledger for LedgerFile {
    async fn write(&self, changes: Arc<Vec<LedgerChange>>) -> Result<(), LedgerError> {
        let file = self.clone();
        let written = spawn_blocking(move || file.commit(&changes)).await;
        // A panic of the library, and the end of the runtime.
        written.unwrap_or_else(|error| Err(LedgerError::storage(&self.0.path, error)))
    }
}

impl LedgerFile {
    fn open(folder: &Path, path: &Path) -> Result<(Self, LedgerContent), LedgerError> {
        private_folder(folder).map_err(|error| LedgerError::storage(path, error))?;
        match Self::read(path) {
            Err(OpenError::Damaged(problem)) => {
                let aside = path.with_extension("damaged");
                tracing::error!(
                    ledger = %path.display(), problem, kept = %aside.display(),
                    "the ledger is damaged: it is put aside, and everything is told again"
                );
                std::fs::rename(path, &aside).map_err(|error| LedgerError::storage(path, error))?;
                Self::read(path).map_err(|error| error.into_error(path))
            }
            other => other.map_err(|error| error.into_error(path)),
        }
    }

    fn read(path: &Path) -> Result<(Self, LedgerContent), OpenError> {
        let is_new = !path.exists();
        let database = open_file(path)?;
        // Creates the tables, and detects a disk that cannot be written to.
        commit(&database, &[])?;
        let content = content(&database, is_new)?;
        let inside = Inside { path: path.to_owned(), database: Mutex::new(Some(database)) };
        Ok((Self(Arc::new(inside)), content))
    }

    /// Writes changes. It blocks until they are on disk.
    fn commit(&self, changes: &[LedgerChange]) -> Result<(), LedgerError> {
        let Inside { path, database } = &*self.0;
        let mut database = database.lock();
        let open = match database.take() {
            Some(open) => open,
            None => open_file(path).map_err(|error| LedgerError::storage(path, error))?,
        };
        commit(&open, changes).map_err(|error| LedgerError::storage(path, error))?;
        *database = Some(open);
        Ok(())
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
        content.recorded.push((decode_key(key.value())?, row.try_into().map_err(OpenError::Damaged)?));
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
