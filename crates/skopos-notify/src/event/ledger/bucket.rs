//! Ledgers in a bucket, which the replicas of a notifier share.
//!
//! ```text
//!  SINK/head                   the owner, the name of the base, the changes since then
//!  SINK/base-NUMBER-RANDOM     everything up to this write
//! ```
//!
//! A write replaces the head, on the condition that it is the one that this process knows. So a write is done as a whole or not
//! at all. A process whose ledger was taken over writes nothing more, and a late write cannot undo a newer one. When the
//! changes have become many, they are first merged into a new base.
//!
//! Terms of a Lease are not compared: those of a Lease that was restored from a backup begin lower again, and a process whose term
//! has ended writes nothing more.

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use skopos_bucket::{Bucket, ObjectVersion};
use tokio::task::spawn_blocking;

use super::changes::LedgerChanges;
use super::head::{Head, Unreadable, decode, encode};
use super::{Ledger, LedgerChange, LedgerContent, LedgerError, LedgerStore};

/// Ledgers below the prefix of a bucket, which must not have anything else there. Replicas that elect a leader share them: a new
/// leader continues where the one before has ended.
///
/// The process that opens a ledger takes it over: the one before can write no more. A damaged ledger is kept beside
/// (`….damaged`), and everything is reported again.
///
/// The bucket must refuse writes whose condition does not hold (`If-Match`). A ledger is opened only where it does.
#[derive(Clone, Debug)]
pub struct LedgerBucket(Bucket);

/// The objects of one ledger.
#[derive(Clone)]
struct Place {
    bucket: Bucket,
    sink: Arc<str>,
}

/// A ledger as one process has opened it.
struct Opened {
    place: Place,
    owner: String,
    /// The head that was written last; `None` if that is not known, or while another one is written.
    known: Mutex<Option<Known>>,
}

struct Known {
    head: Head,
    version: ObjectVersion,
}

const HEAD: &str = "head";
const BASE: &str = "base-";
const DAMAGED: &str = ".damaged";
/// Attempts where another process, or a lost answer, has changed the head.
const ATTEMPTS: usize = 4;

impl LedgerBucket {
    /// Uses a bucket. Requests nothing.
    pub fn new(bucket: Bucket) -> Self {
        Self(bucket)
    }

    fn place(&self, sink: &str) -> Place {
        Place { bucket: self.0.below(&crate::file_name(sink)), sink: sink.into() }
    }
}

#[async_trait]
impl LedgerStore for LedgerBucket {
    async fn open(&self, sink: &str) -> Result<(Arc<dyn Ledger>, LedgerContent), LedgerError> {
        let (place, owner) = (self.place(sink), format!("{:016x}", fastrand::u64(..)));
        let (known, is_new) = place.take_over(&owner).await?;
        let (known, content) = place.read_or_begin_again(known, is_new).await?;
        place.clean_up(&known.head).await;
        Ok((Arc::new(Opened { place, owner, known: Mutex::new(Some(known)) }), content))
    }

    async fn read(&self, sink: &str) -> Result<LedgerContent, LedgerError> {
        let place = self.place(sink);
        for _ in 0..ATTEMPTS {
            let Some((head, _)) = place.head().await? else { return Ok(LedgerContent::default()) };
            let head = head.map_err(|unreadable| place.unreadable(unreadable))?;
            // A base that is missing was merged into another one meanwhile.
            if let Some(content) = place.content(&head).await? {
                return Ok(content.content(false));
            }
        }
        Err(place.error("it changes all the time"))
    }
}

#[async_trait]
impl Ledger for Opened {
    async fn write(&self, changes: Arc<Vec<LedgerChange>>) -> Result<(), LedgerError> {
        for _ in 0..ATTEMPTS {
            let known = self.known.lock().take();
            let Known { mut head, version } = match known {
                Some(known) => known,
                None => self.own().await?,
            };
            changes.iter().for_each(|change| head.changes.apply(change));
            head.number += 1;
            let (mut head, mut bytes) = self.place.encode(head).await?;
            let mut merged = None;
            if head.is_large(bytes.len()) {
                let Some(content) = self.place.content(&head).await? else {
                    self.check_head(&version).await?;
                    continue;
                };
                merged = self.place.merge(&mut head, content).await?;
                (head, bytes) = self.place.encode(head).await?;
            }
            let Some(version) = self.place.put(HEAD, bytes, Some(&version)).await? else { continue };
            *self.known.lock() = Some(Known { head, version });
            if let Some(base) = merged {
                self.place.delete(&base).await;
            }
            return Ok(());
        }
        Err(self.place.error("another process writes it all the time"))
    }
}

impl Opened {
    /// Reads the head again, after an answer was lost.
    async fn own(&self) -> Result<Known, LedgerError> {
        let Some((head, version)) = self.place.head().await? else {
            return Err(LedgerError::Damaged(self.place.sink.to_string(), "its head is missing".into()));
        };
        let head = head.map_err(|unreadable| self.place.unreadable(unreadable))?;
        match head.owner == self.owner {
            true => Ok(Known { head, version }),
            false => Err(LedgerError::TakenOver(self.place.sink.to_string())),
        }
    }

    /// Finds out why the base of this head is missing: another one may have replaced both.
    async fn check_head(&self, version: &ObjectVersion) -> Result<(), LedgerError> {
        match self.own().await?.version == *version {
            true => Err(self.place.unreadable(Unreadable::Damaged("its base is missing".into()))),
            false => Ok(()),
        }
    }
}

impl Place {
    /// Makes a process the owner. Returns whether there was no ledger.
    async fn take_over(&self, owner: &str) -> Result<(Known, bool), LedgerError> {
        for _ in 0..ATTEMPTS {
            let (mut head, version, is_new) = match self.head().await? {
                None => (Head::default(), None, true),
                Some((Ok(head), version)) => (head, Some(version), false),
                Some((Err(Unreadable::Damaged(problem)), version)) => {
                    self.put_aside(HEAD, &problem).await?;
                    (Head::default(), Some(version), true)
                }
                Some((Err(foreign), _)) => return Err(self.unreadable(foreign)),
            };
            head.owner = owner.to_owned();
            head.number += 1;
            let (head, bytes) = self.encode(head).await?;
            if let Some(version) = self.put(HEAD, bytes.clone(), version.as_ref()).await? {
                self.check_conditions(bytes).await?;
                return Ok((Known { head, version }, is_new));
            }
        }
        Err(self.error("other processes open it all the time"))
    }

    /// Checks that the bucket refuses a write whose condition does not hold: there are services that know `If-None-Match` alone.
    /// If it does not, the head is written as it is.
    async fn check_conditions(&self, head: Vec<u8>) -> Result<(), LedgerError> {
        match self.put(HEAD, head, Some(&ObjectVersion::absent())).await? {
            None => Ok(()),
            Some(_) => Err(self.error(
                "it does not refuse writes whose condition does not hold, so that two notifiers could work with one \
                 ledger: use a service with conditional writes, as S3 has them",
            )),
        }
    }

    /// Reads the content. If it is damaged, the ledger begins again.
    async fn read_or_begin_again(
        &self,
        known: Known,
        is_new: bool,
    ) -> Result<(Known, LedgerContent), LedgerError> {
        let Known { mut head, version } = known;
        let problem = match self.content(&head).await {
            Ok(Some(content)) => return Ok((Known { head, version }, content.content(is_new))),
            Ok(None) => "its base is missing".to_owned(),
            Err(LedgerError::Damaged(_, problem)) => problem,
            Err(error) => return Err(error),
        };
        if let Some(base) = head.base.take() {
            self.put_aside(&base.name, &problem).await?;
        }
        head.changes = LedgerChanges::default();
        let (head, bytes) = self.encode(head).await?;
        let version = self.put(HEAD, bytes, Some(&version)).await?;
        let version = version.ok_or_else(|| LedgerError::TakenOver(self.sink.to_string()))?;
        Ok((Known { head, version }, LedgerContent { is_new: true, ..LedgerContent::default() }))
    }

    async fn head(&self) -> Result<Option<(Result<Head, Unreadable>, ObjectVersion)>, LedgerError> {
        match self.bucket.get_object(HEAD).await {
            Ok((bytes, version)) => Ok(Some((self.decode(bytes).await?, version))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.error(error)),
        }
    }

    /// Returns the content of a ledger with this head; `None` if its base is missing.
    async fn content(&self, head: &Head) -> Result<Option<LedgerChanges>, LedgerError> {
        let mut content = match &head.base {
            None => LedgerChanges::default(),
            Some(base) => match self.bucket.get_object(&base.name).await {
                Ok((bytes, _)) => {
                    self.decode(bytes).await?.map_err(|unreadable| self.unreadable(unreadable))?
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(self.error(error)),
            },
        };
        content.extend(head.changes.clone());
        content.drop_removals();
        Ok(Some(content))
    }

    /// Writes a base with this content, and refers to it. Returns the name of the one before.
    async fn merge(&self, head: &mut Head, content: LedgerChanges) -> Result<Option<String>, LedgerError> {
        let (_, bytes) = self.encode(content).await?;
        // Random, because an earlier attempt of the same number may arrive later.
        let (name, length) = (format!("{}{:016x}", base_of(head.number), fastrand::u64(..)), bytes.len());
        self.bucket.put_object(&name, bytes.into()).await.map_err(|error| self.error(error))?;
        Ok(head.rebase(name, length))
    }

    async fn put(
        &self,
        name: &str,
        bytes: Vec<u8>,
        version: Option<&ObjectVersion>,
    ) -> Result<Option<ObjectVersion>, LedgerError> {
        let put = self.bucket.put_object_if(name, bytes.into(), version).await;
        put.map_err(|error| self.error(error))
    }

    /// Keeps a damaged object under another name.
    async fn put_aside(&self, name: &str, problem: &str) -> Result<(), LedgerError> {
        let kept = format!("{name}{DAMAGED}");
        tracing::error!(
            sink = %self.sink, object = name, problem, kept,
            "the ledger in the bucket is damaged: it is put aside, and everything is told again"
        );
        match self.bucket.get_object(name).await {
            Ok((bytes, _)) => {
                self.bucket.put_object(&kept, bytes.into()).await.map_err(|error| self.error(error))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(self.error(error)),
        }
    }

    /// Deletes bases that a process has left when it ended. A failure does no harm.
    async fn clean_up(&self, head: &Head) {
        let used = head.base.as_ref().map_or("", |base| &base.name);
        // A later base may be that of a process that has taken over meanwhile.
        let is_left = |name: &str| {
            name.starts_with(BASE)
                && !name.ends_with(DAMAGED)
                && name < base_of(head.number).as_str()
                && name != used
        };
        match self.bucket.list_objects().await {
            Ok(objects) => {
                for object in objects.iter().filter(|object| is_left(&object.name)) {
                    self.delete(&object.name).await;
                }
            }
            Err(error) => {
                tracing::debug!(sink = %self.sink, %error, "the objects of the ledger are not listed")
            }
        }
    }

    async fn delete(&self, name: &str) {
        if let Err(error) = self.bucket.delete_object(name).await {
            tracing::debug!(sink = %self.sink, object = name, %error, "a base that is not used is not deleted");
        }
    }

    /// Writes an object in memory, in a thread of its own: many states take a while.
    async fn encode<T: Serialize + Send + 'static>(&self, value: T) -> Result<(T, Vec<u8>), LedgerError> {
        let encoded = spawn_blocking(move || encode(&value).map(|bytes| (value, bytes))).await;
        encoded.map_err(|error| self.error(error))?.map_err(|error| self.error(error))
    }

    async fn decode<T: DeserializeOwned + Send + 'static>(
        &self,
        bytes: Vec<u8>,
    ) -> Result<Result<T, Unreadable>, LedgerError> {
        spawn_blocking(move || decode(&bytes)).await.map_err(|error| self.error(error))
    }

    fn unreadable(&self, unreadable: Unreadable) -> LedgerError {
        match unreadable {
            Unreadable::Damaged(problem) => LedgerError::Damaged(self.sink.to_string(), problem),
            Unreadable::Foreign(problem) => self.error(problem),
        }
    }

    fn error(&self, problem: impl ToString) -> LedgerError {
        LedgerError::Bucket { sink: self.sink.to_string(), problem: problem.to_string() }
    }
}

/// Returns the beginning of the name of a base.
fn base_of(number: u64) -> String {
    format!("{BASE}{number:020}-")
}
