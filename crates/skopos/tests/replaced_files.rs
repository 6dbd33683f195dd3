//! Files that are replaced as a whole, beside files that other users may have prepared.
#![cfg(unix)]

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use skopos::checkpoint::{replace_file, replace_file_unsynced};

#[test]
fn replaces_links_without_following() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for is_synced in [true, false] {
        let replace = |path: PathBuf| {
            let write = |file: &mut dyn Write| file.write_all(b"new");
            if is_synced { replace_file(path, write) } else { replace_file_unsynced(path, write) }
        };
        fs::write(path("victim"), "precious").unwrap();
        let _ = fs::remove_file(path("file"));
        symlink(path("victim"), path("file.new")).unwrap();
        symlink(path("victim"), path("file")).unwrap();
        replace(path("file")).unwrap();
        assert_eq!(fs::read(path("victim")).unwrap(), b"precious");
        let meta = fs::symlink_metadata(path("file")).unwrap();
        assert!(meta.is_file() && meta.permissions().mode() & 0o777 == 0o600, "{meta:?}");
        assert_eq!(fs::read(path("file")).unwrap(), b"new");
        assert!(!path("file.new").exists());
    }
}

#[test]
fn replaced_file_sheds_prepared_permissions() {
    let folder = tempfile::tempdir().unwrap();
    let (beside, file) = (folder.path().join("file.new"), folder.path().join("file"));
    fs::write(&beside, "").unwrap();
    fs::set_permissions(&beside, fs::Permissions::from_mode(0o666)).unwrap();
    let held = File::open(&beside).unwrap();
    replace_file(&file, |file| file.write_all(b"secret")).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(held.metadata().unwrap().len(), 0, "what was open before is another file");
}
