//! Locations of kubeconfigs: a flag, `$KUBECONFIG`, `~/.kube/config`.

use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, fmt, fs};

use zeroize::Zeroizing;

use super::error::KubeconfigReadError;
use super::{Kubeconfig, MAX_BYTES};

/// The kubeconfig files that are merged, in order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KubeconfigPaths {
    files: Vec<PathBuf>,
    /// Set if a missing file is an error.
    required: bool,
}

impl KubeconfigPaths {
    /// Returns one file, which must exist, as for kubectl's `--kubeconfig`.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self { files: vec![path.into()], required: true }
    }

    /// Returns the files of a list such as `a:b` (`a;b` on Windows). Empty entries and repetitions are dropped, and missing
    /// files are skipped, as with `$KUBECONFIG`. A file whose name is the whole text takes precedence over the list.
    pub fn list(list: impl AsRef<OsStr>) -> Self {
        let list = list.as_ref();
        let files = split(list);
        match files.as_slice() {
            [_, _, ..] if !Path::new(list).exists() => Self { files, required: false },
            [only] => Self::file(only),
            _ => Self::file(list),
        }
    }

    /// Returns the files that kubectl reads without `--kubeconfig`: those of `$KUBECONFIG`, otherwise `~/.kube/config`.
    pub fn from_environment() -> Self {
        let files = match env::var_os("KUBECONFIG").filter(|list| !list.is_empty()) {
            Some(list) => split(&list),
            None => env::home_dir().map(|home| home.join(".kube").join("config")).into_iter().collect(),
        };
        Self { files, required: false }
    }

    /// Returns the files, in order.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Returns whether missing files are skipped.
    pub fn skips_missing(&self) -> bool {
        !self.required
    }

    /// Returns whether any of the files exists.
    pub fn exist(&self) -> bool {
        self.files.iter().any(|path| path.exists())
    }

    /// Reads and merges the files. Blocks as long as the file system does.
    ///
    /// # Errors
    /// If a file cannot be read or is not a kubeconfig, or none of the files exists.
    pub fn read(&self) -> Result<Kubeconfig, KubeconfigReadError> {
        let mut read = Vec::new();
        for path in &self.files {
            match content(path) {
                Ok(content) => read.push(parse(path, &content)?),
                Err(error) if error.kind() == io::ErrorKind::NotFound && !self.required => {}
                Err(error) => {
                    return Err(KubeconfigReadError::Unreadable {
                        path: path.clone(),
                        error: Arc::new(error),
                    });
                }
            }
        }
        match read.is_empty() {
            true => Err(KubeconfigReadError::Missing { paths: self.to_string() }),
            false => Ok(Kubeconfig::merge(read)),
        }
    }
}

impl fmt::Display for KubeconfigPaths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // File names that contain the separator cannot be joined; for display they still can.
        let joined: Vec<_> = self.files.iter().map(|path| path.to_string_lossy()).collect();
        f.write_str(&joined.join(if cfg!(windows) { ";" } else { ":" }))
    }
}

fn split(list: &OsStr) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = Vec::new();
    for path in env::split_paths(list).filter(|path| !path.as_os_str().is_empty()) {
        if !files.contains(&path) {
            files.push(path);
        }
    }
    files
}

fn content(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut content = Zeroizing::new(Vec::new());
    fs::File::open(path)?.take(MAX_BYTES as u64 + 1).read_to_end(&mut content)?;
    Ok(content)
}

fn parse(path: &Path, content: &[u8]) -> Result<Kubeconfig, KubeconfigReadError> {
    let parsed = Kubeconfig::parse(content, MAX_BYTES);
    let parsed = parsed.map_err(|error| KubeconfigReadError::Invalid { path: path.to_owned(), error })?;
    Ok(parsed.in_folder_of(path))
}
