//! View of one caller on a merged history: the clusters and objects that the caller may read.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use skopos_fleet::ClusterId;
use skopos_serve::{
    Blocks, Compacted, Contents, LeadingColumn, ReadError, Source, VersionRequirement, Window,
};
use skopos_wire::{ContinueToken, ObjectKey, Status};

use super::answer_status::{AnswerStatus, StatusBuilder};
use super::followed_stores::Ages;
use super::item::{ListPosition, MergedItem};
use super::kinds::Kind;
use super::merged_version::MergedVersion;
use super::merger::{Member, View};
use super::token_signer::{ClustersHash, TokenSigner};
use super::watch_authz::VisibleClusters;

/// The merged view of one kind, as one request sees it.
#[derive(Clone)]
pub(crate) struct MergedSource {
    pub(crate) kind: Arc<Kind>,
    /// The clusters that the request sees.
    pub(crate) visible: VisibleClusters,
    /// The signer of continue tokens.
    pub(crate) signer: Arc<TokenSigner>,
    /// True if other replicas may continue a list.
    pub(crate) is_shared: bool,
    /// The list of another replica that the request continues.
    pub(crate) continued: Option<ContinuedList>,
    pub(crate) status_builder: Arc<StatusBuilder>,
    /// The state of the clusters at the last read; a list reports it in its metadata.
    pub(crate) last_status: Arc<Mutex<AnswerStatus>>,
    /// The content of the last read; tokens are signed with its clusters.
    pub(crate) last_read: Arc<Mutex<Option<MergedContents>>>,
    pub(crate) blocks: Blocks,
}

/// A list of another replica, as this one continues it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContinuedList {
    /// The version of its first page.
    pub(crate) version: MergedVersion,
    /// The clusters of its pages.
    pub(crate) clusters: ClustersHash,
    /// True if no content of this replica is older than the earlier pages.
    pub(crate) is_proven: bool,
}

/// The content at one merged version, as one request sees it.
#[derive(Clone)]
pub(crate) struct MergedContents {
    view: View,
    /// The ages of the content.
    ages: Arc<Ages>,
    clusters: Arc<BTreeSet<ClusterId>>,
}

/// The column before all others.
const COLUMNS: &[LeadingColumn] =
    &[LeadingColumn { name: "Cluster", description: "The cluster that the object is of." }];

impl Source for MergedSource {
    type Item = MergedItem;
    type Contents = MergedContents;

    async fn read(&self, wanted: VersionRequirement, _limit: Duration) -> Result<MergedContents, ReadError> {
        let contents = match wanted {
            VersionRequirement::NotOlderThan(requested) | VersionRequirement::Exactly(requested)
                if self.continues(requested) =>
            {
                self.other_replicas(requested)?
            }
            VersionRequirement::Newest | VersionRequirement::Any => self.newest(),
            VersionRequirement::NotOlderThan(requested) => {
                let newest = self.newest();
                let current = newest.revision();
                if current < requested {
                    return Err(ReadError::Ahead { requested, current });
                }
                newest
            }
            VersionRequirement::Exactly(requested) => {
                let oldest = self.window().reached();
                let shown = self.kind.history.view_at(MergedVersion::new(requested));
                let (view, ages) = shown.ok_or(Compacted { requested, oldest })?;
                self.contents(view, ages)
            }
        };
        *self.last_status.lock() = contents.answer_status(&self.status_builder);
        *self.last_read.lock() = Some(contents.clone());
        Ok(contents)
    }

    /// Keeps the content for further pages, unless another replica keeps that of this version.
    fn remember(&self, contents: &MergedContents) {
        if !self.continues(contents.revision()) {
            self.kind.history.remember(&contents.view, &contents.ages);
        }
    }

    fn window(&self) -> &Arc<Window<MergedItem>> {
        self.kind.history.window()
    }

    fn progress(&self) -> u64 {
        self.kind.history.view().merged_version.number()
    }

    fn now(&self) -> Timestamp {
        self.kind.history.now()
    }

    fn columns(&self) -> &[LeadingColumn] {
        COLUMNS
    }

    fn blocks(&self) -> Option<&Blocks> {
        Some(&self.blocks)
    }

    fn seal(&self, token: ContinueToken) -> String {
        let read = self.last_read.lock().clone().filter(|_| self.is_shared);
        let clusters = read.map(|contents| contents.clusters_hash()).unwrap_or_default();
        self.signer.sign(&token, clusters, self.now())
    }

    fn open(&self, token: &str) -> Result<ContinueToken, Status> {
        self.signer.verify(token, self.now()).map(|(token, _)| token)
    }

    fn list_annotations(&self) -> Vec<(String, String)> {
        self.last_status.lock().annotations()
    }

    /// Returns false: the number of objects is not revealed.
    fn counts(&self) -> bool {
        false
    }
}

impl MergedSource {
    /// Returns the content now.
    pub(crate) fn newest(&self) -> MergedContents {
        let ages = Arc::new(self.kind.followed_stores.ages());
        self.contents(self.kind.history.view(), ages)
    }

    /// Returns whether this version is that of the list of another replica.
    fn continues(&self, version: u64) -> bool {
        self.continued.is_some_and(|continued| continued.version.number() == version)
    }

    /// Returns the content now, as that of the version of another replica's list.
    fn other_replicas(&self, requested: u64) -> Result<MergedContents, Compacted> {
        let newest = self.newest();
        let is_same =
            |continued: &ContinuedList| continued.is_proven && continued.clusters == newest.clusters_hash();
        match self.continued.filter(is_same) {
            Some(ContinuedList { version: merged_version, .. }) => {
                let view = View { merged_version, ..newest.view };
                Ok(MergedContents { view, ..newest })
            }
            None => Err(Compacted { requested, oldest: self.window().reached() }),
        }
    }

    fn contents(&self, view: View, ages: Arc<Ages>) -> MergedContents {
        MergedContents { view, ages, clusters: self.visible.all() }
    }
}

impl MergedContents {
    /// Returns the visible members, in order, from this cluster on.
    fn members<'a>(&'a self, from: Option<&'a str>) -> impl Iterator<Item = (&'a ClusterId, &'a Member)> {
        let from = from.unwrap_or_default();
        let seen = self.clusters.iter().skip_while(move |id| id.as_str() < from);
        seen.filter_map(|id| self.view.roster.get_key_value(id))
    }

    /// Returns all visible objects, in order, from a position on.
    fn items<'a>(
        &'a self,
        namespace: Option<&'a str>,
        from: Option<&'a str>,
    ) -> impl Iterator<Item = MergedItem> + 'a {
        let position = from.map(|from| Arc::new(ListPosition::read(from, namespace)));
        let first = position.as_ref().map(|position| position.cluster);
        self.members(first).flat_map(move |(id, member)| {
            let position = position.clone().filter(|position| position.cluster == id.as_str());
            let before = move |key: &ObjectKey| {
                namespace.is_some_and(|namespace| key.namespace() < Some(namespace))
                    || position.as_ref().is_some_and(|position| position.is_after(key))
            };
            let entries = member.contents.seek(before);
            let entries = entries.take_while(move |entry| {
                namespace.is_none_or(|namespace| entry.key().namespace() == Some(namespace))
            });
            entries.map(|entry| MergedItem::new(id.clone(), entry.clone()))
        })
    }

    /// Returns the hash of the visible clusters with content, and of their identities.
    fn clusters_hash(&self) -> ClustersHash {
        let mut hash = Sha256::new();
        let mut update = |part: &str| {
            // With its length, so that different lists of parts never give the same text.
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        };
        for (id, member) in self.members(None) {
            if let Some(position) = &member.position {
                update(id.as_str());
                update(position.identity.as_deref().unwrap_or_default());
            }
        }
        let [a, b, c, d, e, f, g, h, ..] = <[u8; 32]>::from(hash.finalize());
        ClustersHash([a, b, c, d, e, f, g, h])
    }

    /// Returns the state of the clusters for this content.
    pub(crate) fn answer_status(&self, status_builder: &StatusBuilder) -> AnswerStatus {
        status_builder.build(&self.view.roster, &self.ages)
    }

    /// Returns the clusters that have this object.
    pub(crate) fn holders(&self, namespace: Option<&str>, name: &str) -> Vec<&ClusterId> {
        let key = key_of(namespace, name);
        let members = self.members(None);
        members.filter(|(_, member)| member.contents.get(&key).is_some()).map(|(id, _)| id).collect()
    }
}

impl Contents for MergedContents {
    type Item = MergedItem;

    fn revision(&self) -> u64 {
        self.view.merged_version.number()
    }

    fn get(&self, namespace: Option<&str>, name: &str) -> Result<Option<MergedItem>, Compacted> {
        let key = key_of(namespace, name);
        let mut found = self
            .members(None)
            .filter_map(|(id, member)| Some(MergedItem::new(id.clone(), member.contents.get(&key)?.clone())));
        Ok(found.next())
    }

    fn page(
        &self,
        namespace: Option<&str>,
        from: Option<&str>,
        max: usize,
    ) -> Result<Vec<MergedItem>, Compacted> {
        Ok(self.items(namespace, from).take(max).collect())
    }

    fn count(&self, namespace: Option<&str>, from: Option<&str>) -> Result<usize, Compacted> {
        Ok(self.items(namespace, from).count())
    }
}

fn key_of(namespace: Option<&str>, name: &str) -> ObjectKey {
    match namespace {
        Some(namespace) => ObjectKey::namespaced(namespace, name),
        None => ObjectKey::cluster(name),
    }
}
