//! The demo's screen, drawn from its model.
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row as TableRow, Table, Wrap};

use super::FaultName;
use super::model::{Entry, Model, Mood, TITLES};

/// What the screen says around the model.
#[derive(Debug, Clone)]
pub(crate) struct Screen {
    /// The server's address
    pub(crate) url: String,
    /// The file for `kubectl --kubeconfig`
    pub(crate) kubeconfig: String,
}

/// Draws everything.
pub(crate) fn draw(frame: &mut Frame<'_>, model: &Model, screen: &Screen) {
    let keys = keys_line();
    let key_lines = wrapped_height(&keys, frame.area().width);
    let table_height = u16::try_from(model.sample().kinds.len()).unwrap_or(u16::MAX).saturating_add(3);
    let [head, table, log, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(table_height),
        Constraint::Min(3),
        Constraint::Length(key_lines),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(head_lines(model, screen)), head);
    draw_table(frame, table, model);
    draw_log(frame, log, model);
    frame.render_widget(Paragraph::new(keys).wrap(Wrap { trim: true }), foot);
}

fn head_lines(model: &Model, screen: &Screen) -> Vec<Line<'static>> {
    let server = &model.sample().server;
    let faint = Style::new().add_modifier(Modifier::DIM);
    let mut first = vec![
        Span::styled(" skopos demo ", Style::new().add_modifier(Modifier::BOLD | Modifier::REVERSED)),
        Span::raw(format!(
            "  {}  RV {}  {}",
            screen.url,
            server.rv,
            crate::human::count(server.connections as u64, "connection")
        )),
    ];
    if let Some(broken) = &server.broken {
        first.push(Span::styled(format!("  {broken}"), mood_style(Mood::Deed)));
    }
    let second = Span::styled(format!(" kubectl --kubeconfig {} get pods -A -w", screen.kubeconfig), faint);
    vec![Line::from(first), Line::from(second)]
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let rows = model.rows();
    let width = |column: usize, least: u16, most: u16| {
        let widest = rows.iter().map(|row| row.cells[column].chars().count()).max().unwrap_or(0);
        Constraint::Length(u16::try_from(widest).unwrap_or(most).clamp(least, most))
    };
    let widths = [
        width(0, 8, 30),
        width(1, 7, 9),
        width(2, 5, 12),
        width(3, 7, 8),
        width(4, 7, 30),
        Constraint::Length(8),
        Constraint::Min(12),
    ];
    let header = TableRow::new(TITLES).style(Style::new().add_modifier(Modifier::BOLD));
    let lines = rows.into_iter().map(|row| {
        let [kind, objects, rv, age, state, rate] = row.cells;
        let style = mood_style(row.mood);
        TableRow::new([
            Cell::new(kind),
            Cell::new(right(objects, 7)),
            Cell::new(rv),
            Cell::new(right(age, 7)),
            Cell::new(Span::styled(state, style)),
            Cell::new(right(rate, 8)),
            Cell::new(row.trouble),
        ])
    });
    let table = Table::new(lines, widths).header(header).column_spacing(2).block(Block::bordered());
    frame.render_widget(table, area);
}

fn draw_log(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let height = usize::from(area.height.saturating_sub(2));
    let lines: Vec<Line<'_>> = model.log(height).map(log_line).collect();
    let block = Block::bordered().title(" what was detected, and when it recovered ");
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
    for (key, label) in faults.chain([('q', "quit")]) {
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

    use super::super::model::{Health, KindSample, Sample, ServerSample, Trouble};
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn model() -> Model {
        let healed = Trouble {
            at: at(1100),
            what: "connection reset".into(),
            healed: Some((at(1300), "watch resumed".into())),
        };
        let live = KindSample {
            kind: "pods".into(),
            objects: 300,
            rv: "1234".into(),
            events: 0,
            health: Health::Live { age: at(1200) },
            trouble: Some(healed),
        };
        let stale = KindSample {
            kind: "configmaps".into(),
            objects: 20,
            rv: "1200".into(),
            events: 0,
            health: Health::Stale { reason: "no answer".into(), age: Some(at(31_000)) },
            trouble: Some(Trouble { at: at(2000), what: "no answer".into(), healed: None }),
        };
        let mut model = Model::default();
        model.inflict(at(1000), FaultName::Reset);
        let server = ServerSample { connections: 2, rv: "1240".into(), paused: false, broken: None };
        let sample = Sample { at: at(4000), kinds: vec![live, stale], server };
        model.observe(sample.clone());
        model.observe(Sample { at: at(4400), ..sample });
        model
    }

    fn screen(width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let screen = Screen { url: "https://127.0.0.1:7".into(), kubeconfig: "/tmp/k".into() };
        terminal.draw(|frame| draw(frame, &model(), &screen)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn the_screen_tells_everything() {
        let text = screen(120, 24);
        for part in [
            "skopos demo",
            "https://127.0.0.1:7  RV 1240  2 connections",
            "kubectl --kubeconfig /tmp/k get pods",
            "LAST TROUBLE",
            "3s ago: connection reset; after 200ms watch resumed",
            "stale: no answer",
            "RST: every connection is reset",
            "configmaps: detected 1.0s after the fault: no answer",
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
