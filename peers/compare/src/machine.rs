//! What the measurements were made on.

use std::fs;
use std::process::Command;
use std::thread::available_parallelism;

use serde::{Deserialize, Serialize};

/// A machine, without its name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) processor: String,
    pub(crate) memory_gib: u64,
    pub(crate) kernel: String,
    pub(crate) go: String,
}

impl Machine {
    pub(crate) fn this() -> Self {
        let field = |file: &str, name: &str| {
            let text = fs::read_to_string(file).unwrap_or_default();
            let row =
                text.lines().find_map(|row| row.strip_prefix(name)?.split_once(':').map(|(_, value)| value));
            row.unwrap_or_default().trim().to_owned()
        };
        let memory: u64 = field("/proc/meminfo", "MemTotal").trim_end_matches(" kB").parse().unwrap_or(0);
        Self {
            cores: available_parallelism().map_or(0, usize::from),
            processor: field("/proc/cpuinfo", "model name"),
            memory_gib: memory.div_ceil(1 << 20),
            kernel: first_word("/proc/sys/kernel/osrelease"),
            go: go_version(),
        }
    }
}

/// Of a kernel's release, the part that says which kernel it is.
fn first_word(file: &str) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let release = text.trim().split('-').next().unwrap_or_default();
    format!("Linux {release}")
}

fn go_version() -> String {
    let output = Command::new("go").args(["env", "GOVERSION"]).output();
    output.map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
