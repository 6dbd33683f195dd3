//! Files of Rust code: their comments, their messages, and their syntax.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use ra_ap_rustc_lexer::{FrontmatterAllowed, LiteralKind, TokenKind, tokenize};

use crate::files;

/// A file of Rust code.
pub(super) struct Source {
    pub(super) file: PathBuf,
    /// The folder `src` that it is in; `None` for tests and examples.
    pub(super) root: Option<PathBuf>,
    /// Tests, examples and benchmarks, and what only they use.
    pub(super) is_test: bool,
    pub(super) comments: Vec<Text>,
    /// Texts of the code outside of tests.
    pub(super) messages: Vec<Text>,
    pub(super) syntax: syn::File,
}

/// A comment or a text.
pub(super) struct Text {
    pub(super) line: usize,
    pub(super) text: String,
}

impl Source {
    /// Reads all files of a folder, in order.
    pub(super) fn read(folder: &Path) -> Result<Vec<Self>> {
        files::with_extension(folder, "rs")?.into_iter().map(Self::parse).collect()
    }

    fn parse(file: PathBuf) -> Result<Self> {
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let syntax = syn::parse_file(&text).with_context(|| format!("cannot parse {}", file.display()))?;
        let (comments, mut messages) = texts(&text);
        let root = file.ancestors().find(|folder| folder.ends_with("src")).map(Path::to_path_buf);
        let is_test = root.is_none()
            || file.components().any(|part| part.as_os_str().to_string_lossy().contains("tests"));
        if is_test {
            messages.clear();
        }
        Ok(Self { file, root, is_test, comments, messages, syntax })
    }
}

/// Returns the comments, docs among them, and the texts in quotes.
fn texts(code: &str) -> (Vec<Text>, Vec<Text>) {
    let (mut comments, mut messages) = (Vec::new(), Vec::new());
    let (mut at, mut line) = (0, 1);
    for token in tokenize(code, FrontmatterAllowed::No) {
        let end = at + token.len as usize;
        let text = &code[at..end];
        let found = || Text { line, text: text.to_owned() };
        match token.kind {
            TokenKind::LineComment { .. } | TokenKind::BlockComment { .. } => comments.push(found()),
            TokenKind::Literal { kind: LiteralKind::Str { .. } | LiteralKind::RawStr { .. }, .. } => {
                messages.push(found())
            }
            _ => {}
        }
        line += text.matches('\n').count();
        at = end;
    }
    (comments, messages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_comments_from_messages() {
        let code = "/// Doc.\nfn f<'a>() { let _ = (\"// a message\", 'x', r#\"raw \"one\"\"#); } // end\n/* one\ntwo */\n";
        let (comments, messages) = texts(code);
        let of = |texts: Vec<Text>| texts.into_iter().map(|text| (text.line, text.text)).collect::<Vec<_>>();
        let (comments, messages) = (of(comments), of(messages));
        let line = |number: usize, text: &str| (number, text.to_owned());
        assert_eq!(comments, [line(1, "/// Doc."), line(2, "// end"), line(3, "/* one\ntwo */")]);
        assert_eq!(messages, [line(2, "\"// a message\""), line(2, "r#\"raw \"one\"\"#")]);
    }
}
