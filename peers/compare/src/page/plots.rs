//! The plots of the page.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::tables::{FEW, Notice};
use crate::client::Who;
use crate::results::{FaultResult, FaultResults, Outcome, SpeedResult, SpeedResults};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// When each client noticed each fault.
pub(super) fn notice(results: &FaultResults, file: &Path) -> Result<()> {
    let title =
        "Seconds until a fault is noticed: the user is told, or the content is right again while it lasts";
    dots(results, file, title, "not noticed", |fault, outcome| match Notice::of(fault, outcome) {
        Notice::Told(at) | Notice::Caught(at) => Some(at),
        Notice::Never => None,
    })
}

/// When each client had recovered.
pub(super) fn recover(results: &FaultResults, file: &Path) -> Result<()> {
    let title = "Seconds until the content is right again, from the end of the fault, or from its begin if it has no end";
    dots(results, file, title, "not recovered", |_, outcome| outcome.recovered_s)
}

const INK: RGBColor = RGBColor(40, 40, 40);
const FAINT: RGBColor = RGBColor(225, 225, 225);
const BAND: RGBColor = RGBColor(246, 246, 246);

/// Colours that people with any kind of sight tell apart (Okabe and Ito), and shapes besides.
fn colour(who: Who) -> RGBColor {
    match who {
        Who::ClientGo => RGBColor(0, 114, 178),
        Who::ControllerRuntime => RGBColor(86, 180, 233),
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
    never: &str,
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
    write(&area, never, (NEVER, bottom + 16), text(13, HPos::Center))?;
    write(&area, "seconds, logarithmic", ((LEFT + RIGHT) / 2, bottom + 38), text(13, HPos::Center))?;
    for (number, fault) in results.faults.iter().enumerate() {
        for (lane, outcome) in fault.clients.iter().enumerate() {
            let y = TOP + ROW * number as i32 + ROW / 2 + (lane as i32 - 1) * 6;
            match value(fault, outcome) {
                Some(seconds) => mark(&area, outcome.client, (x(seconds), y), true)?,
                None => mark(&area, outcome.client, (NEVER + (lane as i32 - 1) * 18, y), false)?,
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
    let (x, y) = at;
    match who {
        Who::ClientGo | Who::ControllerRuntime => area.draw(&Circle::new(at, 4, style)),
        Who::KubeRs if filled => {
            area.draw(&Polygon::new([(x, y - 5), (x + 5, y + 4), (x - 5, y + 4)], style))
        }
        Who::KubeRs => {
            area.draw(&PathElement::new([(x, y - 5), (x + 5, y + 4), (x - 5, y + 4), (x, y - 5)], style))
        }
        Who::Skopos => area.draw(&Rectangle::new([(x - 4, y - 4), (x + 4, y + 4)], style)),
    }
    .map_err(failed)
}

fn write(area: &Area<'_>, words: &str, at: (i32, i32), style: TextStyle<'_>) -> Result<()> {
    area.draw(&Text::new(words.to_owned(), at, style)).map_err(failed)
}

/// Four panels of bars.
pub(super) fn speed(results: &SpeedResults, file: &Path) -> Result<()> {
    type Panel = (&'static str, fn(&SpeedResult) -> f64);
    let panels: [Panel; 4] = [
        ("first sync: CPU µs per pod (less is better)", |row| row.sync_cpu_us_per_pod),
        ("peak memory: KiB per pod (less is better)", |row| row.peak_kib_per_pod),
        ("memory after the events: KiB per pod (less is better)", |row| row.steady_kib_per_pod),
        ("watch events per CPU second (more is better)", |row| {
            if row.events > FEW { row.events_per_cpu_second } else { f64::NAN }
        }),
    ];
    let groups: Vec<&[SpeedResult]> =
        results.rows.chunk_by(|a, b| (a.server, a.pods) == (b.server, b.pods)).collect();
    let panel = HEAD + GROUP * groups.len() as i32 + BAR * results.rows.len() as i32;
    let area = SVGBackend::new(file, (1_180, (40 + 2 * (panel + 30)) as u32)).into_drawing_area();
    area.fill(&WHITE).map_err(failed)?;
    write(&area, "Speed and memory", (20, 24), text(16, HPos::Left))?;
    for (number, (title, value)) in panels.into_iter().enumerate() {
        let number = number as i32;
        bars(&area, (20 + 580 * (number % 2), 60 + (panel + 30) * (number / 2)), title, &groups, value)?;
    }
    area.present().map_err(failed)
}

/// The heights of a panel's title, of a group's title, and of a bar.
const HEAD: i32 = 24;
const GROUP: i32 = 24;
const BAR: i32 = 16;

/// Bars from left to right, a group for each server and number of pods.
fn bars(
    area: &Area<'_>,
    (left, top): (i32, i32),
    title: &str,
    groups: &[&[SpeedResult]],
    value: fn(&SpeedResult) -> f64,
) -> Result<()> {
    const LABELS: i32 = 250;
    const LENGTH: i32 = 230;
    write(area, title, (left, top), text(14, HPos::Left))?;
    let most = groups.iter().copied().flatten().map(value).fold(f64::MIN_POSITIVE, f64::max);
    let mut y = top + HEAD;
    for group in groups {
        let Some(first) = group.first() else { continue };
        let name = format!("{} pods, {}", grouped(first.pods), first.server.name());
        write(area, &name, (left, y), text(12, HPos::Left))?;
        y += BAR;
        for row in *group {
            let label = format!("{}, {}", row.client.name(), row.mode);
            write(area, &label, (left + LABELS - 8, y), text(12, HPos::Right))?;
            let figure = value(row);
            let length = (figure / most * f64::from(LENGTH)) as i32;
            let (from, to) = ((left + LABELS, y - 6), (left + LABELS + length, y + 6));
            area.draw(&Rectangle::new([from, to], colour(row.client).filled())).map_err(failed)?;
            let words = match figure {
                figure if figure.is_nan() => "not measured".to_owned(),
                figure if figure >= 1000.0 => grouped(figure as usize),
                figure => format!("{figure:.1}"),
            };
            write(area, &words, (to.0 + 6, y), text(12, HPos::Left))?;
            y += BAR;
        }
        y += GROUP - BAR;
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
