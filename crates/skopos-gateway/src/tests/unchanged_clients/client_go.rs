//! client-go's informers, if `peers/bin/client-go` is built (see docs/evidence/testing.md): lists and streamed lists, JSON and
//! protobuf, on the gateway and on the member itself.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use skopos_testserver::CloseMode;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::{sleep, timeout};

use super::history::{History, Seen};
use super::map;
use super::over_tcp::{TIMEOUT, World};

/// An informer in a process of its own, killed on drop.
struct Informer {
    name: String,
    child: Child,
    stdin: ChildStdin,
    seen: Seen,
}

fn program() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../peers/bin/client-go")
}

impl Informer {
    fn start(world: &mut World, server: &str, flags: [&str; 4]) -> Self {
        let path = world.folder().join(format!("{}-{}", flags.join(""), server.len()));
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: '{server}'}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nusers: [{{name: u, user: {{}}}}]\n"
        );
        std::fs::write(&path, kubeconfig).unwrap();
        let mut command = Command::new(program());
        command.args(["--resource", "configmaps", "--kubeconfig"]).arg(path).args(flags).kill_on_drop(true);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let seen = Seen::default();
        let told = seen.clone();
        world.spawn(async move {
            let mut lines = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                tell(&told, &serde_json::from_str(&line).unwrap());
            }
        });
        Self { name: format!("{server} {}", flags.join(" ")), child, stdin, seen }
    }

    async fn quit(mut self) {
        self.stdin.write_all(b"quit\n").await.unwrap();
        assert!(timeout(TIMEOUT, self.child.wait()).await.unwrap().unwrap().success());
    }
}

/// Handles a line of `peers/protocol`.
fn tell(seen: &Seen, line: &Value) {
    let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
    match line["type"].as_str() {
        Some("deleted") => seen.delete(&text("key")),
        Some(_) => seen.put(text("key"), text("uid"), text("rv")),
        None => {}
    }
}

async fn settled(informers: &[Informer], truth: &History) {
    let waiting = async {
        while !informers.iter().all(|informer| informer.seen.is_at(truth)) {
            sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    if timeout(TIMEOUT, waiting).await.is_err() {
        let late = informers.iter().find(|informer| !informer.seen.is_at(truth)).unwrap();
        panic!("{} does not get there: {:?} instead of {:?}", late.name, late.seen.history(), truth.state());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_go_observes_no_difference_from_member() {
    if !program().exists() {
        return;
    }
    let mut world = World::new().await;
    let mut truth = History::default();
    truth.put_object(&world.member.create(map("red", "early", 0)).unwrap());
    let servers = [world.url_through_the_gateway(), world.member.url()];
    let mut informers = Vec::new();
    for server in &servers {
        for list in ["on", "off"] {
            for encoding in ["json", "protobuf"] {
                let flags = ["--watch-list", list, "--encoding", encoding];
                informers.push(Informer::start(&mut world, server, flags));
            }
        }
    }
    settled(&informers, &truth).await;
    let mut random = fastrand::Rng::with_seed(3);
    for fault in 0..7 {
        for _ in 0..40 {
            let name = ["early", "x", "y", "z"][random.usize(..4)];
            if random.u8(..4) > 0 {
                truth.put_object(&world.member.apply(map("red", name, random.u32(..))).unwrap());
            } else if world.member.delete("configmaps", Some("red"), name).is_ok() {
                truth.delete(&format!("red/{name}"));
            }
        }
        if fault == 0 {
            // No fault has happened so far.
            settled(&informers, &truth).await;
            for informer in &informers {
                assert_eq!(informer.seen.history().differs(&truth), None, "{}", informer.name);
            }
        }
        match fault {
            0 => world.cut(),
            1 => _ = world.member.faults().kill_connections(CloseMode::Rst),
            2 => world.member.close_watches(),
            3 => world.member.restart(CloseMode::Rst).await.unwrap(),
            4 => world.cut(),
            5 => {
                world.member.pause_with(CloseMode::Rst).await;
                truth.put_object(&world.member.apply(map("red", "x", 77)).unwrap());
                world.member.compact();
                world.member.forget_events();
                world.member.resume().await.unwrap();
            }
            _ => {}
        }
    }
    settled(&informers, &truth).await;
    for informer in &informers {
        assert_eq!(informer.seen.history().invents(&truth), None, "{}", informer.name);
    }
    for informer in informers {
        informer.quit().await;
    }
    world.end().await;
}
