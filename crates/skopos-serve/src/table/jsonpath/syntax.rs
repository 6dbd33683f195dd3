//! Syntax tree of a path.

/// Part of the template: a path in braces, or the text between paths.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Section {
    Text(String),
    Path(Vec<PathNode>),
}

/// Step of a path.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PathNode {
    Field(String),
    /// All fields or items of a value.
    Wildcard,
    /// The value and all its descendants.
    Recursive,
    /// An index or a slice.
    ArraySlice(ArraySlice),
    Union(Vec<Vec<PathNode>>),
    Filter(Filter),
    Text(String),
    Int(i64),
    Float(f64),
    Bool(bool),
    /// A word such as `range`, which is meaningless in a column.
    Word,
}

/// `[START:END:STEP]`; an index is a slice of one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ArraySlice {
    pub(super) start: Option<i64>,
    pub(super) end: Option<i64>,
    /// True if this is an index: the end was not given and is start + 1.
    pub(super) is_index: bool,
    pub(super) step: Option<i64>,
}

/// `[?(LEFT OPERATOR RIGHT)]`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Filter {
    pub(super) left: Vec<PathNode>,
    pub(super) operator: Operator,
    pub(super) right: Vec<PathNode>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Operator {
    /// The left side finds something.
    Exists,
    Less,
    LessOrEqual,
    Equal,
    NotEqual,
    GreaterOrEqual,
    Greater,
    /// An unknown operator: it parses, and fails in evaluation.
    Unknown,
}
