//! The grammar of label selectors.
//!
//! Words end at white space and at operator characters. `in` and `notin` are operators only where an operator is allowed,
//! so labels may have these names.

use std::collections::BTreeSet;

use super::label::key_problem;
use super::{LabelOperator, LabelRequirement, ParseError};

pub(super) struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    next: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    End,
    Word,
    Comma,
    Open,
    Close,
    Not,
    Operator(LabelOperator),
}

#[derive(Clone, Copy)]
struct Token<'a> {
    kind: Kind,
    text: &'a str,
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { tokens: tokens(text), next: 0 }
    }

    pub(super) fn parse(mut self) -> Result<Vec<LabelRequirement>, ParseError> {
        let mut requirements = Vec::new();
        match self.peek() {
            Token { kind: Kind::End, .. } => return Ok(requirements),
            Token { kind: Kind::Word | Kind::Not, .. } => {}
            other => return Err(found(other, ", expected: !, identifier, or 'end of string'")),
        }
        loop {
            let requirement = self
                .requirement()
                .map_err(|error| ParseError::new(format!("unable to parse requirement: {error}")))?;
            requirements.push(requirement);
            match self.take() {
                Token { kind: Kind::End, .. } => return Ok(requirements),
                Token { kind: Kind::Comma, .. } => {}
                other => return Err(found(other, ", expected: ',' or 'end of string'")),
            }
            match self.peek() {
                Token { kind: Kind::Word | Kind::Not, .. } => {}
                other => return Err(found(other, ", expected: identifier after ','")),
            }
        }
    }

    fn requirement(&mut self) -> Result<LabelRequirement, ParseError> {
        let negated = self.peek().kind == Kind::Not;
        if negated {
            self.take();
        }
        let key = self.take();
        if key.kind != Kind::Word {
            return Err(found(key, ", expected: identifier"));
        }
        if let Some(problem) = key_problem(key.text, "<nil>") {
            return Err(ParseError::new(problem.to_string()));
        }
        if negated {
            // A following operator is left for the caller, which rejects it.
            return LabelRequirement::new(key.text, LabelOperator::DoesNotExist, NONE);
        }
        if matches!(self.peek().kind, Kind::End | Kind::Comma) {
            return LabelRequirement::new(key.text, LabelOperator::Exists, NONE);
        }
        let operator = self.operator()?;
        let values = match operator {
            LabelOperator::In | LabelOperator::NotIn => self.values()?,
            _ => self.value()?,
        };
        LabelRequirement::new(key.text, operator, values)
    }

    fn operator(&mut self) -> Result<LabelOperator, ParseError> {
        let token = self.take_raw();
        match token.kind {
            Kind::Operator(operator) => Ok(operator),
            _ => Err(found(token, ", expected: in, notin, =, ==, !=, gt, lt")),
        }
    }

    /// Parses the value of an exact match, which may be empty.
    fn value(&mut self) -> Result<BTreeSet<&'a str>, ParseError> {
        if matches!(self.peek().kind, Kind::End | Kind::Comma) {
            return Ok(BTreeSet::from([""]));
        }
        match self.take() {
            Token { kind: Kind::Word, text } => Ok(BTreeSet::from([text])),
            other => Err(found(other, ", expected: identifier")),
        }
    }

    /// Parses the values of a set in parentheses. A missing value before or after a comma is the empty value.
    fn values(&mut self) -> Result<BTreeSet<&'a str>, ParseError> {
        let open = self.take();
        if open.kind != Kind::Open {
            return Err(found(open, " expected: '('"));
        }
        let mut values = BTreeSet::new();
        match self.peek() {
            Token { kind: Kind::Close, .. } => {
                self.take();
                return Ok(BTreeSet::from([""]));
            }
            Token { kind: Kind::Word | Kind::Comma, .. } => {}
            other => return Err(found(other, ", expected: ',', ')' or identifier")),
        }
        loop {
            match self.take() {
                Token { kind: Kind::Word, text } => {
                    values.insert(text);
                    match self.peek() {
                        Token { kind: Kind::Comma, .. } => {}
                        Token { kind: Kind::Close, .. } => break,
                        other => return Err(found(other, ", expected: ',' or ')'")),
                    }
                }
                Token { kind: Kind::Comma, .. } => {
                    if values.is_empty() {
                        values.insert("");
                    }
                    match self.peek().kind {
                        Kind::Close => {
                            values.insert("");
                            break;
                        }
                        Kind::Comma => {
                            self.take();
                            values.insert("");
                        }
                        _ => {}
                    }
                }
                other => return Err(found(other, ", expected: ',', or identifier")),
            }
        }
        self.take();
        Ok(values)
    }

    /// Returns the next token, with `in` and `notin` as words, without consuming it.
    fn peek(&self) -> Token<'a> {
        let token = self.tokens.get(self.next).copied().unwrap_or(END);
        match token.kind {
            Kind::Operator(LabelOperator::In | LabelOperator::NotIn) => Token { kind: Kind::Word, ..token },
            _ => token,
        }
    }

    fn take(&mut self) -> Token<'a> {
        let token = self.peek();
        self.next += 1;
        token
    }

    /// Consumes the next token, with `in` and `notin` as operators.
    fn take_raw(&mut self) -> Token<'a> {
        let token = self.tokens.get(self.next).copied().unwrap_or(END);
        self.next += 1;
        token
    }
}

const NONE: [&str; 0] = [];
const END: Token<'_> = Token { kind: Kind::End, text: "" };

fn found(token: Token<'_>, expected: &str) -> ParseError {
    ParseError::new(format!("found '{}'{expected}", token.text))
}

fn tokens(mut rest: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    loop {
        rest = rest.trim_start_matches(WHITE_SPACE);
        // The API server's scanner treats a NUL as the end, ...
        if rest.is_empty() || rest.starts_with('\0') {
            return tokens;
        }
        let (kind, len) = match SYMBOLS.iter().find(|(symbol, _)| rest.starts_with(symbol)) {
            Some((symbol, kind)) => (*kind, symbol.len()),
            None => {
                let len = rest.find(is_delimiter).unwrap_or(rest.len());
                (word(&rest[..len]), len)
            }
        };
        tokens.push(Token { kind, text: &rest[..len] });
        // ... but as a separator where it ends a token.
        rest = rest[len..].strip_prefix('\0').unwrap_or(&rest[len..]);
    }
}

const WHITE_SPACE: [char; 4] = [' ', '\t', '\r', '\n'];

/// The symbols; the longest match comes first.
const SYMBOLS: [(&str, Kind); 9] = [
    ("==", Kind::Operator(LabelOperator::DoubleEquals)),
    ("!=", Kind::Operator(LabelOperator::NotEquals)),
    ("=", Kind::Operator(LabelOperator::Equals)),
    ("!", Kind::Not),
    (">", Kind::Operator(LabelOperator::GreaterThan)),
    ("<", Kind::Operator(LabelOperator::LessThan)),
    ("(", Kind::Open),
    (")", Kind::Close),
    (",", Kind::Comma),
];

fn is_delimiter(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<' | '\0') || WHITE_SPACE.contains(&c)
}

fn word(text: &str) -> Kind {
    match text {
        "in" => Kind::Operator(LabelOperator::In),
        "notin" => Kind::Operator(LabelOperator::NotIn),
        _ => Kind::Word,
    }
}
