//! Markdown tables and links.

/// A table with a fixed number of columns.
pub(super) struct Table {
    text: String,
    is_empty: bool,
}

impl Table {
    /// Makes a table with these headings.
    pub(super) fn new(headings: &[&str]) -> Self {
        let mut table = Self { text: String::new(), is_empty: true };
        table.line(headings.iter().map(|heading| (*heading).to_owned()));
        table.line(headings.iter().map(|_| "---".to_owned()));
        table
    }

    /// Adds a row.
    pub(super) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.is_empty = false;
        self.line(cells.into_iter().map(|cell| cell.replace('|', "\\|").replace('\n', " ")));
    }

    /// Returns the table's text with an empty line behind it, or nothing if it has no rows.
    pub(super) fn into_text(self) -> String {
        if self.is_empty { String::new() } else { self.text + "\n" }
    }

    fn line(&mut self, cells: impl Iterator<Item = String>) {
        self.text.push('|');
        for cell in cells {
            self.text.push_str(&format!(" {cell} |"));
        }
        self.text.push('\n');
    }
}

/// Returns the text in backticks.
pub(super) fn code(text: &str) -> String {
    format!("`{text}`")
}

/// Returns the link to a heading of the same page, by the rules that mdBook and GitHub share.
pub(super) fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || ['-', '_', ' '].contains(c));
    format!("#{}", kept.collect::<String>().to_lowercase().replace(' ', "-"))
}

/// Splits a text into its meaning and its default: the last sentence, if it is `Default X.` or `Default: X.`.
pub(super) fn split_default(text: &str) -> (String, Option<String>) {
    let text = text.replace('\n', " ");
    let Some(at) = text.rfind("Default").filter(|at| *at == 0 || text[..*at].ends_with(". ")) else {
        return (text, None);
    };
    let default = text[at + "Default".len()..].trim_start_matches(':').trim().trim_end_matches('.');
    (text[..at].trim().to_owned(), Some(default.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_default_from_last_sentence() {
        let split = |text| {
            let (meaning, default) = split_default(text);
            (meaning, default.unwrap_or_default())
        };
        assert_eq!(split("The TTL. Default 30s."), ("The TTL.".into(), "30s".into()));
        assert_eq!(split("Default: a, then b."), (String::new(), "a, then b".into()));
        assert_eq!(split("The Default of it."), ("The Default of it.".into(), String::new()));
    }

    #[test]
    fn anchors_have_letters_and_digits() {
        assert_eq!(anchor("clusters.secrets[].host"), "#clusterssecretshost");
        assert_eq!(anchor("skopos vc create"), "#skopos-vc-create");
    }
}
