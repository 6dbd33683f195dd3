//! Archives that have the same bytes for the same files.

use std::collections::BTreeSet;
use std::io::Write as _;

use anyhow::Result;
use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

use super::payload::{Entry, Kind};

/// Maker of archives.
#[derive(Debug, Clone, Copy)]
pub(super) struct Archiver {
    /// Time of all files, in seconds since 1970.
    pub(super) time: u64,
    pub(super) compression: Compression,
}

impl Archiver {
    /// Returns a gzipped tar archive of the entries.
    pub(super) fn tar_gz(self, entries: &[Entry]) -> Result<Vec<u8>> {
        self.gzip(&self.tar(entries)?)
    }

    /// Returns the gzipped bytes.
    pub(super) fn gzip(self, bytes: &[u8]) -> Result<Vec<u8>> {
        let time = u32::try_from(self.time).unwrap_or_default();
        let mut gzip = GzBuilder::new().mtime(time).write(Vec::new(), self.compression);
        gzip.write_all(bytes)?;
        Ok(gzip.finish()?)
    }

    /// Returns a tar archive of the entries in the order of their paths, with the folders that they are in.
    pub(super) fn tar(self, entries: &[Entry]) -> Result<Vec<u8>> {
        let mut all = entries.to_vec();
        let known: BTreeSet<_> = entries.iter().map(|entry| entry.path.clone()).collect();
        let folders: BTreeSet<_> = entries.iter().flat_map(|entry| parents(&entry.path)).collect();
        all.extend(folders.difference(&known).map(|path| Entry::folder(path.clone(), 0o755, 0)));
        all.sort_by(|one, other| one.path.cmp(&other.path));
        let mut builder = Builder::new(Vec::new());
        for entry in &all {
            append(&mut builder, entry, self.time)?;
        }
        Ok(builder.into_inner()?)
    }
}

fn append(builder: &mut Builder<Vec<u8>>, entry: &Entry, time: u64) -> Result<()> {
    let mut header = Header::new_gnu();
    header.set_mtime(time);
    header.set_uid(entry.owner);
    header.set_gid(entry.owner);
    let path = &entry.path;
    match &entry.kind {
        Kind::Folder { mode } => {
            header.set_entry_type(EntryType::Directory);
            header.set_mode(*mode);
            header.set_size(0);
            builder.append_data(&mut header, format!("{path}/"), std::io::empty())?;
        }
        Kind::File { mode, content } => {
            header.set_entry_type(EntryType::Regular);
            header.set_mode(*mode);
            header.set_size(content.len() as u64);
            builder.append_data(&mut header, path, content.as_slice())?;
        }
        Kind::Link { to } => {
            header.set_entry_type(EntryType::Symlink);
            header.set_mode(0o777);
            header.set_size(0);
            builder.append_link(&mut header, path, to)?;
        }
    }
    Ok(())
}

/// Returns the folders that a path is in.
fn parents(path: &str) -> impl Iterator<Item = String> {
    path.match_indices('/').map(|(end, _)| path[..end].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: u64) -> Archiver {
        Archiver { time, compression: Compression::best() }
    }

    fn listed(archive: &[u8]) -> Vec<(String, u32, u64, u64)> {
        let mut archive = tar::Archive::new(archive);
        let entries = archive.entries().unwrap().map(|entry| {
            let entry = entry.unwrap();
            let header = entry.header();
            let path = entry.path().unwrap().display().to_string();
            (path, header.mode().unwrap(), header.uid().unwrap(), header.mtime().unwrap())
        });
        entries.collect()
    }

    #[test]
    fn same_files_give_same_bytes_in_any_order() {
        let files = [
            Entry::program("usr/bin/skopos", "binary"),
            Entry::folder("var/lib/skopos", 0o700, 7),
            Entry::link("usr/bin/kubectl-skopos", "skopos"),
        ];
        let reversed: Vec<_> = files.iter().rev().cloned().collect();
        let archiver = at(1);
        let archive = archiver.tar(&files).unwrap();
        assert_eq!(archive, archiver.tar(&reversed).unwrap());
        assert_eq!(archiver.gzip(&archive).unwrap(), archiver.gzip(&archive).unwrap());
        let wanted = [
            ("usr/", 0o755, 0),
            ("usr/bin/", 0o755, 0),
            ("usr/bin/kubectl-skopos", 0o777, 0),
            ("usr/bin/skopos", 0o755, 0),
            ("var/", 0o755, 0),
            ("var/lib/", 0o755, 0),
            ("var/lib/skopos/", 0o700, 7),
        ];
        assert_eq!(listed(&archive), wanted.map(|(path, mode, owner)| (path.to_owned(), mode, owner, 1)));
    }

    #[test]
    fn another_file_or_time_gives_other_bytes() {
        let archive = |content: &str, time| at(time).tar_gz(&[Entry::file("a", content)]).unwrap();
        assert_ne!(archive("one", 1), archive("two", 1));
        assert_ne!(archive("one", 1), archive("one", 2));
    }
}
