//! Recorded histories: one file for each group of scripts, one line for each entry.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde_json::Value;

/// Histories of what clients saw, by script name.
pub(crate) type Histories = BTreeMap<String, Vec<Value>>;

/// Reads all histories below `folder`.
///
/// # Errors
/// When a file cannot be read or parsed.
pub(crate) fn read(folder: &Path) -> io::Result<Histories> {
    let mut histories = Histories::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let group: Histories =
                serde_json::from_str(&fs::read_to_string(&path)?).map_err(io::Error::other)?;
            histories.extend(group);
        }
    }
    Ok(histories)
}

/// Writes histories below `folder`, and removes the files of groups that no longer exist.
///
/// # Errors
/// When a file cannot be written.
pub(crate) fn write(folder: &Path, histories: &Histories) -> io::Result<()> {
    let mut files: BTreeMap<PathBuf, String> = BTreeMap::new();
    for (name, history) in histories {
        let group = name.split('/').next().unwrap_or_default();
        let text = files.entry(folder.join(format!("{group}.json"))).or_default();
        let start = if text.is_empty() { "{" } else { ",\n" };
        let entries: Vec<String> = history.iter().map(|entry| format!("  {entry}")).collect();
        let _ = write!(text, "{start}{}: [\n{}\n]", Value::from(name.as_str()), entries.join(",\n"));
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "json") && !files.contains_key(&path) {
            fs::remove_file(path)?;
        }
    }
    files.into_iter().try_for_each(|(path, text)| fs::write(path, text + "}\n"))
}
