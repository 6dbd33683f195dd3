//! Standard output of `skopos vc`.
use std::io::Write;

use serde_json::Value;
use skopos_console::aside;
use skopos_console::columns::align;
use skopos_console::error::CliError;
use skopos_console::human::age_since;
use skopos_vcluster::VirtualCluster;

use crate::args::Form;

/// Printer in one output form.
#[derive(Debug, Clone, Copy)]
pub(super) struct Output {
    form: Form,
}

impl Output {
    pub(super) fn new(form: Form) -> Self {
        Self { form }
    }

    /// Prints one virtual cluster after an operation on it.
    pub(super) fn done(self, cluster: &VirtualCluster, done: &str) -> Result<(), CliError> {
        let VirtualCluster { name, namespace, status, .. } = cluster;
        print(&[match self.form {
            Form::Table => format!("virtual cluster {name} in namespace {namespace} {done}: it is {status}"),
            Form::Json => json(cluster)?,
        }])
    }

    /// Prints all virtual clusters that were found.
    pub(super) fn list(self, found: &[VirtualCluster], headers: bool) -> Result<(), CliError> {
        match self.form {
            Form::Table if found.is_empty() => {
                aside::say("# no virtual clusters found: `skopos vc create NAME` creates one");
                Ok(())
            }
            Form::Table => print(&table(found, headers, jiff::Timestamp::now())),
            Form::Json => print(&[json(&found)?]),
        }
    }
}

fn table(found: &[VirtualCluster], headers: bool, now: jiff::Timestamp) -> Vec<String> {
    let titles = ["NAME", "NAMESPACE", "STATUS", "VERSION", "AGE"].map(str::to_owned);
    let rows = found.iter().map(|cluster| {
        let created = cluster.workload.created.map(|at| at.to_string());
        [
            cluster.name.clone(),
            cluster.namespace.clone(),
            cluster.status.to_string(),
            cluster.workload.version.clone().unwrap_or_else(|| "<unknown>".to_owned()),
            age_since(created.as_deref(), now),
        ]
    });
    align(&headers.then_some(titles).into_iter().chain(rows).collect::<Vec<_>>())
}

fn json(of: &impl serde::Serialize) -> Result<String, CliError> {
    let value: Value = serde_json::to_value(of).map_err(CliError::new)?;
    serde_json::to_string_pretty(&value).map_err(CliError::new)
}

fn print(lines: &[String]) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    Ok(out.flush()?)
}
