//! Folders and files that only this user may access.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

/// Creates a folder that only its owner may access, or revokes the access of other users to an existing one.
///
/// # Errors
/// If it cannot be created; if it is a link, not a folder, or another user's.
pub fn folder(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)?;
    #[cfg(unix)]
    unix::take(path)?;
    Ok(())
}

/// Opens a file of a private folder with these options. A new file is accessible only to its owner.
///
/// # Errors
/// If opening fails; if it is a link, not a file, or another user's, or if others may write to it.
pub(super) fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600).custom_flags(nix::libc::O_NOFOLLOW);
    }
    let opened = options.open(path);
    #[cfg(unix)]
    {
        let file = opened.map_err(|error| unix::opened(path, error))?;
        unix::check(path, &file.metadata()?, fs::FileType::is_file)?;
        Ok(file)
    }
    #[cfg(not(unix))]
    opened
}

#[cfg(unix)]
mod unix {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    /// The mode bits of other users.
    const OTHERS: u32 = 0o077;
    const OTHERS_WRITE: u32 = 0o022;
    const ALL_WRITE: u32 = 0o002;
    /// The mode bit of a folder in which only its owner may rename a file.
    const STICKY: u32 = 0o1000;

    pub(super) fn take(path: &Path) -> io::Result<()> {
        let meta = fs::symlink_metadata(path)?;
        if meta.is_symlink() {
            return refuse(path, "is a link: name the folder itself");
        }
        check_owner(path, &meta)?;
        if let Some(parent) = path.parent().filter(|parent| is_open_to_all(parent)) {
            tracing::warn!(path = %path.display(), parent = %parent.display(), "all users may put something else in the place of this folder: take the right to write from the folder around it");
        }
        if meta.mode() & OTHERS != 0 {
            tracing::warn!(path = %path.display(), mode = format!("{:o}", meta.mode() & 0o7777), "other users could use this folder: they cannot any more");
            fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
        }
        Ok(())
    }

    pub(super) fn check(
        path: &Path,
        meta: &fs::Metadata,
        is_right: impl Fn(&fs::FileType) -> bool,
    ) -> io::Result<()> {
        if !is_right(&meta.file_type()) {
            return refuse(path, "is no file");
        }
        check_owner(path, meta)?;
        match meta.mode() & OTHERS_WRITE {
            0 => Ok(()),
            _ => refuse(path, "is not used, since others may write to it: remove it"),
        }
    }

    /// Returns the error for a file that is a link.
    pub(super) fn opened(path: &Path, error: io::Error) -> io::Error {
        match fs::symlink_metadata(path) {
            Ok(meta) if meta.is_symlink() => refused(path, "is a link, which is not followed: remove it"),
            _ => error,
        }
    }

    fn is_open_to_all(folder: &Path) -> bool {
        fs::metadata(folder).is_ok_and(|meta| meta.mode() & ALL_WRITE != 0 && meta.mode() & STICKY == 0)
    }

    fn check_owner(path: &Path, meta: &fs::Metadata) -> io::Result<()> {
        let own = nix::unistd::geteuid().as_raw();
        match meta.uid() == own {
            true => Ok(()),
            false => {
                let problem = format!(
                    "belongs to user {}, and this process runs as user {own}: it would hold what the clusters hold, so it has to \
                     belong to this one",
                    meta.uid()
                );
                refuse(path, &problem)
            }
        }
    }

    fn refuse(path: &Path, problem: &str) -> io::Result<()> {
        Err(refused(path, problem))
    }

    fn refused(path: &Path, problem: &str) -> io::Error {
        io::Error::new(io::ErrorKind::PermissionDenied, format!("{} {problem}", path.display()))
    }
}
