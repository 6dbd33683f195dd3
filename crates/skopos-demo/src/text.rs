//! The demo without a terminal: its model as lines.
use skopos_console::columns;

use crate::model::{Entry, Model, TITLES};

/// Returns the table as text.
pub(crate) fn table(model: &Model) -> Vec<String> {
    let titles = TITLES.map(String::from);
    let rows = model.rows().into_iter().map(|row| {
        let [cluster, state, since, age, objects, rate] = row.cells;
        [cluster, state, since, age, objects, rate, row.note]
    });
    let rows: Vec<_> = std::iter::once(titles).chain(rows).collect();
    columns::align(&rows)
}

/// Returns a line of the log as text.
pub(crate) fn entry(entry: &Entry) -> String {
    format!("{:>7.1}s  {}", entry.at.as_secs_f64(), entry.text)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use skopos_fleet::Condition;

    use super::*;
    use crate::model::Mood;
    use crate::sample::{ClusterSample, Sample};

    #[test]
    fn text_report_is_aligned_table() {
        let mut model = Model::default();
        let oslo = ClusterSample {
            name: "oslo".into(),
            condition: Condition::Paused,
            since: Duration::ZERO,
            reason: Some("scaled to zero".into()),
            synced: true,
            objects: 30,
            age: Some(Duration::from_secs(1)),
            events: 0,
            troubles: Vec::new(),
            broken: None,
        };
        model.observe(Sample { clusters: vec![oslo], ..Sample::default() });
        assert_eq!(
            table(&model),
            [
                "CLUSTER   STATE    FOR   AGE ≤   OBJECTS   EVENTS/S   NOTE",
                "oslo      paused   0s    1.0s    30        0.0        scaled to zero"
            ]
        );
    }

    #[test]
    fn log_lines_carry_their_second() {
        let line = Entry { at: Duration::from_millis(12_340), text: "x".into(), mood: Mood::Good };
        assert_eq!(entry(&line), "   12.3s  x");
    }
}
