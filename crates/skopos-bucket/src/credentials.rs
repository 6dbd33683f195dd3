//! Credentials for requests to a bucket.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredential};
use object_store::{CredentialProvider, Error};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt as _;
use tokio::time::Instant;

/// Files with the keys of a bucket, each with one word; read again when they change.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BucketCredentials {
    /// File with the access key's ID.
    #[schemars(with = "String")]
    pub access_key: PathBuf,
    /// File with the secret access key.
    #[schemars(with = "String")]
    pub secret_key: PathBuf,
    /// File with the session token, for temporary keys.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub session_token: Option<PathBuf>,
}

/// The credentials in the environment of the process, or the places that it names for them.
pub(crate) struct Environment<'a> {
    get: &'a (dyn Fn(&str) -> Option<String> + Sync),
}

/// Keys in files, which are read again.
pub(crate) struct FileCredentials {
    files: BucketCredentials,
    /// The keys, and when they were read.
    latest: Mutex<Option<(Instant, Arc<AwsCredential>)>>,
}

/// The interval at which the key files are read again, so that new keys are used soon.
const REREAD_INTERVAL: Duration = Duration::from_secs(10);

/// The maximum size of a key file. The longest session tokens have some two thousand bytes.
const MAX_BYTES: u64 = 16 << 10;

/// The environment variables with credentials. All others are meant for other programs.
const CREDENTIALS: [&str; 9] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
];

impl<'a> Environment<'a> {
    pub(crate) fn new(get: &'a (dyn Fn(&str) -> Option<String> + Sync)) -> Self {
        Self { get }
    }

    /// Adds the credentials of the environment to `builder`. If there are none, the machine's own credentials service is used.
    pub(crate) fn complete(&self, mut builder: AmazonS3Builder) -> AmazonS3Builder {
        for name in CREDENTIALS {
            let key = name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>();
            if let (Ok(key), Some(value)) = (key, self.value(name)) {
                builder = builder.with_config(key, value);
            }
        }
        builder
    }

    pub(crate) fn region(&self) -> Option<String> {
        self.value("AWS_REGION").or_else(|| self.value("AWS_DEFAULT_REGION"))
    }

    fn value(&self, name: &str) -> Option<String> {
        (self.get)(name).filter(|value| !value.is_empty())
    }
}

impl FileCredentials {
    pub(crate) fn new(files: &BucketCredentials) -> Self {
        Self { files: files.clone(), latest: Mutex::default() }
    }

    async fn read(&self) -> Result<AwsCredential, Error> {
        Ok(AwsCredential {
            key_id: read_key(&self.files.access_key).await?,
            secret_key: read_key(&self.files.secret_key).await?,
            token: match &self.files.session_token {
                Some(path) => Some(read_key(path).await?),
                None => None,
            },
        })
    }
}

#[async_trait::async_trait]
impl CredentialProvider for FileCredentials {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        if let Some((at, latest)) = &*self.latest.lock()
            && at.elapsed() < REREAD_INTERVAL
        {
            return Ok(latest.clone());
        }
        let read = Arc::new(self.read().await?);
        *self.latest.lock() = Some((Instant::now(), read.clone()));
        Ok(read)
    }
}

impl fmt::Debug for FileCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileCredentials({})", self.files.access_key.display())
    }
}

/// Reads the content of a file without the line end. Errors do not contain it.
async fn read_key(path: &Path) -> Result<String, Error> {
    let unusable = |why: String| Error::Generic {
        store: "credentials",
        source: format!("{}: {why}", PathBuf::from(path).display()).into(),
    };
    let file = tokio::fs::File::open(path).await.map_err(|error| unusable(error.to_string()))?;
    let mut bytes = Vec::new();
    let reading = file.take(MAX_BYTES).read_to_end(&mut bytes).await;
    reading.map_err(|error| unusable(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| unusable("it is no text".into()))?;
    match text.trim() {
        "" => Err(unusable("it is empty".into())),
        read_key if read_key.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(read_key.to_owned()),
        _ => Err(unusable("it has more than one word".into())),
    }
}
