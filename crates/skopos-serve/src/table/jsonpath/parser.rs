//! Parser of paths, with the quirks of Kubernetes' own parser: they decide which columns stay empty.

use super::print::unquote;
use super::syntax::{ArraySlice, Filter, Operator, PathNode, Section};

/// Parses a text with paths in braces.
pub(super) fn parse(text: &str) -> Result<Vec<Section>, String> {
    Parser { input: text, start: 0, pos: 0 }.sections()
}

/// Returns the field names, if the path has nothing else.
pub(super) fn fields(sections: &[Section]) -> Option<Vec<String>> {
    let [Section::Path(nodes)] = sections else { return None };
    let name = |node: &PathNode| match node {
        PathNode::Field(name) => Some(name.clone()),
        _ => None,
    };
    nodes.iter().map(name).collect()
}

struct Parser<'a> {
    input: &'a str,
    /// Start of the current token.
    start: usize,
    pos: usize,
}

type ParseResult = Result<(), String>;

impl<'a> Parser<'a> {
    fn sections(mut self) -> Result<Vec<Section>, String> {
        let mut sections = Vec::new();
        loop {
            let length = self.rest().find('{').unwrap_or(self.rest().len());
            self.pos += length;
            if length > 0 {
                sections.push(Section::Text(self.take().to_owned()));
            }
            if self.next().is_none() {
                return Ok(sections);
            }
            self.take();
            let mut nodes = Vec::new();
            self.path(&mut nodes)?;
            sections.push(Section::Path(nodes));
        }
    }

    /// Parses up to the closing brace.
    fn path(&mut self, nodes: &mut Vec<PathNode>) -> ParseResult {
        loop {
            let rest = self.rest();
            if rest.starts_with("[?(") {
                self.filter(nodes)?;
                continue;
            }
            if rest.starts_with("..") {
                self.recursive(nodes)?;
                continue;
            }
            match self.next() {
                Some('}') => {
                    self.take();
                    return Ok(());
                }
                None | Some('\r' | '\n') => return Err("unclosed action".to_owned()),
                Some(' ' | '@' | '$') => {
                    self.take();
                }
                Some('[') => self.array(nodes)?,
                Some(quote @ ('"' | '\'')) => self.quote(nodes, quote)?,
                Some('.') => self.field(nodes),
                Some(c) if c == '+' || c == '-' || c.is_ascii_digit() => self.number(nodes)?,
                Some(c) if is_word(c) => self.word(nodes),
                Some(c) => return Err(format!("unrecognized character in action: {c:?}")),
            }
        }
    }

    fn field(&mut self, nodes: &mut Vec<PathNode>) {
        self.take();
        while let Some(c) = self.rest().chars().next() {
            if is_terminator(c) {
                break;
            }
            self.next();
            if c == '\\' {
                self.next();
            }
        }
        nodes.push(match self.take() {
            "*" => PathNode::Wildcard,
            name => PathNode::Field(name.replace('\\', "")),
        });
    }

    fn recursive(&mut self, nodes: &mut Vec<PathNode>) -> ParseResult {
        if nodes.last() == Some(&PathNode::Recursive) {
            return Err("invalid multiple recursive descent".to_owned());
        }
        self.pos += "..".len();
        self.take();
        nodes.push(PathNode::Recursive);
        if self.rest().starts_with(is_word) {
            self.field(nodes);
        }
        Ok(())
    }

    /// Parses the rest of a number after its first character.
    fn number(&mut self, nodes: &mut Vec<PathNode>) -> ParseResult {
        while self.rest().starts_with(|c: char| c == '.' || c.is_ascii_digit()) {
            self.next();
        }
        let text = self.take();
        let float = || text.parse::<f64>().ok().filter(|number| number.is_finite()).map(PathNode::Float);
        let number = text.parse().map(PathNode::Int).ok().or_else(float);
        nodes.push(number.ok_or_else(|| format!("cannot parse number {text}"))?);
        Ok(())
    }

    fn word(&mut self, nodes: &mut Vec<PathNode>) {
        while self.rest().starts_with(|c| !is_terminator(c)) {
            self.next();
        }
        nodes.push(match self.take() {
            "true" => PathNode::Bool(true),
            "false" => PathNode::Bool(false),
            _ => PathNode::Word,
        });
    }

    fn quote(&mut self, nodes: &mut Vec<PathNode>, quote: char) -> ParseResult {
        loop {
            match self.next() {
                None | Some('\n') => return Err("unterminated quoted string".to_owned()),
                Some(c) if c == quote && !self.is_escaped() => break,
                Some(_) => {}
            }
        }
        let text = self.take();
        nodes.push(PathNode::Text(unquote(text).ok_or_else(|| format!("unquote string {text} error"))?));
        Ok(())
    }

    fn array(&mut self, nodes: &mut Vec<PathNode>) -> ParseResult {
        loop {
            match self.next() {
                None | Some('\n') => return Err("unterminated array".to_owned()),
                Some(']') => break,
                Some(_) => {}
            }
        }
        let token = self.take();
        let text = match &token[1..token.len() - 1] {
            "*" => ":",
            text => text,
        };
        if text.contains(',') {
            let part = |part: &str| action(&format!("[{}]", part.trim_matches(' ')));
            nodes.push(PathNode::Union(text.split(',').map(part).collect::<Result<_, _>>()?));
        } else if let Some(key) = quoted_key(text) {
            nodes.extend(action(&format!(".{key}"))?);
        } else {
            nodes.push(PathNode::ArraySlice(slice(text)?));
        }
        Ok(())
    }

    fn filter(&mut self, nodes: &mut Vec<PathNode>) -> ParseResult {
        self.pos += "[?(".len();
        self.take();
        let (mut quote, mut closed) = (None, false);
        loop {
            match self.next() {
                None | Some('\n') => return Err("unterminated filter".to_owned()),
                Some(c @ ('"' | '\'')) => match quote {
                    None => quote = Some(c),
                    Some(quote) => closed |= quote == c && !self.is_escaped(),
                },
                // It may contain one literal.
                Some(')') if quote.is_some() == closed => break,
                Some(_) => {}
            }
        }
        if self.next() != Some(']') {
            return Err("unclosed array expect ]".to_owned());
        }
        let token = self.take();
        nodes.push(PathNode::Filter(comparison(&token[..token.len() - ")]".len()])?));
        Ok(())
    }

    fn rest(&self) -> &'a str {
        &self.input[self.pos..]
    }

    fn next(&mut self) -> Option<char> {
        let next = self.rest().chars().next()?;
        self.pos += next.len_utf8();
        Some(next)
    }

    /// Returns whether a backslash precedes the last character read.
    fn is_escaped(&self) -> bool {
        self.pos >= 2 && self.input.as_bytes()[self.pos - 2] == b'\\'
    }

    /// Returns the current token and begins the next.
    fn take(&mut self) -> &'a str {
        let token = &self.input[self.start..self.pos];
        self.start = self.pos;
        token
    }
}

/// Parses a path within a path.
fn action(text: &str) -> Result<Vec<PathNode>, String> {
    match parse(&format!("{{{text}}}"))?.into_iter().next() {
        Some(Section::Path(nodes)) => Ok(nodes),
        _ => Ok(Vec::new()),
    }
}

/// Returns the key in `['KEY']`.
fn quoted_key(text: &str) -> Option<&str> {
    let key = text.strip_prefix('\'')?.strip_suffix('\'')?;
    (!key.contains('\'')).then_some(key)
}

fn slice(text: &str) -> Result<ArraySlice, String> {
    let invalid = || format!("invalid array index {text}");
    let parts: Vec<&str> = text.split(':').collect();
    let is_index = |part: &str| part.strip_prefix('-').unwrap_or(part).bytes().all(|b| b.is_ascii_digit());
    if parts.len() > 3 || !parts.iter().all(|part| is_index(part)) {
        return Err(invalid());
    }
    let number = |at: usize| match parts.get(at).copied().unwrap_or_default() {
        "" => Ok(None),
        part => part.parse::<i64>().map(Some).map_err(|_| format!("array index {part} is not a number")),
    };
    let (start, end, step) = (number(0)?, number(1)?, number(2)?);
    let is_index = parts.len() == 1;
    let end = if is_index { Some(start.unwrap_or(0).saturating_add(1)) } else { end };
    Ok(ArraySlice { start, end, is_index, step })
}

fn comparison(text: &str) -> Result<Filter, String> {
    let is_operator = |c: char| matches!(c, '!' | '<' | '>' | '=');
    let at = text.find(is_operator).unwrap_or(text.len());
    let length = text[at..].find(|c| !is_operator(c)).unwrap_or(text.len() - at);
    // Both sides need an operand; an operator of two characters gives up its second for it.
    let length = if at + length == text.len() { length.saturating_sub(1) } else { length };
    if at == 0 || length == 0 {
        return Ok(Filter { left: action(text)?, operator: Operator::Exists, right: Vec::new() });
    }
    let (left, operator, right) = (&text[..at], &text[at..at + length], &text[at + length..]);
    Ok(Filter { left: action(left)?, operator: Operator::parse(operator), right: action(right)? })
}

impl Operator {
    fn parse(text: &str) -> Self {
        match text {
            "<" => Self::Less,
            "<=" => Self::LessOrEqual,
            "==" => Self::Equal,
            "!=" => Self::NotEqual,
            ">=" => Self::GreaterOrEqual,
            ">" => Self::Greater,
            _ => Self::Unknown,
        }
    }
}

fn is_terminator(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}
