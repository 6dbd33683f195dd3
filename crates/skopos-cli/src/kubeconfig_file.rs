//! Kubeconfigs that a command writes for kubectl. They hold credentials.
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use skopos_console::error::CliError;
use tempfile::NamedTempFile;

/// A kubeconfig for kubectl. A temporary one is removed with this value.
#[derive(Debug)]
pub(crate) enum KubeconfigFile {
    Asked(PathBuf),
    Temporary(NamedTempFile),
}

impl KubeconfigFile {
    /// Writes the file that was asked for, or a temporary one whose name begins with `prefix`.
    pub(crate) fn write(asked: Option<PathBuf>, prefix: &str, text: &str) -> Result<Self, CliError> {
        match asked {
            Some(path) => {
                write_private(&path, text).map_err(|error| not_written(&path, &error))?;
                Ok(Self::Asked(path))
            }
            None => {
                let folder = std::env::temp_dir();
                let file = private_file(&folder, prefix, text);
                file.map(Self::Temporary).map_err(|error| not_written(&folder, &error))
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Asked(path) => path,
            Self::Temporary(file) => file.path(),
        }
    }
}

fn not_written(path: &Path, error: &io::Error) -> CliError {
    CliError::new(format!("the kubeconfig cannot be written to {}: {error}", path.display()))
        .hint("name another file with --kubeconfig-out")
}

/// Writes a file that only this user may read. An existing file is replaced instead of overwritten, so that its owner does
/// not keep access. A link is refused.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(there) if there.is_symlink() => {
            return Err(io::Error::other("it is a link; name the file itself"));
        }
        // A pipe or a device is written to as it is.
        Ok(there) if !there.is_file() && !there.is_dir() => return std::fs::write(path, text),
        _ => {}
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    private_file(folder, ".skopos-kubeconfig-", text)?.persist(path).map(drop).map_err(|error| error.error)
}

/// Makes a new file with an unpredictable name and mode 0600. It is removed when it is dropped.
fn private_file(folder: &Path, prefix: &str, text: &str) -> io::Result<NamedTempFile> {
    let mut file = tempfile::Builder::new().prefix(prefix).suffix(".yaml").tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    Ok(file)
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    #[test]
    fn kubeconfig_is_new_private_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        fs::write(&path, "made by another user").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        let before = fs::metadata(&path).unwrap().ino();
        // A process that holds the earlier file open does not see the new text.
        let earlier = fs::File::open(&path).unwrap();
        write_private(&path, "text").unwrap();
        let after = fs::metadata(&path).unwrap();
        assert_ne!(after.ino(), before);
        assert_eq!(after.permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_to_string(&path).unwrap(), "text");
        assert_eq!(io::read_to_string(earlier).unwrap(), "made by another user");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn refuses_to_follow_symlink() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("target"), folder.path().join("link"));
        fs::write(&target, "precious").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let error = write_private(&link, "text").unwrap_err();
        assert!(error.to_string().contains("link"), "{error}");
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
    }

    #[test]
    fn temporary_file_is_private_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let file = private_file(folder.path(), "skopos-testserver-1-", "text").unwrap();
        assert_eq!(fs::metadata(file.path()).unwrap().permissions().mode() & 0o777, 0o600);
        let path = file.path().to_owned();
        drop(file);
        assert!(!path.exists());
    }
}
