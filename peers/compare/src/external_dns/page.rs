//! Writes `docs/evidence/external-dns.md` from the results.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};

use super::{CaseResult, Results, cases, file};
use crate::{programs, results};

/// The page's text; what is measured is put in where it says `{{...}}`.
const TEMPLATE: &str = include_str!("template.md");

/// Writes the page.
pub(crate) fn write() -> Result<()> {
    let results: Results = results::read(&file())?;
    let machine = &results.machine;
    let parts = [
        (
            "machine",
            format!(
                "{} cores ({}), {} GiB of memory, {}",
                machine.cores, machine.processor, machine.memory_gib, machine.kernel
            ),
        ),
        ("go", machine.go.clone()),
        ("table", table(&results.cases)),
    ];
    let page = parts
        .iter()
        .fold(TEMPLATE.to_owned(), |page, (name, part)| page.replace(&format!("{{{{{name}}}}}"), part));
    let file = programs::repository().join("docs/evidence/external-dns.md");
    std::fs::write(&file, page).with_context(|| format!("writing {}", file.display()))
}

fn table(results: &[CaseResult]) -> String {
    let mut table = String::from("| row | case | Skopos | external-dns |\n|--:|---|---|---|\n");
    for case in cases::all() {
        let result = results.iter().find(|result| result.id == case.id);
        let said = |said: Option<&str>| said.unwrap_or("not run").to_owned();
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} |",
            case.row,
            case.title,
            said(result.map(|result| result.skopos.said.as_str())),
            said(result.map(|result| result.external_dns.said.as_str())),
        );
    }
    table.truncate(table.trim_end().len());
    table
}
