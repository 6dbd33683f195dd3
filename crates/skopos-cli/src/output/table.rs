//! `-o table`: aligned columns that keep their width once they have it, as kubectl's do.
use std::io::{self, Write};

use serde_json::Value;
use skopos_console::human;

use super::state::state;
use super::{Change, Notice, Printer, Verb};
use crate::diff::{self, DiffLimits};
use crate::style::{Style, Tone};
use crate::watch::notice_line;

/// Rows that are held back at most to find the columns' widths.
const BATCH: usize = 500;

/// Characters of a cell, but for those of the last column.
const MAX_CELL: usize = 60;

/// Characters of a cell of the last column.
const MAX_LAST_CELL: usize = 600;

/// Prints changes as a table. The columns begin with widths that suit most clusters and only grow.
#[derive(Debug)]
pub(crate) struct TablePrinter {
    options: TableOptions,
    widths: Vec<usize>,
    waiting: Vec<(Verb, Vec<String>)>,
    header: bool,
    /// The first view is not complete: its rows are held back, so that the header has their widths.
    holding: bool,
}

/// Options of a table.
#[derive(Debug, Clone)]
pub(crate) struct TableOptions {
    kind: String,
    namespaces: bool,
    out: Style,
    err: Style,
}

/// Returns the options of a table for objects of this kind.
pub(crate) fn columns(kind: &str, namespaces: bool, out: Style, err: Style) -> TableOptions {
    TableOptions { kind: kind.into(), namespaces, out, err }
}

impl TablePrinter {
    /// Makes a table, with its header unless `header` is false.
    pub(crate) fn new(options: TableOptions, header: bool) -> Self {
        let widths = if options.namespaces { vec![7, 9, 12, 11, 4] } else { vec![7, 12, 11, 4] };
        Self { options, widths, waiting: Vec::new(), header, holding: true }
    }

    fn row(&self, change: &Change, now: jiff::Timestamp) -> Vec<String> {
        let parse = |bytes: &bytes::Bytes| serde_json::from_slice::<Value>(bytes).ok();
        let object = change.object.as_ref().and_then(parse).unwrap_or_default();
        let created = object.pointer("/metadata/creationTimestamp").and_then(Value::as_str);
        let verb = match change.verb {
            Verb::Added => "ADDED",
            Verb::Updated => "UPDATED",
            Verb::Deleted => "DELETED",
        };
        let old = change.old.as_ref().and_then(parse);
        let mut detail = match (change.verb, old) {
            (Verb::Updated, Some(old)) => diff::describe(&diff::diff(&old, &object), DiffLimits::default()),
            _ => String::new(),
        };
        if change.gap {
            detail = format!("(after a gap) {detail}").trim_end().into();
        }
        let mut row = vec![verb.into()];
        if self.options.namespaces {
            row.push(change.namespace.clone().unwrap_or_default());
        }
        row.push(change.name.clone());
        row.push(state(&self.options.kind, &object));
        row.push(human::age_since(created, now));
        row.iter_mut().for_each(|cell| *cell = human::one_line(cell, MAX_CELL));
        row.push(human::one_line(&detail, MAX_LAST_CELL));
        row
    }

    fn print_waiting(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let rows = std::mem::take(&mut self.waiting);
        let header = std::mem::take(&mut self.header).then(|| self.titles());
        for row in rows.iter().map(|(_, row)| row).chain(&header) {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        if let Some(header) = header {
            writeln!(out, "{}", self.line(&header, None))?;
        }
        for (verb, row) in rows {
            writeln!(out, "{}", self.line(&row, Some(verb)))?;
        }
        Ok(())
    }

    fn titles(&self) -> Vec<String> {
        let titles: &[&str] = match self.options.namespaces {
            true => &["EVENT", "NAMESPACE", "NAME", "STATE", "AGE", "CHANGE"],
            false => &["EVENT", "NAME", "STATE", "AGE", "CHANGE"],
        };
        titles.iter().map(|title| (*title).into()).collect()
    }

    fn line(&self, row: &[String], verb: Option<Verb>) -> String {
        let mut line = String::new();
        // The last column is as wide as it needs to be.
        for (i, (cell, width)) in row.iter().zip(self.widths.iter().chain(&[0])).enumerate() {
            let padding = " ".repeat(width.saturating_sub(cell.chars().count()) + 3);
            match (i, verb) {
                (0, Some(verb)) => line.push_str(&self.options.out.paint(tone(verb), cell)),
                _ => line.push_str(cell),
            }
            line.push_str(&padding);
        }
        line.truncate(line.trim_end().len());
        line
    }
}

impl Printer for TablePrinter {
    fn change(&mut self, out: &mut dyn Write, change: &Change) -> io::Result<()> {
        let row = self.row(change, jiff::Timestamp::now());
        self.waiting.push((change.verb, row));
        if self.waiting.len() >= BATCH { self.print_waiting(out) } else { Ok(()) }
    }

    fn settle(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if self.holding {
            return Ok(());
        }
        self.print_waiting(out)?;
        out.flush()
    }

    fn notice(&mut self, out: &mut dyn Write, err: &mut dyn Write, notice: &Notice) -> io::Result<()> {
        self.holding &= !matches!(notice, Notice::Synced { .. });
        self.print_waiting(out)?;
        out.flush()?;
        writeln!(err, "{}", notice_line(notice, self.options.err))
    }
}

fn tone(verb: Verb) -> Tone {
    match verb {
        Verb::Added => Tone::Good,
        Verb::Updated => Tone::Notice,
        Verb::Deleted => Tone::Bad,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printer(namespaces: bool) -> TablePrinter {
        let table = TablePrinter::new(columns("Pod", namespaces, Style::plain(), Style::plain()), true);
        TablePrinter { holding: false, ..table }
    }

    fn pod(name: &str, phase: &str) -> bytes::Bytes {
        format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{{"containers":[{{}}]}},"status":{{"phase":"{phase}"}}}}"#)
            .into()
    }

    fn change(verb: Verb, name: &str, phase: &str, old: Option<&str>) -> Change {
        Change {
            verb,
            namespace: Some("shop".into()),
            name: name.into(),
            object: Some(pod(name, phase)),
            old: old.map(|phase| pod(name, phase)),
            gap: false,
        }
    }

    #[test]
    fn aligns_rows_and_shows_update_changes() {
        let mut table = printer(true);
        let mut out = Vec::new();
        table.change(&mut out, &change(Verb::Added, "web-0", "Pending", None)).unwrap();
        table.change(&mut out, &change(Verb::Added, "a-longer-name", "Running", None)).unwrap();
        assert!(out.is_empty(), "rows wait for their widths");
        table.settle(&mut out).unwrap();
        table.change(&mut out, &change(Verb::Updated, "web-0", "Running", Some("Pending"))).unwrap();
        table.settle(&mut out).unwrap();
        table.change(&mut out, &change(Verb::Deleted, "web-0", "Running", None)).unwrap();
        table.settle(&mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "\
EVENT     NAMESPACE   NAME            STATE         AGE         CHANGE
ADDED     shop        web-0           0/1 Pending   <unknown>
ADDED     shop        a-longer-name   0/1 Running   <unknown>
UPDATED   shop        web-0           0/1 Running   <unknown>   status.phase: Pending → Running
DELETED   shop        web-0           0/1 Running   <unknown>
"
        );
    }

    #[test]
    fn header_waits_for_initial_list_and_fits_rows() {
        let mut table = TablePrinter { holding: true, ..printer(false) };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        for name in ["a", "a-name-that-is-longer-than-the-header"] {
            table.change(&mut out, &change(Verb::Added, name, "Running", None)).unwrap();
            table.settle(&mut out).unwrap();
        }
        assert!(out.is_empty());
        let synced = Notice::Synced { objects: 2, after: std::time::Duration::ZERO, scope: "pods".into() };
        table.notice(&mut out, &mut err, &synced).unwrap();
        let text = String::from_utf8(out).unwrap();
        let at = |line: &str, word: &str| line.find(word).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            at(lines[0], "STATE") == at(lines[1], "0/1") && at(lines[0], "STATE") == at(lines[2], "0/1"),
            "{text}"
        );
    }

    #[test]
    fn one_long_cell_makes_no_long_rows() {
        let mut table = printer(false);
        let mut out = Vec::new();
        table.change(&mut out, &change(Verb::Added, "a", &"x\u{202e}".repeat(100_000), None)).unwrap();
        for _ in 0..20 {
            table.change(&mut out, &change(Verb::Added, "b", "Running", None)).unwrap();
        }
        table.settle(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.len() < 5000 && !text.contains('\u{202e}'), "{} bytes", text.len());
    }

    #[test]
    fn one_namespace_needs_no_column() {
        let mut table = printer(false);
        let mut out = Vec::new();
        table.change(&mut out, &change(Verb::Added, "web-0", "Pending", None)).unwrap();
        table.settle(&mut out).unwrap();
        assert!(!String::from_utf8(out).unwrap().contains("shop"));
    }

    #[test]
    fn many_rows_are_not_held_back() {
        let mut table = printer(false);
        let mut out = Vec::new();
        for _ in 0..BATCH {
            table.change(&mut out, &change(Verb::Added, "web-0", "Pending", None)).unwrap();
        }
        assert_eq!(out.iter().filter(|b| **b == b'\n').count(), BATCH + 1);
    }

    #[test]
    fn marks_update_after_gap() {
        let mut table = printer(false);
        let mut out = Vec::new();
        let gap = Change { gap: true, ..change(Verb::Updated, "web-0", "Running", Some("Pending")) };
        table.change(&mut out, &gap).unwrap();
        table.settle(&mut out).unwrap();
        assert!(String::from_utf8(out).unwrap().contains("(after a gap) status.phase"));
    }
}
