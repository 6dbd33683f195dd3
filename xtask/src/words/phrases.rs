//! Phrases that are not used, because no other project of the field does, and because they hide who does what.

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::files;

/// Phrases that are not used in comments, docs and messages. CONTRIBUTING.md says what to write instead.
const BANNED: [&str; 22] = [
    "anew",
    "in vain",
    "told of",
    "let go of",
    "lets go of",
    "so many",
    "so long as",
    "it is waited",
    "stands",
    "stood",
    "by itself",
    "for ever",
    "of which",
    "whatever becomes of",
    "as it comes",
    "goes on",
    "is had",
    "nobody",
    "somebody",
    "whoever",
    "who asks",
    "anybody",
];

/// Returns the banned phrases in a text, each as often as it is there.
pub(super) fn banned(text: &str) -> impl Iterator<Item = &'static str> {
    let text = text.to_lowercase();
    let found = move |phrase: &&'static str| {
        let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        let hits = text.match_indices(*phrase).filter(|(at, _)| {
            !is_word(text[..*at].chars().next_back()) && !is_word(text[at + phrase.len()..].chars().next())
        });
        hits.count()
    };
    BANNED.into_iter().flat_map(move |phrase| std::iter::repeat_n(phrase, found(&phrase)))
}

/// Returns the places of banned phrases in the Markdown files of a folder.
pub(super) fn in_markdown(folder: &Path) -> Result<Vec<String>> {
    let mut places = Vec::new();
    for file in files::with_extension(folder, "md")? {
        for (number, line) in fs::read_to_string(&file)?.lines().enumerate() {
            places.extend(
                banned(line)
                    .map(|phrase| format!("{}:{}: banned phrase {phrase:?}", file.display(), number + 1)),
            );
        }
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_whole_phrases() {
        let found = |text: &str| banned(text).collect::<Vec<_>>();
        assert_eq!(
            found("Nobody lists anew. It understands; let go of it, and let go of that"),
            ["anew", "let go of", "let go of", "nobody"]
        );
        assert_eq!(found("is_stood, renewed, standstill"), [""; 0]);
    }
}
