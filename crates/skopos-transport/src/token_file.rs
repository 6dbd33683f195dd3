//! A bearer token in a file, by client-go's rules.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use parking_lot::Mutex;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::Instant;
use zeroize::Zeroizing;

/// A file that holds a bearer token. It is read again periodically, because tokens of pods are rotated. While it cannot be
/// read, the last token is used, or the one that is configured beside the file.
#[derive(Debug)]
pub(crate) struct TokenFile {
    path: Arc<Path>,
    /// The last token with the time when it was read, or the configured token.
    current: Mutex<(HeaderValue, Option<Instant>)>,
}

/// Age of a token after which the file is read again.
const REFRESH_INTERVAL: Duration = Duration::from_secs(50);

impl TokenFile {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// If it cannot be read and no token is configured beside it. The message shows nothing of its content.
    pub(crate) fn open(path: &str, beside: Option<&SecretString>) -> Result<Self, String> {
        let path: Arc<Path> = PathBuf::from(path).into();
        let header = match (read(&path), beside) {
            (Ok(header), _) => header,
            (Err(_), Some(token)) => bearer(token.expose_secret()).ok_or("the token cannot be sent")?,
            (Err(reason), None) => return Err(reason),
        };
        // The first request sets the time: there may be no runtime yet.
        Ok(Self { path, current: Mutex::new((header, None)) })
    }

    /// Returns the `Authorization` header. Reads the file again if that is due.
    pub(crate) async fn header(&self) -> HeaderValue {
        {
            let mut current = self.current.lock();
            if current.1.get_or_insert_with(Instant::now).elapsed() < REFRESH_INTERVAL {
                return current.0.clone();
            }
        }
        let path = self.path.clone();
        let read = tokio::task::spawn_blocking(move || read(&path)).await;
        let mut current = self.current.lock();
        current.1 = Some(Instant::now());
        match read {
            Ok(Ok(header)) => current.0 = header,
            Ok(Err(reason)) => tracing::warn!(%reason, "keeping the token that was read before"),
            Err(_) => tracing::warn!("reading the token file panicked"),
        }
        current.0.clone()
    }
}

/// Reads a token and ignores surrounding white space.
fn read(path: &Path) -> Result<HeaderValue, String> {
    let shown = path.display();
    let content = std::fs::read_to_string(path).map(Zeroizing::new);
    let content = content.map_err(|error| format!("token file {shown} cannot be read: {error}"))?;
    match content.trim() {
        "" => Err(format!("token file {shown} is empty")),
        token => bearer(token).ok_or_else(|| format!("token file {shown} holds no token")),
    }
}

fn bearer(token: &str) -> Option<HeaderValue> {
    let text = Zeroizing::new(format!("Bearer {token}"));
    let mut header = HeaderValue::from_str(&text).ok()?;
    header.set_sensitive(true);
    Some(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn token_reload_survives_missing_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let name = path.display().to_string();
        let beside = SecretString::from("beside".to_owned());
        let missing = TokenFile::open(&name, None).unwrap_err();
        assert!(missing.contains("cannot be read"), "{missing}");
        assert_eq!(TokenFile::open(&name, Some(&beside)).unwrap().header().await, "Bearer beside");
        for (bad, told) in [(" \n", "is empty"), ("a\u{7f}canary", "holds no token")] {
            std::fs::write(&path, bad).unwrap();
            let error = TokenFile::open(&name, None).unwrap_err();
            assert!(error.contains(told) && !error.contains("canary"), "{error}");
        }
        std::fs::write(&path, "\n first\r\n").unwrap();
        let file = TokenFile::open(&name, Some(&beside)).unwrap();
        assert_eq!(file.header().await, "Bearer first", "the file goes before the token beside it");
        std::fs::write(&path, "second").unwrap();
        assert_eq!(file.header().await, "Bearer first");
        tokio::time::advance(REFRESH_INTERVAL).await;
        assert_eq!(file.header().await, "Bearer second");
        std::fs::remove_file(&path).unwrap();
        tokio::time::advance(REFRESH_INTERVAL).await;
        assert_eq!(file.header().await, "Bearer second");
    }
}
