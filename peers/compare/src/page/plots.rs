//! The plots of the page.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::tables::Notice;
use crate::client::Who;
use crate::results::{FaultResult, FaultResults, Outcome, SpeedResult, SpeedResults};
use crate::server::Kind;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// When each client noticed each fault.
pub(super) fn notice(results: &FaultResults, file: &Path) -> Result<()> {
    let title =
        "Seconds until a fault is noticed: the user is told, or the content is right again while it lasts";
    dots(results, file, title, |fault, outcome| match Notice::of(fault, outcome) {
        Notice::Told(at) | Notice::Caught(at) => Some(at),
        Notice::Never => None,
    })
}

/// When each client had recovered.
pub(super) fn recover(results: &FaultResults, file: &Path) -> Result<()> {
    let title = "Seconds until the content is right again, from the end of the fault, or from its begin if it has no end";
    dots(results, file, title, |_, outcome| outcome.recovered_s)
}

const INK: RGBColor = RGBColor(40, 40, 40);
const FAINT: RGBColor = RGBColor(225, 225, 225);
const BAND: RGBColor = RGBColor(246, 246, 246);

/// Colours that people with any kind of sight tell apart (Okabe and Ito), and shapes besides.
fn colour(who: Who) -> RGBColor {
    match who {
        Who::ClientGo => RGBColor(0, 114, 178),
        Who::KubeRs => RGBColor(230, 159, 0),
        Who::Skopos => RGBColor(0, 138, 100),
    }
}

fn text(size: u32, horizontal: HPos) -> TextStyle<'static> {
    TextStyle::from(("sans-serif", size).into_font()).color(&INK).pos(Pos::new(horizontal, VPos::Center))
}

fn failed(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("drawing: {error}")
}

/// A row for each fault, a mark for each client, on a logarithmic scale.
fn dots(
    results: &FaultResults,
    file: &Path,
    title: &str,
    value: impl Fn(&FaultResult, &Outcome) -> Option<f64>,
) -> Result<()> {
    const LEFT: i32 = 400;
    const RIGHT: i32 = 880;
    const NEVER: i32 = 940;
    const WIDTH: u32 = 1_000;
    const TOP: i32 = 96;
    const ROW: i32 = 24;
    let bottom = TOP + ROW * results.faults.len() as i32;
    let area = SVGBackend::new(file, (WIDTH, (bottom + 56) as u32)).into_drawing_area();
    area.fill(&WHITE).map_err(failed)?;
    let x = |seconds: f64| {
        let (low, high) = (0.01f64.log10(), 1000f64.log10());
        let share = (seconds.clamp(0.01, 1000.0).log10() - low) / (high - low);
        LEFT + (share * f64::from(RIGHT - LEFT)) as i32
    };
    write(&area, title, (20, 24), text(16, HPos::Left))?;
    legend(&area, (20, 58))?;
    for (number, fault) in results.faults.iter().enumerate() {
        let y = TOP + ROW * number as i32;
        if number % 2 == 0 {
            area.draw(&Rectangle::new([(10, y), (WIDTH as i32 - 10, y + ROW)], BAND.filled()))
                .map_err(failed)?;
        }
        let label = format!("{}  ({})", fault.title, fault.row);
        write(&area, &label, (LEFT - 14, y + ROW / 2), text(13, HPos::Right))?;
    }
    for seconds in [0.01, 0.1, 1.0, 10.0, 100.0, 1000.0] {
        area.draw(&PathElement::new([(x(seconds), TOP), (x(seconds), bottom)], FAINT)).map_err(failed)?;
        let label = if seconds < 0.02 { "≤ 0.01 s".to_owned() } else { format!("{seconds} s") };
        write(&area, &label, (x(seconds), bottom + 16), text(13, HPos::Center))?;
    }
    write(&area, "not while it", (NEVER, bottom + 16), text(13, HPos::Center))?;
    write(&area, "was looked at", (NEVER, bottom + 32), text(13, HPos::Center))?;
    write(&area, "seconds, logarithmic", ((LEFT + RIGHT) / 2, bottom + 38), text(13, HPos::Center))?;
    for (number, fault) in results.faults.iter().enumerate() {
        for (lane, outcome) in fault.clients.iter().enumerate() {
            let y = TOP + ROW * number as i32 + ROW / 2 + (lane as i32 - 1) * 6;
            match value(fault, outcome) {
                Some(seconds) => mark(&area, outcome.client, (x(seconds), y), true)?,
                None => mark(&area, outcome.client, (NEVER, y), false)?,
            }
        }
    }
    area.present().map_err(failed)
}

fn legend(area: &Area<'_>, (mut x, y): (i32, i32)) -> Result<()> {
    for who in Who::ALL {
        mark(area, who, (x + 6, y), true)?;
        write(area, who.name(), (x + 18, y), text(14, HPos::Left))?;
        x += 110;
    }
    write(area, "in brackets: the row of the catalogue of faults", (x + 30, y), text(13, HPos::Left))
}

fn mark(area: &Area<'_>, who: Who, at: (i32, i32), filled: bool) -> Result<()> {
    let style = ShapeStyle { color: colour(who).into(), filled, stroke_width: 1 };
    match who {
        Who::ClientGo => area.draw(&Circle::new(at, 4, style)),
        Who::KubeRs => area.draw(&TriangleMarker::new(at, 5, style)),
        Who::Skopos => area.draw(&Rectangle::new([(at.0 - 4, at.1 - 4), (at.0 + 4, at.1 + 4)], style)),
    }
    .map_err(failed)
}

fn write(area: &Area<'_>, words: &str, at: (i32, i32), style: TextStyle<'_>) -> Result<()> {
    area.draw(&Text::new(words.to_owned(), at, style)).map_err(failed)
}

/// Four panels of bars.
pub(super) fn speed(results: &SpeedResults, file: &Path) -> Result<()> {
    let area = SVGBackend::new(file, (1_000, 900)).into_drawing_area();
    area.fill(&WHITE).map_err(failed)?;
    let kind = if results.rows.iter().any(|row| row.server == Kind::Real) { Kind::Real } else { Kind::Test };
    let rows: Vec<&SpeedResult> = results.rows.iter().filter(|row| row.server == kind).collect();
    write(&area, &format!("Speed and memory, against {}", kind.name()), (20, 24), text(16, HPos::Left))?;
    let panels: [(&str, fn(&SpeedResult) -> f64); 4] = [
        ("first sync: CPU µs per pod (less is better)", |row| row.sync_cpu_us_per_pod),
        ("peak memory: KiB per pod (less is better)", |row| row.peak_kib_per_pod),
        ("memory after the events: KiB per pod (less is better)", |row| row.steady_kib_per_pod),
        ("watch events per CPU second (more is better)", |row| row.events_per_cpu_second),
    ];
    for (number, (title, value)) in panels.into_iter().enumerate() {
        let corner = (20 + 490 * (number as i32 % 2), 60 + 400 * (number as i32 / 2));
        bars(&area, corner, title, &rows, value)?;
    }
    area.present().map_err(failed)
}

/// Bars from left to right, grouped by the number of pods.
fn bars(
    area: &Area<'_>,
    (left, top): (i32, i32),
    title: &str,
    rows: &[&SpeedResult],
    value: fn(&SpeedResult) -> f64,
) -> Result<()> {
    const LABELS: i32 = 170;
    const LENGTH: i32 = 220;
    write(area, title, (left, top), text(14, HPos::Left))?;
    let most = rows.iter().map(|row| value(row)).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let mut y = top + 24;
    let mut pods = 0;
    for row in rows {
        if row.pods != pods {
            pods = row.pods;
            y += 6;
            write(area, &format!("{} pods", grouped(pods)), (left, y), text(12, HPos::Left))?;
            y += 15;
        }
        let label = format!("{}, {}", row.client.name(), row.mode);
        write(area, &label, (left + LABELS - 8, y), text(12, HPos::Right))?;
        let length = (value(row) / most * f64::from(LENGTH)) as i32;
        let bar = Rectangle::new(
            [(left + LABELS, y - 6), (left + LABELS + length.max(1), y + 6)],
            colour(row.client).filled(),
        );
        area.draw(&bar).map_err(failed)?;
        let figure =
            if value(row) >= 1000.0 { grouped(value(row) as usize) } else { format!("{:.1}", value(row)) };
        write(area, &figure, (left + LABELS + length + 6, y), text(12, HPos::Left))?;
        y += 16;
    }
    Ok(())
}

/// Thousands apart.
fn grouped(number: usize) -> String {
    if number < 1000 {
        number.to_string()
    } else {
        format!("{},{:03}", grouped(number / 1000), number % 1000)
    }
}
