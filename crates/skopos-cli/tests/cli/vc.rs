//! `skopos vc` against a host whose virtual clusters' API servers come and go with their pods.
use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use serde_json::Value;
use skopos_testserver::{TestServer, VirtualCluster, VirtualClusters};
use tokio::runtime::Runtime;

use super::support::{Running, left, skopos, text, utf8};

/// A host in this process, and its kubeconfig.
struct Host {
    runtime: Runtime,
    virtuals: VirtualClusters,
    dir: tempfile::TempDir,
}

impl Host {
    fn with(clusters: &[VirtualCluster]) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let virtuals = runtime.block_on(async {
            let host = TestServer::builder().workloads(true).start().await.expect("a host");
            let virtuals = VirtualClusters::on(host).export_addresses().start();
            for cluster in clusters {
                virtuals.create(cluster).expect("created");
                virtuals.wait_up(cluster.namespace(), cluster.name()).await.expect("up");
            }
            virtuals
        });
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("host"), virtuals.host().kubeconfig()).expect("written");
        Self { runtime, virtuals, dir }
    }

    fn shop() -> Self {
        Self::with(&[VirtualCluster::new("shop")])
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, args: &[&str]) -> std::process::Command {
        let mut command = skopos();
        // An empty PATH excludes any helm that is installed here.
        command.args(["vc", args[0], "--kubeconfig"]).arg(self.file("host")).args(&args[1..]);
        command.env("PATH", self.dir.path());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the binary runs")
    }

    /// Returns its standard output; it must succeed.
    fn good(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Returns its line on standard error; it must fail.
    fn bad(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "");
        let stderr = text(&output.stderr);
        stderr.lines().find(|line| line.starts_with("error: ")).expect("a line").to_owned()
    }

    fn wait_up(&self, namespace: &str, name: &str) {
        self.runtime.block_on(self.virtuals.wait_up(namespace, name)).expect("up");
    }

    fn wait_down(&self, namespace: &str, name: &str) {
        self.runtime.block_on(self.virtuals.wait_down(namespace, name)).expect("down");
    }
}

const NS: &str = "vcluster-shop";

#[test]
fn a_life_from_creation_to_deletion() {
    let host = Host::with(&[]);
    let manifests = VirtualCluster::new("shop").manifests();
    let documents: Vec<String> = manifests.iter().map(|object| format!("---\n{object}\n")).collect();
    std::fs::write(host.file("shop.yaml"), documents.concat()).expect("written");
    let file = host.file("shop.yaml");
    let created = host.good(&["create", "shop", "--manifests", utf8(&file)]);
    assert_eq!(created, "virtual cluster shop in namespace vcluster-shop created: it is Running\n");

    let list = host.good(&["list"]);
    let lines: Vec<Vec<&str>> = list.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["NAME", "NAMESPACE", "STATUS", "VERSION", "AGE"]);
    assert_eq!(lines[1][..4], ["shop", "vcluster-shop", "Running", "0.30.0"]);

    let paused = host.run(&["pause", "shop"]);
    assert_eq!(
        text(&paused.stdout),
        "virtual cluster shop in namespace vcluster-shop paused: it is Paused\n"
    );
    let steps = text(&paused.stderr);
    assert!(steps.contains("# StatefulSet shop scaled to zero, a resume brings back 1\n"), "{steps}");
    host.wait_down(NS, "shop");
    let json: Value = serde_json::from_str(&host.good(&["ls", "-n", NS, "-o", "json"])).expect("JSON");
    assert_eq!(json[0]["status"], "Paused");
    assert_eq!(json[0]["replicas"], 0);

    let resumed: Value =
        serde_json::from_str(&host.good(&["resume", "shop", "--wait", "-o", "json"])).expect("JSON");
    assert_eq!((&resumed["status"], &resumed["readyReplicas"]), (&"Running".into(), &1.into()));
    host.wait_up(NS, "shop");

    assert_eq!(host.good(&["delete", "shop"]), "virtual cluster shop deleted\n");
    assert_eq!(host.good(&["list", "--no-headers"]), "");
    assert_eq!(
        host.bad(&["delete", "shop"]),
        "error: there is no virtual cluster shop: `skopos vc list` shows those that there are"
    );
    assert_eq!(host.good(&["delete", "shop", "--ignore-not-found"]), "");
}

#[test]
fn vc_connect_reaches_a_virtual_cluster_through_its_host() {
    let host = Host::shop();
    let kubeconfig = host.file("connected");
    let args = ["connect", "shop", "--kubeconfig-out", utf8(&kubeconfig)];
    let mut connected = Running::start(&mut host.command(&args));
    connected.line(|line| line == format!("kubeconfig: {}", kubeconfig.display()));
    let watch = Running::start(skopos().args(["watch", "namespaces", "--kubeconfig", utf8(&kubeconfig)]));
    watch.line(|line| line.contains("kube-system"));
    // Another pod takes over, and the open watch continues.
    let uid = || {
        let pod = host.virtuals.host().get("pods", Some(NS), "shop-0").ok()?;
        pod["metadata"]["uid"].as_str().map(str::to_owned)
    };
    let before = uid();
    host.runtime.block_on(async {
        host.virtuals.host().delete("pods", Some(NS), "shop-0").expect("deleted");
        while uid().is_none_or(|now| Some(now) == before) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    host.wait_up(NS, "shop");
    let later = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "later"}});
    host.virtuals.server(NS, "shop").expect("its server").create(later).expect("created");
    watch.line(|line| line.contains("later"));
    connected.signal("INT");
    assert!(connected.wait(super::support::TIMEOUT).success());
}

#[test]
fn vc_connect_says_why_connection_was_closed() {
    let host = Host::shop();
    host.good(&["pause", "shop"]);
    host.wait_down(NS, "shop");
    let nothing_listens = serde_json::json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": NS, "name": "silent", "labels": {"app": "vcluster", "release": "shop"}},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    });
    host.virtuals.host().create(nothing_listens).expect("created");
    let connected = Running::start(&mut host.command(&["connect", "shop"]));
    let line = connected.line(|line| line.contains(" is at https://127.0.0.1:"));
    let address = line.rsplit("https://").next().expect("an address").trim();
    let _stream = std::net::TcpStream::connect(address).expect("connected");
    connected.error_line(|line| {
        line.starts_with("# a connection was closed: ")
            && line.contains("error forwarding port 8443 to pod silent")
    });
}

#[test]
fn virtual_clusters_are_served_outside_of_their_host() {
    let host = Host::shop();
    let (config, kubeconfig) = (host.file("gateway.yaml"), host.file("gateway"));
    let text_of_config = format!(
        "listen: {{address: '127.0.0.1:0'}}\nauthorization: {{loopback: Trusted}}\nclusters:\n  vclusters: [{{host: {{name: host, kubeconfig: '{}'}}}}]\n",
        host.file("host").display()
    );
    std::fs::write(&config, text_of_config).expect("written");
    let gateway = Running::start(skopos().args(["serve", "--config", utf8(&config)]));
    let line = gateway.line(|line| line.starts_with("serving at "));
    let url = line.trim_start_matches("serving at ").trim();
    let server = format!("{url}/clusters/shop.vcluster-shop");
    let text_of_kubeconfig = format!(
        "current-context: a\ncontexts: [{{name: a, context: {{cluster: a}}}}]\nclusters: [{{name: a, cluster: {{server: '{server}'}}}}]\n"
    );
    std::fs::write(&kubeconfig, text_of_kubeconfig).expect("written");
    let watch = Running::start(skopos().args(["watch", "namespaces", "--kubeconfig", utf8(&kubeconfig)]));
    watch.line(|line| line.contains("kube-system"));
    let status = || text(&super::support::run(&["status", "--server", url]).stdout);
    let shop = |table: &str| {
        table.lines().any(|line| line.starts_with("shop.vcluster-shop") && line.contains("live"))
    };
    assert!(std::iter::repeat_with(status).take(100).any(|table| shop(&table)), "{}", status());
}

#[test]
fn vc_connect_runs_a_command_and_ends_with_it() {
    let host = Host::shop();
    let script = "test -s \"$KUBECONFIG\" && echo \"$KUBECONFIG\"; exit 7";
    let output = host.run(&["connect", "shop", "--", "/bin/sh", "-c", script]);
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    let kubeconfig = PathBuf::from(text(&output.stdout).trim());
    assert!(kubeconfig.is_absolute() && !kubeconfig.exists(), "{}", kubeconfig.display());
    host.good(&["pause", "shop"]);
    host.wait_down(NS, "shop");
    let error = host.bad(&["connect", "shop", "--", "/bin/true"]);
    assert!(error.contains("pod with app=vcluster,release=shop in namespace vcluster-shop"), "{error}");
}

#[test]
fn vc_kubeconfig_reaches_virtual_cluster() {
    let host = Host::shop();
    let kubeconfig = host.file("shop");
    std::fs::write(&kubeconfig, host.good(&["kubeconfig", "shop"])).expect("written");
    let watch = Running::start(skopos().args([
        "watch",
        "namespaces",
        "-o",
        "name",
        "--kubeconfig",
        utf8(&kubeconfig),
    ]));
    watch.line(|line| line == "namespace/default");
    let forwarded = host.good(&["kubeconfig", "shop", "--server", "https://localhost:9"]);
    assert!(forwarded.contains(r#""server":"https://localhost:9""#), "{forwarded}");
}

#[test]
fn closed_stderr_does_not_abort_pause() {
    let host = Host::shop();
    let paused = host.command(&["pause", "shop"]).stderr(left()).output().expect("the binary runs");
    assert!(paused.status.success(), "{}", paused.status);
    assert!(text(&paused.stdout).ends_with("paused: it is Paused\n"), "{}", text(&paused.stdout));
    let nobody = host.command(&["pause", "nobody"]).stderr(left()).output().expect("the binary runs");
    assert_eq!(nobody.status.code(), Some(1), "a failure as any other");
}

#[test]
fn vc_errors_say_what_to_do() {
    let host = Host::with(&[VirtualCluster::new("shop"), VirtualCluster::new("other")]);
    let cases: [(&[&str], &str); 4] = [
        (&["pause", "nobody"], "error: there is no virtual cluster nobody: `skopos vc list` shows"),
        (&["create", "shop", "--manifests", "/nonexistent"], "error: /nonexistent cannot be read"),
        (&["create", "new"], "error: helm was not found in PATH: install helm, or give rendered manifests"),
        (
            &["kubeconfig", "shop", "-n", "default"],
            "error: there is no virtual cluster shop in namespace default",
        ),
    ];
    for (args, line) in cases {
        let said = host.bad(args);
        assert!(said.starts_with(line), "{said}");
    }
    let wrong = host.run(&["pause", "Not_A_Name"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong.stderr));
    host.virtuals.scale(NS, "shop", 0).expect("scaled");
    host.wait_down(NS, "shop");
    let scaled = host.bad(&["resume", "shop"]);
    assert!(scaled.contains("is scaled down but not paused: pause it first"), "{scaled}");
}

#[test]
fn unreachable_host_times_out_with_advice() {
    let host = Host::shop();
    host.runtime.block_on(host.virtuals.host().pause());
    let said = host.bad(&["list", "--timeout", "2s"]);
    assert!(
        said.contains("not done within 2s: still GET")
            && said.contains("check the address, or allow more time with --timeout"),
        "{said}"
    );
}

#[test]
fn ctrl_c_says_how_to_go_on() {
    let host = Host::shop();
    let hold = |finalizers: Value| {
        let server = host.virtuals.host();
        let changed = (0..100).any(|_| {
            let mut pod = server.get("pods", Some(NS), "shop-0").expect("a pod");
            pod["metadata"]["finalizers"] = finalizers.clone();
            server.update(pod).is_ok()
        });
        assert!(changed);
    };
    hold(serde_json::json!(["example.com/stays"]));
    let mut pause = Running::start(&mut host.command(&["pause", "shop", "--context", "skopos-test"]));
    pause.error_line(|line| line.starts_with("# waiting for 1 pods"));
    pause.signal("INT");
    pause.error_line(|line| {
        line == "# stopped; what is done so far stays. Run the same command again to continue from here"
    });
    assert_eq!(pause.wait(Duration::from_secs(10)).code(), Some(130));
    hold(serde_json::json!([]));
    host.good(&["pause", "shop"]);
}

/// Writes a program in place of helm. It records its arguments and fails.
fn fake_helm(host: &Host) {
    let (helm, here) = (host.file("helm"), host.dir.path().display());
    let text = format!(
        "#!/bin/sh\nif [ \"$1\" = version ]; then echo v3.18.4; exit 0; fi\n\
         echo \"$@\" > '{here}/arguments'\nexport -p > '{here}/environment'\nexit 1\n"
    );
    // Another process writes the program: what this one has open for writing, a concurrent fork has open for a moment more, and then it
    // cannot be run.
    std::fs::write(host.file("draft"), text).expect("written");
    let install =
        std::process::Command::new("install").arg("-m755").arg(host.file("draft")).arg(helm).status();
    assert!(install.expect("install runs").success());
}

#[test]
fn helm_uses_same_cluster_as_vc_command() {
    let host = Host::with(&[]);
    fake_helm(&host);
    let mut create = host.command(&["create", "shop"]);
    create.env("HELM_KUBECONTEXT", "elsewhere").env("HELM_KUBEAPISERVER", "https://elsewhere");
    let output = create.env("HELM_DEBUG", "true").output().expect("the binary runs");
    assert!(text(&output.stderr).contains("helm upgrade failed (exit code 1)"), "{}", text(&output.stderr));
    let read = |name: &str| std::fs::read_to_string(host.file(name)).expect("helm was called");
    let (arguments, environment) = (read("arguments"), read("environment"));
    assert!(arguments.contains("--kube-context skopos-test"), "{arguments}");
    assert!(environment.contains("HELM_DEBUG") && !environment.contains("HELM_KUBE"), "{environment}");
}
