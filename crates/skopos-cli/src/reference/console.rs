//! Commands in the console blocks of pages, parsed by the command line.
use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::args::Cli;

/// Returns the commands of a page, each with its line.
pub(super) fn commands_of_page(page: &str) -> Vec<(usize, Vec<String>)> {
    let lines = console_lines(page).into_iter();
    lines.flat_map(|(line, text)| commands(&text).into_iter().map(move |words| (line, words))).collect()
}

/// Returns the command and why it does not parse. Placeholders are fine in place of values.
pub(super) fn problem(words: &[String]) -> Option<String> {
    let error = Cli::try_parse_from(words).err()?;
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => None,
        ErrorKind::InvalidValue | ErrorKind::ValueValidation if is_placeholder(&error) => None,
        _ => Some(format!("{}: {}", words.join(" "), error.to_string().lines().next().unwrap_or_default())),
    }
}

/// Returns the lines of console blocks with their numbers. Lines that end with a backslash are joined.
fn console_lines(page: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut fence: Option<bool> = None;
    let mut is_continued = false;
    for (number, line) in page.lines().enumerate() {
        if let Some(info) = line.trim_start().strip_prefix("```") {
            fence =
                if fence.is_some() { None } else { Some(info.split([',', ' ']).next() == Some("console")) };
        } else if fence == Some(true) {
            let text = line.trim().trim_end_matches('\\');
            match lines.last_mut() {
                Some((_, last)) if is_continued => last.push_str(text),
                _ => lines.push((number + 1, text.to_owned())),
            }
            is_continued = line.trim_end().ends_with('\\');
        }
    }
    lines
}

/// Returns the words of each `skopos` command in a line of a shell, without comments, redirections and other commands.
fn commands(line: &str) -> Vec<Vec<String>> {
    let line = line.replace("cargo run -- ", "skopos ");
    let mut commands = Vec::new();
    for part in words(&line).split(|word| ["|", "||", "&&", "&", ";"].contains(&word.as_str())) {
        let from = part.iter().take_while(|word| word.contains('=')).count();
        let until = part
            .iter()
            .position(|word| word.starts_with('>') || word.starts_with("2>"))
            .unwrap_or(part.len());
        match part.get(from..until) {
            Some(words) if words.first().is_some_and(|word| word == "skopos") => {
                commands.push(words.to_vec())
            }
            _ => {}
        }
    }
    commands
}

/// Splits a line into words, as a shell does: quotes keep spaces, and a word that begins with `#` begins a comment.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for letter in line.chars() {
        match (letter, quote) {
            (_, Some(open)) if letter == open => quote = None,
            ('\'' | '"', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            ('#', None) if word.is_none() => break,
            (' ', None) => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

/// Returns whether the value that does not parse is a placeholder, such as `NAME`.
fn is_placeholder(error: &clap::Error) -> bool {
    match error.get(ContextKind::InvalidValue) {
        Some(ContextValue::String(value)) => {
            !value.is_empty() && value.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_')
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_joined_and_comments_cut() {
        let page = "```text\nskopos no\n```\n```console\nskopos watch \\\n  pods -A # all # of them\nkubectl get pods\n```\n";
        let lines = console_lines(page);
        assert_eq!(lines[0], (5, "skopos watch pods -A # all # of them".to_owned()));
        assert_eq!(commands(&lines[0].1), [["skopos", "watch", "pods", "-A"]]);
        assert!(commands(&lines[1].1).is_empty());
    }

    #[test]
    fn commands_of_a_pipeline_are_found() {
        let line = "SKOPOS_LOG=x skopos vc pause shop && skopos vc kubeconfig 'a b' > file | skopos vc list # && skopos no";
        let found: Vec<_> = commands(line).into_iter().map(|words| words.join(" ")).collect();
        assert_eq!(found, ["skopos vc pause shop", "skopos vc kubeconfig a b", "skopos vc list"]);
        assert_eq!(commands("cargo run -- demo --once"), [["skopos", "demo", "--once"]]);
    }

    #[test]
    fn wrong_commands_are_problems() {
        let of = |line: &str| {
            let page = format!("```console\n{line}\n```\n");
            commands_of_page(&page).iter().filter_map(|(_, words)| problem(words)).collect::<Vec<_>>()
        };
        for good in [
            "skopos demo fault NAME",
            "skopos serve --listen ADDRESS",
            "skopos watch --help",
            "skopos --version",
        ] {
            assert!(of(good).is_empty(), "{:?}", of(good));
        }
        for wrong in
            ["skopos serv", "skopos serve --kubeconfg a", "skopos demo fault nonsense", "skopos watch"]
        {
            assert_eq!(of(wrong).len(), 1, "{wrong}");
        }
    }
}
