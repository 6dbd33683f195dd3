//! Keys of continue tokens: a random one of this process, or those of a file that equal replicas share.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use super::token_signer::{TokenKey, TokenSigner};
use crate::auth::Identity;
use crate::reread::reread;

/// The keys of continue tokens. Cheap to clone; all clones share the same keys.
#[derive(Clone)]
pub struct ContinueKeys {
    /// At least one. The first one signs, and all verify.
    keys: Arc<ArcSwap<Vec<TokenKey>>>,
    /// The file, if other replicas may have the same keys.
    file: Option<Arc<Path>>,
}

/// The reason why a file of keys cannot be used. It shows no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("replicas.continueKeys: {} {problem}", path.display())]
pub struct ContinueKeysError {
    path: PathBuf,
    problem: String,
}

/// The interval at which the file is read again, as that of certificates.
const RELOAD_INTERVAL: Duration = Duration::from_secs(10);

/// The minimum length of a key in bytes: that of the signatures.
const MIN_KEY_LEN: usize = 32;

/// The maximum number of keys: each page is verified with all of them.
const MAX_KEYS: usize = 16;

/// The maximum size of the file in bytes.
const MAX_FILE_LEN: u64 = 64 << 10;

const HOW_TO: &str = "write the output of `openssl rand -base64 32` into it, one key in each line";

impl ContinueKeys {
    /// Makes a random key, so that tokens are valid in this process only.
    pub fn random() -> Self {
        Self { keys: Arc::new(ArcSwap::from_pointee(vec![TokenKey::random()])), file: None }
    }

    /// Makes the key for a seed, which is not secret.
    pub(crate) fn from_seed(seed: u64) -> Self {
        Self { keys: Arc::new(ArcSwap::from_pointee(vec![TokenKey::from_seed(seed)])), file: None }
    }

    /// Reads the keys of a file. Blocks as long as the file system does.
    ///
    /// # Errors
    /// If the file cannot be read, or has no key or one that cannot be used.
    pub fn open(path: &Path) -> Result<Self, ContinueKeysError> {
        let keys = read(path)?;
        Ok(Self { keys: Arc::new(ArcSwap::from_pointee(keys)), file: Some(path.into()) })
    }

    /// Returns whether other replicas may have the same keys.
    pub(super) fn is_shared(&self) -> bool {
        self.file.is_some()
    }

    /// Returns the signer for a list of this caller: `list` names resource, clusters and selectors.
    pub(super) fn signer_for(&self, who: &Identity, list: &[&str]) -> TokenSigner {
        TokenSigner::new(&self.keys.load(), who, list)
    }

    /// Reads the file again until cancelled. If it cannot be used, the old keys stay. Ends at once without a file.
    pub(super) async fn follow(self, stop: CancellationToken) {
        let Some(file) = self.file.clone() else { return };
        let path = file.clone();
        let mut failed = None;
        reread(
            RELOAD_INTERVAL,
            &stop,
            move || read(&path),
            |found| match found {
                Ok(keys) => {
                    failed = None;
                    if **self.keys.load() != keys {
                        let count = keys.len();
                        self.keys.store(Arc::new(keys));
                        tracing::info!(path = %file.display(), count, "keys of continue tokens changed");
                    }
                }
                Err(error) if failed.as_ref() != Some(&error) => {
                    tracing::warn!(%error, "keys of continue tokens cannot be read again, the old ones stay");
                    failed = Some(error);
                }
                Err(_) => {}
            },
        )
        .await;
    }
}

impl fmt::Debug for ContinueKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContinueKeys").field("file", &self.file).finish_non_exhaustive()
    }
}

fn read(path: &Path) -> Result<Vec<TokenKey>, ContinueKeysError> {
    let unusable = |problem: String| ContinueKeysError { path: path.to_owned(), problem };
    let unreadable = |error: std::io::Error| unusable(format!("cannot be read: {error}"));
    // Opening a pipe would wait for a writer.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(unusable(format!("is no file: {HOW_TO}")));
    }
    let mut content = Zeroizing::new(Vec::new());
    File::open(path)
        .and_then(|file| file.take(MAX_FILE_LEN + 1).read_to_end(&mut content))
        .map_err(unreadable)?;
    if content.len() as u64 > MAX_FILE_LEN {
        return Err(unusable(format!("has more than {MAX_FILE_LEN} bytes: {HOW_TO}")));
    }
    parse(&content).map_err(unusable)
}

/// Parses a file with a key in each line. Errors name the line, and no part of it.
fn parse(content: &[u8]) -> Result<Vec<TokenKey>, String> {
    let mut keys = Vec::new();
    for (n, line) in content.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        let number = n + 1;
        let key = STANDARD.decode(line).map(Zeroizing::new);
        let key = key.map_err(|_| format!("has no key in base64 in line {number}: {HOW_TO}"))?;
        if key.len() < MIN_KEY_LEN {
            let len = key.len();
            return Err(format!(
                "has a key of {len} bytes in line {number}, and at least {MIN_KEY_LEN} are needed: {HOW_TO}"
            ));
        }
        keys.push(TokenKey::new(key));
    }
    match keys.len() {
        0 => Err(format!("has no key: {HOW_TO}")),
        1..=MAX_KEYS => Ok(keys),
        many => Err(format!("has {many} keys, and at most {MAX_KEYS} are used: remove the oldest ones")),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use skopos_wire::ContinueToken;

    use super::*;
    use crate::merged::token_signer::ClustersHash;

    /// Two keys of 32 bytes, in base64.
    const OLD: &str = "b2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xkb28=";
    const NEW: &str = "bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3bm4=";

    fn sign(keys: &ContinueKeys) -> String {
        let token = ContinueToken::new(42, "north/shop/web\0");
        signer(keys).sign(&token, ClustersHash::default(), Timestamp::UNIX_EPOCH)
    }

    fn signer(keys: &ContinueKeys) -> TokenSigner {
        keys.signer_for(&Identity::default(), &["v1 pods"])
    }

    fn accepts(keys: &ContinueKeys, token: &str) -> bool {
        signer(keys).verify(token, Timestamp::UNIX_EPOCH).is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn changed_key_file_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        std::fs::write(&path, format!("{OLD}\n")).unwrap();
        let keys = ContinueKeys::open(&path).unwrap();
        let stop = CancellationToken::new();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(keys.clone().follow(stop.clone()));
        let old = sign(&keys);
        // The new key signs, and tokens of the old one stay valid.
        std::fs::write(&path, format!("{NEW}\n{OLD}\n")).unwrap();
        while sign(&keys) == old {
            tokio::time::sleep(RELOAD_INTERVAL).await;
        }
        let new = sign(&keys);
        assert!(accepts(&keys, &old) && accepts(&keys, &new));
        // A broken file changes nothing.
        for broken in ["", "no base64!\n"] {
            std::fs::write(&path, broken).unwrap();
            tokio::time::sleep(RELOAD_INTERVAL * 3).await;
            assert!(accepts(&keys, &old) && sign(&keys) == new);
        }
        std::fs::remove_file(&path).unwrap();
        tokio::time::sleep(RELOAD_INTERVAL * 3).await;
        assert!(accepts(&keys, &old));
        std::fs::write(&path, NEW).unwrap();
        while accepts(&keys, &old) {
            tokio::time::sleep(RELOAD_INTERVAL).await;
        }
        assert_eq!(sign(&keys), new);
        stop.cancel();
        tasks.join_next().await.unwrap().unwrap();
    }

    #[test]
    fn unusable_key_file_is_explained_without_its_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        let problem = |content: &str| {
            std::fs::write(&path, content).unwrap();
            ContinueKeys::open(&path).unwrap_err().to_string()
        };
        for (content, wanted) in [
            ("\n  \n", "has no key: write the output of `openssl rand -base64 32`"),
            ("c4n4ry c4n4ry\n", "has no key in base64 in line 1"),
            (&*format!("\n{OLD}\nYzRuNHJ5\n"), "has a key of 6 bytes in line 3, and at least 32 are needed"),
            (&*format!("{OLD}\n").repeat(17), "has 17 keys, and at most 16 are used"),
            (&*"\n".repeat(70_000), "has more than 65536 bytes"),
        ] {
            let problem = problem(content);
            assert!(problem.contains(wanted) && problem.contains("replicas.continueKeys: /"), "{problem}");
            assert!(
                !problem.contains("c4n4ry") && !problem.contains(OLD) && !problem.contains("YzRu"),
                "{problem}"
            );
        }
        assert!(
            ContinueKeys::open(&folder.path().join("none"))
                .unwrap_err()
                .to_string()
                .contains("cannot be read")
        );
        assert!(ContinueKeys::open(folder.path()).unwrap_err().to_string().contains("is no file"));
        // As `kubectl create secret generic --from-literal` leaves it, and with the line ends of other systems.
        for content in [OLD.to_owned(), format!("{OLD}\r\n{NEW}\r\n")] {
            std::fs::write(&path, content).unwrap();
            let shown = format!("{:?}", ContinueKeys::open(&path).unwrap());
            assert!(!shown.contains(OLD) && shown.contains("keys"), "{shown}");
        }
    }
}
