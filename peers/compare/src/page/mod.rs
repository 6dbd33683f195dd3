//! Writes `docs/evidence/comparison.md` from the results.

mod controllers;
mod plots;
mod tables;

use anyhow::{Context as _, Result};

use crate::programs;
use crate::results::{self, ControllerResults, FaultResults, SpeedResults};

/// The page's text; tables and figures are put in where it says `{{...}}`.
const TEMPLATE: &str = include_str!("template.md");

/// Writes the page and its plots.
pub(crate) fn write() -> Result<()> {
    let folder = results::folder();
    let faults: FaultResults = results::read(&folder.join("faults.json"))?;
    let speed: SpeedResults = results::read(&folder.join("speed.json"))?;
    let acted: ControllerResults = results::read(&folder.join("controllers.json"))?;
    let machine = &faults.machine;
    let parts = [
        (
            "machine",
            format!(
                "{} cores ({}), {} GiB of memory, {}",
                machine.cores, machine.processor, machine.memory_gib, machine.kernel
            ),
        ),
        ("go", machine.go.clone()),
        ("count", faults.faults.len().to_string()),
        ("cap", format!("{:.0}", faults.cap_s)),
        ("times", tables::times(&faults)),
        ("harm", tables::harm(&faults)),
        ("starts", tables::starts(&faults)),
        ("speed", tables::speed(&speed)),
        ("objects", acted.objects.to_string()),
        ("events", acted.events.to_string()),
        ("workers", acted.workers.to_string()),
        ("down", format!("{:.0}", acted.down_s)),
        ("patience", format!("{:.0}", acted.patience_s)),
        ("states", acted.rows.first().map_or(0, |row| row.states).to_string()),
        ("controllers", controllers::table(&acted)),
    ];
    let page = parts
        .iter()
        .fold(TEMPLATE.to_owned(), |page, (name, part)| page.replace(&format!("{{{{{name}}}}}"), part));
    let file = programs::repository().join("docs/evidence/comparison.md");
    std::fs::write(&file, page).with_context(|| format!("writing {}", file.display()))?;
    plots::notice(&faults, &folder.join("notice.svg"))?;
    plots::recover(&faults, &folder.join("recover.svg"))?;
    plots::speed(&speed, &folder.join("speed.svg"))
}
