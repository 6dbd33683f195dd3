//! One Lease, and two candidates for it: client-go's, in a process of its own, and ours. They take turns, each leaving when the other waits, and
//! no term of one may begin before the other's has ended.

use std::process::Stdio;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use kube::config::{KubeConfigOptions, Kubeconfig};
use skopos_lease::{Candidate, Election, LeaseOptions, Status};
use skopos_testserver::TestServer;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::client::Who;
use crate::programs;

#[derive(Args)]
pub(crate) struct Options {
    /// How often the Lease changes hands.
    #[arg(long, default_value_t = 1_000)]
    handovers: usize,
    /// Build client-go's program first.
    #[arg(long)]
    build: bool,
}

const LEASE: &str = "taking-turns";
/// Longer than a Lease lasts: a hand-over that needs it is told as one that took too long.
const PLENTY: Duration = Duration::from_secs(40);
/// How long a clean hand-over may take.
const CLEAN: Duration = Duration::from_secs(1);

/// Hands over as often as asked. An error says which terms overlapped, or which hand-over was slow.
pub(crate) async fn run(options: &Options) -> Result<()> {
    if options.build {
        programs::build_client_go()?;
    }
    let server = TestServer::builder().tls(true).start().await?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("kubeconfig");
    std::fs::write(&file, server.kubeconfig())?;
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig())?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let mut theirs = ClientGo::start(&file)?;
    let (mut to_them, mut to_us) = (Vec::new(), Vec::new());
    let mut ours = Ours::stand(&config)?;
    ours.leads().await?;
    for _ in 0..options.handovers.div_ceil(2) {
        theirs.tell("stand").await?;
        // It has no word for waiting: it looks at the Lease every 0.1 s.
        tokio::time::sleep(Duration::from_millis(120)).await;
        let ended = ours.leave().await?;
        to_them.push(between(ended, theirs.says("leads").await?)?);
        ours = Ours::stand(&config)?;
        ours.waits().await?;
        theirs.tell("leave").await?;
        let ended = theirs.says("ends").await?;
        to_us.push(between(ended, ours.leads().await?)?);
    }
    ours.leave().await?;
    theirs.child.kill().await?;
    server.stop().await;
    let (them, us) = (report("client-go", to_them)?, report("ours", to_us)?);
    ensure!(us < CLEAN && them < CLEAN, "a hand-over took longer than {CLEAN:?}");
    Ok(())
}

/// A moment of the machine's clock, in nanoseconds: both processes read the same one.
type Moment = u128;

fn now() -> Result<Moment> {
    Ok(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_nanos())
}

fn between(ended: Moment, began: Moment) -> Result<Duration> {
    let gap =
        began.checked_sub(ended).with_context(|| format!("two lead: from {began} on, and until {ended}"))?;
    Ok(Duration::from_nanos(u64::try_from(gap)?))
}

/// Prints how long hand-overs took. Returns the longest.
fn report(who: &str, mut times: Vec<Duration>) -> Result<Duration> {
    times.sort();
    let longest = *times.last().context("no hand-over")?;
    println!("{} hand-overs to {who}: p50 {:.1?}, max {longest:.1?}", times.len(), times[times.len() / 2]);
    Ok(longest)
}

/// Our candidate, from its start to its end.
struct Ours {
    candidate: Candidate,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Ours {
    fn stand(config: &kube::Config) -> Result<Self> {
        let mut options = LeaseOptions::new("default", LEASE);
        options.acquire_on_create = true;
        let election = Election::from_config(config.clone(), options)?;
        let (candidate, stop, mut tasks) = (election.candidate(), CancellationToken::new(), JoinSet::new());
        tasks.spawn(election.run(stop.clone()));
        Ok(Self { candidate, stop, tasks })
    }

    async fn waits(&mut self) -> Result<()> {
        let waiting = async {
            while !matches!(self.candidate.status(), Status::Standby { holder: Some(_) }) {
                self.candidate.changed().await;
            }
        };
        timeout(PLENTY, waiting).await.with_context(|| format!("{:?}", self.candidate.status()))
    }

    async fn leads(&mut self) -> Result<Moment> {
        timeout(PLENTY, self.candidate.term()).await.context("ours does not lead")??;
        now()
    }

    /// Ends its work and then its term. Returns when its work ended.
    async fn leave(mut self) -> Result<Moment> {
        let term = self.candidate.term().await?;
        self.stop.cancel();
        let _ = term.run(std::future::pending::<()>()).await;
        let ended = now()?;
        while let Some(done) = self.tasks.join_next().await {
            done?;
        }
        Ok(ended)
    }
}

/// client-go's candidate.
struct ClientGo {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl ClientGo {
    fn start(kubeconfig: &std::path::Path) -> Result<Self> {
        let mut child = Command::new(programs::of(Who::ClientGo)?)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["--lease", LEASE, "--encoding", "json"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdin = child.stdin.take().context("no standard input")?;
        let lines = BufReader::new(child.stdout.take().context("no standard output")?).lines();
        Ok(Self { child, stdin, lines })
    }

    async fn tell(&mut self, word: &str) -> Result<()> {
        Ok(self.stdin.write_all(format!("{word}\n").as_bytes()).await?)
    }

    async fn says(&mut self, word: &str) -> Result<Moment> {
        let line = timeout(PLENTY, self.lines.next_line())
            .await
            .with_context(|| format!("client-go never {word}"))??;
        let line = line.context("client-go ended")?;
        match line.split_once(' ') {
            Some((said, moment)) if said == word => Ok(moment.parse()?),
            _ => bail!("client-go says {line:?}, and not {word}"),
        }
    }
}
