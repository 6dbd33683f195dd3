//! `skopos testserver`: a Kubernetes API server in memory, for trying things out.
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use skopos_console::error::{CliError, start_error};
use skopos_console::human;
use skopos_console::pace::Pace;
use skopos_testserver::TestServer;
use tempfile::NamedTempFile;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::args::TestserverArgs;
use crate::world::World;

/// Interval between batches of changes.
const TICK: Duration = Duration::from_millis(20);

/// Serves until stopped.
pub(crate) async fn run(args: TestserverArgs, stop: CancellationToken) -> Result<(), CliError> {
    let builder = TestServer::builder().tls(args.tls).port(args.port).workloads(args.workloads);
    // Over TLS a page cannot reach this server under a host name of its own, for which it would need a certificate.
    let builder = builder.only_local_hosts(!args.tls);
    let server = builder.start().await.map_err(start_error)?;
    let world = World::with_pods(&server, args.objects)?;
    let kubeconfig = Kubeconfig::write(args.kubeconfig_out, &server)?;
    introduce(&server, kubeconfig.path(), args.objects);
    stop.run_until_cancelled(churn(&server, world, args.churn)).await;
    server.stop().await;
    Ok(())
}

/// The file for kubectl. A temporary one is removed with the server.
#[derive(Debug)]
enum Kubeconfig {
    Asked(PathBuf),
    Temporary(NamedTempFile),
}

impl Kubeconfig {
    fn write(asked: Option<PathBuf>, server: &TestServer) -> Result<Self, CliError> {
        match asked {
            Some(path) => {
                write_private(&path, &server.kubeconfig()).map_err(|error| not_written(&path, &error))?;
                Ok(Self::Asked(path))
            }
            None => {
                let folder = std::env::temp_dir();
                let file = private_file(
                    &folder,
                    &format!("skopos-testserver-{}-", server.port()),
                    &server.kubeconfig(),
                );
                file.map(Self::Temporary).map_err(|error| not_written(&folder, &error))
            }
        }
    }

    fn path(&self) -> &Path {
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
    private_file(folder, ".skopos-testserver-", text)?.persist(path).map(drop).map_err(|error| error.error)
}

/// Makes a new file with an unpredictable name and mode 0600. It is removed when it is dropped.
fn private_file(folder: &Path, prefix: &str, text: &str) -> io::Result<NamedTempFile> {
    let mut file = tempfile::Builder::new().prefix(prefix).suffix(".yaml").tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    Ok(file)
}

/// Prints what runs and the next steps. A script may close its end once it has read what it needs: the server runs on.
fn introduce(server: &TestServer, kubeconfig: &Path, objects: u32) {
    let kubeconfig = kubeconfig.display();
    let text = format!(
        "serving {} at {}\n\
         kubeconfig: {kubeconfig}\n\
         try: kubectl --kubeconfig {kubeconfig} get pods -A\n     \
         skopos watch pods -A --kubeconfig {kubeconfig}\n\
         Ctrl-C ends it; nothing is kept.\n",
        human::count(objects.into(), "pod"),
        server.url()
    );
    let mut out = io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Makes changes at the given rate. Never returns.
async fn churn(server: &TestServer, mut world: World, per_second: u32) {
    let mut pace = Pace::new(per_second);
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut last = Instant::now();
    loop {
        ticks.tick().await;
        let passed = last.elapsed();
        last = Instant::now();
        for _ in 0..pace.due(passed) {
            world.change(server);
        }
    }
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
