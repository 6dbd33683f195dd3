//! The demo's screen, drawn from its model.
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row as TableRow, Table, Wrap};

use crate::FaultName;
use crate::commands::Scene;
use crate::model::{Entry, Model, Mood, TITLES};

/// Draws everything; keys are for the cluster of number `selected`.
pub(crate) fn draw(frame: &mut Frame<'_>, model: &Model, scene: &Scene, selected: usize) {
    let keys = keys_line();
    let key_lines = wrapped_height(&keys, frame.area().width);
    let commands = scene.commands();
    let length = |count: usize| u16::try_from(count).unwrap_or(u16::MAX);
    let [head, tries, table, log, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(length(commands.len()).saturating_add(2)),
        Constraint::Length(length(model.sample().clusters.len()).saturating_add(1)),
        Constraint::Min(3),
        Constraint::Length(key_lines),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(head_line(model, scene)), head);
    draw_commands(frame, tries, scene);
    draw_table(frame, table, model, selected);
    draw_log(frame, log, model);
    frame.render_widget(Paragraph::new(keys).wrap(Wrap { trim: true }), foot);
}

fn head_line(model: &Model, scene: &Scene) -> Line<'static> {
    let title = Style::new().add_modifier(Modifier::BOLD | Modifier::REVERSED);
    let summary = format!("  gateway {}   {}", scene.url, model.summary());
    Line::from(vec![Span::styled(" skopos demo ", title), Span::raw(summary)])
}

/// Draws the commands without borders at the sides, so that a command can be copied with a mouse.
fn draw_commands(frame: &mut Frame<'_>, area: Rect, scene: &Scene) {
    let faint = Style::new().add_modifier(Modifier::DIM);
    let lines = scene.lines().into_iter().map(|line| match line.split_once("  # ") {
        Some((command, shows)) => {
            Line::from(vec![Span::raw(command.to_owned()), Span::styled(format!("  # {shows}"), faint)])
        }
        None => Line::from(line),
    });
    let block = Block::new().borders(Borders::TOP | Borders::BOTTOM).title(" try, in another terminal ");
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()).block(block), area);
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, model: &Model, selected: usize) {
    let rows = model.rows();
    let width = |column: usize, least: u16, most: u16| {
        let widest = rows.iter().map(|row| row.cells[column].chars().count()).max().unwrap_or(0);
        Constraint::Length(u16::try_from(widest).unwrap_or(most).clamp(least, most))
    };
    let widths = [
        Constraint::Length(1),
        width(0, 8, 30),
        width(1, 6, 11),
        width(2, 5, 7),
        width(3, 6, 8),
        Constraint::Length(7),
        Constraint::Length(8),
        Constraint::Min(12),
    ];
    let header =
        TableRow::new(std::iter::once("").chain(TITLES)).style(Style::new().add_modifier(Modifier::BOLD));
    let lines = rows.into_iter().enumerate().map(|(number, row)| {
        let [cluster, state, since, age, objects, rate] = row.cells;
        let style = mood_style(row.mood);
        let line = TableRow::new([
            Cell::new(if number == selected { "▸" } else { "" }),
            Cell::new(cluster),
            Cell::new(Span::styled(state, style)),
            Cell::new(right(since, 5)),
            Cell::new(right(age, 6)),
            Cell::new(right(objects, 7)),
            Cell::new(right(rate, 8)),
            Cell::new(row.note),
        ]);
        if number == selected { line.style(Style::new().add_modifier(Modifier::BOLD)) } else { line }
    });
    frame.render_widget(Table::new(lines, widths).header(header).column_spacing(1), area);
}

fn draw_log(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let height = usize::from(area.height.saturating_sub(1));
    let lines: Vec<Line<'_>> = model.log(height).map(log_line).collect();
    let block = Block::new().borders(Borders::TOP).title(" what happened ");
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn log_line(entry: &Entry) -> Line<'_> {
    let time =
        Span::styled(format!("{:>7.1}s  ", entry.at.as_secs_f64()), Style::new().add_modifier(Modifier::DIM));
    Line::from(vec![time, Span::styled(entry.text.as_str(), mood_style(entry.mood))])
}

fn keys_line() -> Line<'static> {
    let mut spans = vec![Span::raw(" ")];
    let faults = FaultName::ALL.into_iter().map(|fault| (fault.key(), fault.label()));
    for (key, label) in [('↑', "choose")].into_iter().chain(faults).chain([('q', "quit")]) {
        spans.push(Span::styled(key.to_string(), Style::new().fg(Color::Cyan).add_modifier(Modifier::BOLD)));
        // A no-break space keeps a key with its label when the line wraps.
        spans.push(Span::raw(format!("\u{a0}{}  ", label.replace(' ', "\u{a0}"))));
    }
    Line::from(spans)
}

fn wrapped_height(line: &Line<'_>, width: u16) -> u16 {
    let width = usize::from(width.max(20));
    // Words break early by at most the longest label.
    u16::try_from(line.width().div_ceil(width.saturating_sub(8))).unwrap_or(3).clamp(1, 5)
}

fn right(text: String, width: usize) -> String {
    format!("{text:>width$}")
}

fn mood_style(mood: Mood) -> Style {
    match mood {
        Mood::Good => Style::new().fg(Color::Green),
        Mood::Waiting => Style::new().fg(Color::Yellow),
        Mood::Bad => Style::new().fg(Color::Red),
        Mood::Deed => Style::new().fg(Color::Magenta),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use skopos_fleet::Condition;

    use super::*;
    use crate::sample::{ClusterSample, Sample, Trouble};

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn model() -> Model {
        let live = ClusterSample {
            name: "lima.vcluster-lima".into(),
            condition: Condition::Live,
            since: at(0),
            reason: None,
            synced: true,
            objects: 52,
            age: Some(at(1200)),
            events: 7,
            troubles: Vec::new(),
            broken: None,
        };
        let lost = Trouble { at: at(2000), what: "no answer".into(), healed: None };
        let bad = ClusterSample {
            name: "oslo.vcluster-oslo".into(),
            condition: Condition::Unreachable,
            since: at(2000),
            reason: Some("no answer".into()),
            age: Some(at(31_000)),
            troubles: vec![lost],
            ..live.clone()
        };
        let mut model = Model::default();
        model.inflict(at(1000), FaultName::BlackHole, "oslo.vcluster-oslo");
        let sample = Sample { at: at(4000), clusters: vec![live, bad], expected: 2 };
        model.observe(sample.clone());
        model.observe(Sample { at: at(4400), ..sample });
        model
    }

    fn screen(width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let names = ["lima", "oslo", "perth"].map(String::from).into();
        let scene = Scene { url: "http://127.0.0.1:7".into(), kubeconfig: "/tmp/k".into(), names };
        terminal.draw(|frame| draw(frame, &model(), &scene, 1)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn screen_shows_every_part() {
        let text = screen(120, 30);
        for part in [
            "skopos demo",
            "gateway http://127.0.0.1:7   1 of 2 clusters live, 104 objects",
            "export KUBECONFIG=/tmp/k",
            "kubectl get pods -A ",
            "lima.vcluster-lima live",
            "▸ oslo.vcluster-oslo unreachable",
            "oslo.vcluster-oslo: black hole: the open connections",
            "oslo.vcluster-oslo: detected 1.0s after the fault: no answer",
            "q\u{a0}quit",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }

    #[test]
    fn any_size_of_terminal_is_survived() {
        for (width, height) in [(80, 24), (40, 12), (20, 6), (5, 3), (1, 1), (300, 90)] {
            screen(width, height);
        }
    }

    #[test]
    fn eighty_columns_show_all_keys() {
        let text = screen(80, 24);
        for fault in FaultName::ALL {
            assert!(text.contains(&fault.label().replace(' ', "\u{a0}")), "{fault:?} in\n{text}");
        }
    }
}
