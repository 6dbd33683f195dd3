//! The demo without a terminal: its model as lines.
use super::model::{Entry, Model, TITLES};
use crate::columns;

/// The table as text.
pub(crate) fn table(model: &Model) -> Vec<String> {
    let titles = TITLES.map(String::from);
    let rows = model.rows().into_iter().map(|row| {
        let [kind, objects, rv, age, state, rate] = row.cells;
        [kind, objects, rv, age, state, rate, row.trouble]
    });
    let rows: Vec<_> = std::iter::once(titles).chain(rows).collect();
    columns::align(&rows)
}

/// A line of the log as text.
pub(crate) fn entry(entry: &Entry) -> String {
    format!("{:>7.1}s  {}", entry.at.as_secs_f64(), entry.text)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::model::{Health, KindSample, Mood, Sample};
    use super::*;

    #[test]
    fn the_report_is_a_table() {
        let mut model = Model::default();
        let pods = KindSample {
            kind: "pods".into(),
            objects: 300,
            rv: "1234".into(),
            events: 0,
            health: Health::Live { age: Duration::from_secs(1) },
            trouble: None,
        };
        model.observe(Sample { kinds: vec![pods], ..Sample::default() });
        assert_eq!(
            table(&model),
            [
                "KIND   OBJECTS   RV     AGE ≤   STATE   EVENTS/S   LAST TROUBLE",
                "pods   300       1234   1.0s    live    0.0"
            ]
        );
    }

    #[test]
    fn log_lines_carry_their_second() {
        let line = Entry { at: Duration::from_millis(12_340), text: "x".into(), mood: Mood::Good };
        assert_eq!(entry(&line), "   12.3s  x");
    }
}
