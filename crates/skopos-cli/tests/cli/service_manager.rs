//! Messages to a service manager, by the protocol of `sd_notify(3)`.
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;

use super::support::{Running, Server, TIMEOUT, skopos, utf8};

/// The socket of a service manager.
struct Manager {
    socket: UnixDatagram,
    folder: tempfile::TempDir,
}

impl Manager {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = UnixDatagram::bind(folder.path().join("notify")).expect("a socket");
        socket.set_read_timeout(Some(TIMEOUT)).expect("a time limit");
        Self { socket, folder }
    }

    /// Starts a service whose unit has a watchdog.
    fn start(&self, command: &mut Command) -> Running {
        let socket = self.folder.path().join("notify");
        Running::start(command.env("NOTIFY_SOCKET", socket).env("WATCHDOG_USEC", "100000"))
    }

    fn message(&self) -> String {
        let mut buffer = [0; 256];
        let length = self.socket.recv(&mut buffer).expect("a message in time");
        String::from_utf8_lossy(&buffer[..length]).trim_end().to_owned()
    }

    /// Checks that the service is ready, alive, and stopping after SIGTERM.
    fn sees_its_life(&self, service: &mut Running) {
        let messages: Vec<_> = std::iter::repeat_with(|| self.message()).take(3).collect();
        assert_eq!(messages, ["READY=1", "WATCHDOG=1", "WATCHDOG=1"]);
        service.signal("TERM");
        let last = std::iter::repeat_with(|| self.message()).find(|message| message != "WATCHDOG=1");
        assert_eq!(last.as_deref(), Some("STOPPING=1"));
        assert!(service.wait(TIMEOUT).success());
    }
}

#[test]
fn a_gateway_is_ready_alive_and_stopping() {
    let cluster = Server::start(&[]);
    let manager = Manager::new();
    let mut command = skopos();
    command.args(["serve", "--listen", "127.0.0.1:0", "--kubeconfig", cluster.kubeconfig()]);
    manager.sees_its_life(&mut manager.start(&mut command));
}

#[test]
fn a_notifier_is_ready_alive_and_stopping() {
    let cluster = Server::start(&[]);
    let manager = Manager::new();
    let config = manager.folder.path().join("notify.yaml");
    std::fs::write(&config, notify_config(cluster.kubeconfig(), manager.folder.path())).unwrap();
    let mut command = skopos();
    command.args(["notify", "--config", utf8(&config)]);
    manager.sees_its_life(&mut manager.start(&mut command));
}

fn notify_config(kubeconfig: &str, folder: &Path) -> String {
    format!(
        "cluster: {{kubeconfig: {kubeconfig}}}\nstate: {{folder: {}}}\nsinks:\n- name: edge\n  haproxy: {{socket: /nonexistent}}\n  \
         from: [{{endpoints: {{}}}}]\n",
        folder.join("state").display()
    )
}
