//! The same seeds in another process. One seed must give one history, whatever the process' hash keys and speed; the other process
//! pauses briefly now and then.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, ensure};

use super::Volume;

/// The other process, which runs the first mixed seeds while the gate runs them all.
pub(super) struct Again(Option<Child>);

impl Again {
    pub(super) fn start(volume: &Volume) -> anyhow::Result<Self> {
        let seeds = volume.twice.min(volume.mixed);
        if seeds == 0 {
            return Ok(Self(None));
        }
        let mut command = Command::new(std::env::current_exe().context("cannot find myself")?);
        command.args(["digests", "--seed", &volume.first.to_string(), "--seeds", &seeds.to_string()]);
        let child = command.stdout(Stdio::piped()).spawn().context("cannot start another process")?;
        Ok(Self(Some(child)))
    }

    /// Returns the seeds whose digests differ.
    pub(super) fn compare(self, digests: &BTreeMap<u64, u64>) -> anyhow::Result<Vec<u64>> {
        let Some(child) = self.0 else { return Ok(Vec::new()) };
        let output = child.wait_with_output().context("the other process is gone")?;
        ensure!(output.status.success(), "the other process ended with {}", output.status);
        let text = String::from_utf8(output.stdout)?;
        let mut differing = Vec::new();
        for line in text.lines() {
            let (seed, digest) = line.split_once(' ').with_context(|| format!("not a digest: {line:?}"))?;
            let (seed, digest) = (seed.parse()?, u64::from_str_radix(digest, 16)?);
            // A gate that was stopped early has not run all of them.
            if digests.get(&seed).is_some_and(|known| *known != digest) {
                differing.push(seed);
            }
        }
        Ok(differing)
    }
}
