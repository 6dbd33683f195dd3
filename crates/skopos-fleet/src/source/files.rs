//! Several kubeconfig files read as one, reread when one of them changes.

use super::watched::{FileCheck, WatchedFile};
use crate::kubeconfig::{Kubeconfig, KubeconfigPaths, KubeconfigPolicy};

/// State of a list of files.
pub(super) struct Files {
    files: Vec<FileEntry>,
    skips_missing: bool,
    /// Set if the contents have changed since they were last returned.
    changed: bool,
}

/// A file and the contents last read from it.
struct FileEntry {
    file: WatchedFile,
    content: Option<Kubeconfig>,
    trouble: Option<String>,
}

/// Result of checking all files.
pub(super) enum FilesCheck {
    /// Nothing has changed.
    Same,
    /// A file changed a moment ago: check again soon.
    Settling,
    /// A file cannot be read.
    Unreadable(String),
    /// The merged contents.
    Read(Kubeconfig),
}

impl Files {
    pub(super) fn new(paths: &KubeconfigPaths) -> Self {
        let entry = |path: &std::path::PathBuf| FileEntry {
            file: WatchedFile::new(path.clone()),
            content: None,
            trouble: None,
        };
        let files = paths.files().iter().map(entry).collect();
        Self { files, skips_missing: paths.skips_missing(), changed: false }
    }

    /// Checks the files. Blocks as long as the file system does. As with kubectl, one unreadable file makes all
    /// unreadable, because the others may depend on it.
    pub(super) fn check(&mut self, policy: &KubeconfigPolicy) -> FilesCheck {
        let mut settling = false;
        for entry in &mut self.files {
            match entry.check(policy, self.skips_missing) {
                EntryCheck::Same => {}
                EntryCheck::Settling => settling = true,
                EntryCheck::Changed => self.changed = true,
            }
        }
        if settling {
            return FilesCheck::Settling;
        }
        if let Some(reason) = self.trouble() {
            return FilesCheck::Unreadable(reason);
        }
        match std::mem::take(&mut self.changed) {
            true => FilesCheck::Read(self.merged(policy)),
            false => FilesCheck::Same,
        }
    }

    fn trouble(&self) -> Option<String> {
        let several = self.files.len() > 1;
        let troubles = self.files.iter().filter_map(|entry| {
            let trouble = entry.trouble.as_ref()?;
            Some(if several {
                format!("{}: {trouble}", entry.file.path().display())
            } else {
                trouble.clone()
            })
        });
        let troubles: Vec<String> = troubles.collect();
        match troubles.is_empty() {
            true if self.files.iter().all(|entry| entry.content.is_none()) => {
                Some("none of the files exists".to_owned())
            }
            true => None,
            false => Some(troubles.join("; ")),
        }
    }

    fn merged(&self, policy: &KubeconfigPolicy) -> Kubeconfig {
        Kubeconfig::merge(self.files.iter().filter_map(|entry| entry.content.clone()), policy)
    }
}

/// Result of checking one file.
enum EntryCheck {
    Same,
    Settling,
    Changed,
}

impl FileEntry {
    fn check(&mut self, policy: &KubeconfigPolicy, skips_missing: bool) -> EntryCheck {
        match self.file.check(policy.max_bytes) {
            FileCheck::Same => return EntryCheck::Same,
            FileCheck::Settling => return EntryCheck::Settling,
            // A missing file of a list may be created later.
            FileCheck::Missing(_) if skips_missing && self.content.is_none() => self.trouble = None,
            FileCheck::Missing(reason) | FileCheck::Unreadable(reason) => self.trouble = Some(reason),
            FileCheck::Content(bytes) => match Kubeconfig::parse(&bytes, policy) {
                Ok(parsed) => {
                    self.content = Some(parsed.in_folder_of(self.file.path()));
                    self.trouble = None;
                    return EntryCheck::Changed;
                }
                Err(error) => self.trouble = Some(error.to_string()),
            },
        }
        EntryCheck::Same
    }
}
