//! A separate kernel for a test: user-mode Linux, an ordinary program, started on this machine's files.
//!
//! A pair of tests works together. The inner one is `#[ignore]`d, begins with [`is_inside`] and does the work; the outer one names it to
//! [`run_inside`], which boots the kernel, runs the same test executable there as root, and passes if the inner one does.
#![allow(dead_code, unreachable_pub, reason = "each test file is a crate that uses some of it")]

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::Command;
use tokio::time::timeout;

use super::servers::is_installed;

/// Set inside, to the folder from which modules are loaded.
const INSIDE: &str = "SKOPOS_INSIDE_UML";
/// Folder of the kernel modules in Debian's package.
const MODULES: &str = "/usr/lib/uml/modules";
/// A boot takes about three seconds.
const TIME_LIMIT: Duration = Duration::from_secs(240);

/// Line of the console where the first program cannot start: the CPU has registers, such as those of AMX, that do not fit the
/// kernel's buffer (Linux 6.1).
const LARGE_REGISTERS: &str = "ptrace set fp regs failed, errno = 14";

/// All processes of one kernel.
struct Group(Pid);

impl Drop for Group {
    fn drop(&mut self) {
        // It has ended, unless the test failed.
        let _ = killpg(self.0, Signal::SIGKILL);
    }
}

/// Returns whether this process runs inside: an inner test changes its kernel, and must not do that to the machine's.
pub fn is_inside() -> bool {
    let is_inside = std::env::var_os(INSIDE).is_some();
    if !is_inside {
        eprintln!("SKIPPED: it runs only inside user-mode Linux, by the test that names it");
    }
    is_inside
}

/// Runs a test of this executable inside, with these kernel modules. If the programs for it are missing, or cannot run on this
/// CPU, it prints this.
pub async fn run_inside(test: &str, modules: &[&str]) {
    if !is_installed("linux.uml", "user-mode-linux") || !is_installed("ipvsadm", "ipvsadm") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    prepare(folder.path(), test, modules);
    let console = std::fs::File::create(folder.path().join("console")).expect("a console");
    let mut command = Command::new("linux.uml");
    command
        .args([
            "mem=512M",
            "root=/dev/root",
            "rootfstype=hostfs",
            "rootflags=/",
            "rw",
            "con=null",
            "con0=null,fd:1",
        ])
        .args(["panic=-1", "quiet"])
        .arg(format!("uml_dir={}/", folder.path().display()))
        .arg(format!("init={}/init", folder.path().display()))
        .stdin(Stdio::null())
        .stdout(console.try_clone().expect("a console"))
        .stderr(console)
        .process_group(0);
    let mut kernel = command.spawn().expect("it starts");
    let pid = kernel.id().and_then(|pid| pid.try_into().ok()).expect("it runs");
    let _group = Group(Pid::from_raw(pid));
    let ended = timeout(TIME_LIMIT, kernel.wait()).await;
    let read = |file: &str| std::fs::read_to_string(folder.path().join(file)).unwrap_or_default();
    let (code, output, console) = (read("code"), read("output"), read("console"));
    if code.is_empty() && console.contains(LARGE_REGISTERS) {
        eprintln!(
            "SKIPPED: user-mode Linux cannot run programs on this CPU, whose registers are larger than it knows"
        );
        return;
    }
    assert!(
        code.trim() == "0" && output.contains("test result: ok. 1 passed"),
        "inside, {test} ended with code {code:?} ({ended:?})\n--- output\n{output}\n--- console\n{console}"
    );
}

/// Loads a module into the kernel, inside.
pub async fn load(module: &str) {
    let folder = std::env::var(INSIDE).expect("it is inside");
    let arguments = ["-C", "/dev/null", "-d", &folder, module];
    let status = Command::new("modprobe").args(arguments).status().await.expect("it starts");
    assert!(status.success(), "{module} is not loaded");
}

/// Writes the script that is the first process inside.
fn prepare(folder: &Path, test: &str, modules: &[&str]) {
    // modprobe expects lib/modules/VERSION.
    std::fs::create_dir(folder.join("lib")).expect("a folder");
    symlink(MODULES, folder.join("lib/modules")).expect("a link");
    let (here, program) = (std::env::current_dir(), std::env::current_exe());
    let (here, program) = (here.expect("a folder"), program.expect("a program"));
    let (folder, here, program) = (folder.display(), here.display(), program.display());
    let load: String = modules
        .iter()
        .map(|module| format!("modprobe -C /dev/null -d {folder} {module} || exit 1\n"))
        .collect();
    let script = format!(
        "#!/bin/sh\n\
         export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin {INSIDE}={folder}\n\
         mount -t proc proc /proc\n\
         mount -t sysfs sys /sys\n\
         (\n\
         exec > {folder}/output 2>&1\n\
         ip link set lo up || exit 1\n\
         {load}\
         cd '{here}'\n\
         timeout 200 '{program}' --exact '{test}' --ignored --nocapture --test-threads=1\n\
         )\n\
         echo $? > {folder}/code\n\
         echo o > /proc/sysrq-trigger\n\
         sleep 60\n"
    );
    let init = Path::new(&folder.to_string()).join("init");
    std::fs::write(&init, script).expect("a script");
    std::fs::set_permissions(&init, Permissions::from_mode(0o755)).expect("a script");
}
