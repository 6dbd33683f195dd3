//! Checkpoint store in a directory of this machine.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;
use skopos::checkpoint::replace_file;

use super::store::{Content, FileName, Store, StoredFile, blocking};
use super::{names, private};

/// A directory used only by this process, which no other user can read: it holds content of the clusters.
#[derive(Clone)]
pub struct Directory {
    root: PathBuf,
    /// The lock file, held while the directory is in use and while a change is under way.
    lock: Arc<File>,
}

/// The lock file by which processes see that the directory is in use.
const LOCK: &str = "lock";

const BUFFER: usize = 256 << 10;

impl Directory {
    /// Opens a directory, and creates it if it does not exist. Revokes the permissions of other users.
    ///
    /// # Errors
    /// If it cannot be created or written to; if another process uses it; if it is a link or another user's; if it has
    /// other files in it, which must not be cleaned up.
    pub fn open(root: impl Into<PathBuf>) -> io::Result<Self> {
        let root = root.into();
        private::folder(&root)?;
        refuse_others(&root)?;
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true);
        let lock = private::open(&root.join(LOCK), &mut options)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { root, lock: Arc::new(lock) }),
            Err(TryLockError::WouldBlock) => {
                let problem = format!("{} is in use by another process", root.display());
                Err(io::Error::new(io::ErrorKind::ResourceBusy, problem))
            }
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn path(&self, file: &FileName) -> PathBuf {
        self.root.join(file.folder()).join(file.file())
    }

    /// Makes a change. Once started it continues even if the caller gives up, and the directory stays locked until it
    /// ends.
    fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> BoxFuture<'static, io::Result<T>> {
        let lock = self.lock.clone();
        Box::pin(blocking(move || {
            let changed = change();
            drop(lock);
            changed
        }))
    }
}

impl Store for Directory {
    fn read<'a>(&'a self, file: &'a FileName) -> BoxFuture<'a, io::Result<Box<dyn Read + Send>>> {
        let path = self.path(file);
        Box::pin(blocking(move || {
            let file = private::open(&path, OpenOptions::new().read(true))?;
            let reader = BufReader::with_capacity(BUFFER, file);
            Ok(Box::new(reader) as Box<dyn Read + Send>)
        }))
    }

    fn write<'a>(&'a self, file: &'a FileName, content: Content) -> BoxFuture<'a, io::Result<u64>> {
        let path = self.path(file);
        self.change(move || {
            path.parent().map_or(Ok(()), private::folder)?;
            replace_file(&path, |file| content.write_to(file))
        })
    }

    fn remove<'a>(&'a self, file: &'a FileName) -> BoxFuture<'a, io::Result<()>> {
        let path = self.path(file);
        self.change(move || {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            // Removing the last file removes the folder.
            let _ = path.parent().map(fs::remove_dir);
            Ok(())
        })
    }

    fn rename<'a>(&'a self, from: &'a FileName, to: &'a FileName) -> BoxFuture<'a, io::Result<()>> {
        let (from, to) = (self.path(from), self.path(to));
        self.change(move || fs::rename(from, to))
    }

    fn list(&self) -> BoxFuture<'_, io::Result<Vec<StoredFile>>> {
        let root = self.root.clone();
        Box::pin(blocking(move || {
            let mut found = Vec::new();
            for folder in fs::read_dir(&root)? {
                let folder = folder?;
                if !folder.file_type()?.is_dir() {
                    continue;
                }
                for file in fs::read_dir(folder.path())? {
                    let file = file?;
                    let names = (folder.file_name().into_string(), file.file_name().into_string());
                    // A file may disappear meanwhile.
                    if let ((Ok(folder), Ok(name)), Ok(meta)) = (names, file.metadata()) {
                        let modified = meta.modified()?;
                        let name = FileName::new(folder, name);
                        found.push(StoredFile { name, bytes: meta.len(), modified });
                    }
                }
            }
            Ok(found)
        }))
    }
}

/// Refuses a directory with files that are not checkpoints.
fn refuse_others(root: &Path) -> io::Result<()> {
    let refuse = |path: &Path| {
        let problem = format!(
            "{} has other files in it than checkpoints, such as {}: give checkpoints a folder of their own",
            root.display(),
            path.display()
        );
        Err(io::Error::new(io::ErrorKind::DirectoryNotEmpty, problem))
    };
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            match entry.file_name() == LOCK {
                true => continue,
                false => return refuse(&entry.path()),
            }
        }
        for file in fs::read_dir(entry.path())? {
            let file = file?;
            if !file.file_name().to_str().is_some_and(names::is_own) {
                return refuse(&file.path());
            }
        }
    }
    Ok(())
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Directory").field(&self.root).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &'static str) -> Content {
        Content::Bytes(text.as_bytes().into())
    }

    #[tokio::test]
    async fn files_are_replaced_listed_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::open(folder.path().join("x")).unwrap();
        let (one, other) = (FileName::new("a", "one"), FileName::new("a", "other"));
        assert_eq!(directory.read(&one).await.err().unwrap().kind(), io::ErrorKind::NotFound);
        directory.remove(&one).await.unwrap();
        assert_eq!(directory.write(&one, bytes("first")).await.unwrap(), 5);
        assert_eq!(directory.write(&one, bytes("2nd")).await.unwrap(), 3);
        let mut text = String::new();
        directory.read(&one).await.unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "2nd");
        directory.rename(&one, &other).await.unwrap();
        let listed = directory.list().await.unwrap();
        assert_eq!(listed.len(), 1, "{listed:?}");
        assert_eq!((listed[0].name.to_string().as_str(), listed[0].bytes), ("a/other", 3));
        directory.remove(&other).await.unwrap();
        assert!(directory.list().await.unwrap().is_empty());
        assert!(!folder.path().join("x/a").exists(), "the folder goes with its last file");
    }

    #[cfg(unix)]
    mod unix {
        use std::os::unix::fs::{PermissionsExt as _, symlink};

        use super::*;

        fn mode(path: &Path) -> u32 {
            fs::metadata(path).unwrap().permissions().mode() & 0o777
        }

        fn set_mode(path: &Path, mode: u32) {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }

        #[tokio::test]
        async fn restricts_folder_mode_and_ignores_symlinks() {
            let folder = tempfile::tempdir().unwrap();
            let (root, victim) = (folder.path().join("x"), folder.path().join("victim"));
            fs::create_dir_all(root.join("a")).unwrap();
            fs::write(&victim, "precious").unwrap();
            for path in [root.clone(), root.join("a")] {
                set_mode(&path, 0o777);
            }
            let name = |kind: &str| root.join("a").join(kind);
            symlink(&victim, name("core.v1.pods.skopos.new")).unwrap();
            fs::write(name("core.v1.nodes.skopos.new"), "").unwrap();
            set_mode(&name("core.v1.nodes.skopos.new"), 0o666);
            symlink(&victim, name("core.v1.secrets.skopos")).unwrap();
            fs::write(name("core.v1.events.skopos"), "forged").unwrap();
            set_mode(&name("core.v1.events.skopos"), 0o666);

            let directory = Directory::open(&root).unwrap();
            assert_eq!(mode(&root), 0o700);
            for kind in ["pods", "nodes"] {
                let file = FileName::new("a", format!("core.v1.{kind}.skopos"));
                directory.write(&file, bytes("what the cluster has")).await.unwrap();
                let path = name(file.file());
                assert!(fs::symlink_metadata(&path).unwrap().is_file() && mode(&path) == 0o600, "{kind}");
            }
            assert_eq!(
                (fs::read_to_string(&victim).unwrap().as_str(), mode(&root.join("a"))),
                ("precious", 0o700)
            );
            for (kind, why) in [("secrets", "link"), ("events", "others may write to it")] {
                let error = directory
                    .read(&FileName::new("a", format!("core.v1.{kind}.skopos")))
                    .await
                    .err()
                    .unwrap();
                assert!(error.to_string().contains(why), "{kind}: {error}");
            }
        }

        /// Needs root, which alone can change the owner of a folder.
        #[test]
        fn a_folder_of_another_user_is_refused() {
            if !nix::unistd::geteuid().is_root() {
                return eprintln!("not run: it needs root");
            }
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path().join("x");
            fs::create_dir(&root).unwrap();
            nix::unistd::chown(&root, Some(65534.into()), None).unwrap();
            let error = Directory::open(&root).unwrap_err();
            assert!(error.to_string().contains("belongs to user 65534"), "{error}");
        }

        #[test]
        fn a_folder_that_is_a_link_is_refused() {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir(folder.path().join("elsewhere")).unwrap();
            symlink(folder.path().join("elsewhere"), folder.path().join("x")).unwrap();
            let error = Directory::open(folder.path().join("x")).unwrap_err();
            assert!(error.to_string().contains("is a link"), "{error}");
            let root = folder.path().join("elsewhere");
            symlink(folder.path().join("victim"), root.join(LOCK)).unwrap();
            assert!(Directory::open(&root).is_err() && !folder.path().join("victim").exists());
        }
    }

    #[test]
    fn a_folder_with_other_files_is_refused() {
        for other in ["kubeconfig.yaml", "mydata/precious.txt", ".ssh/id_rsa", "a/notes.skopos.txt"] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(other);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "x").unwrap();
            let error = Directory::open(folder.path()).unwrap_err();
            assert!(error.to_string().contains("a folder of their own") && path.exists(), "{other}: {error}");
        }
    }

    #[test]
    fn one_process_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::open(folder.path()).unwrap();
        let error = Directory::open(folder.path()).unwrap_err();
        assert!(error.to_string().contains("in use by another process"), "{error}");
        drop(directory);
        Directory::open(folder.path()).unwrap();
    }
}
