//! Evaluation of paths. An error carries the values found before it, because a filter by existence depends on them.

use serde_json::Value;

use super::syntax::{ArraySlice, Filter, Operator, PathNode, Section};

/// Value that a path finds: one of the object, or a literal of the path itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PathValue<'a> {
    /// Value of the object.
    Value(&'a Value),
    /// Quoted text of the path.
    Text(&'a str),
    /// Integer of the path.
    Int(i64),
    /// Float of the path.
    Float(f64),
    /// `true` or `false` in the path.
    Bool(bool),
    /// Byte of a text: a wildcard iterates over them.
    Byte(u8),
}

impl<'a> PathValue<'a> {
    /// Returns the value of the object, if it is one.
    pub fn value(self) -> Option<&'a Value> {
        match self {
            Self::Value(value) => Some(value),
            _ => None,
        }
    }
}

type EvalResult<'a> = Result<Vec<PathValue<'a>>, Vec<PathValue<'a>>>;

/// Returns the first value that the first path finds, if all of them can be evaluated.
pub(super) fn first<'a>(sections: &'a [Section], object: &'a Value) -> Option<PathValue<'a>> {
    let mut first = None;
    for (index, section) in sections.iter().enumerate() {
        let found = match section {
            Section::Text(text) => vec![PathValue::Text(text)],
            Section::Path(nodes) => walk(vec![PathValue::Value(object)], nodes).ok()?,
        };
        if index == 0 {
            first = found.first().copied();
        }
    }
    first
}

fn walk<'a>(input: Vec<PathValue<'a>>, nodes: &'a [PathNode]) -> EvalResult<'a> {
    nodes.iter().try_fold(input, step)
}

fn step<'a>(input: Vec<PathValue<'a>>, node: &'a PathNode) -> EvalResult<'a> {
    match node {
        PathNode::Field(name) => Ok(input.into_iter().filter_map(|found| field(found, name)).collect()),
        PathNode::Wildcard => Ok(input.into_iter().flat_map(children).collect()),
        PathNode::Recursive => {
            let mut all = Vec::new();
            input.into_iter().for_each(|found| descend(found, &mut all));
            Ok(all)
        }
        PathNode::ArraySlice(bounds) => slice(input, *bounds),
        PathNode::Union(paths) => {
            let mut all = Vec::new();
            for path in paths {
                match walk(input.clone(), path) {
                    Ok(found) => all.extend(found),
                    Err(_) => return Err(input),
                }
            }
            Ok(all)
        }
        PathNode::Filter(condition) => filter(input, condition),
        PathNode::Text(text) => Ok(vec![PathValue::Text(text)]),
        PathNode::Int(number) => Ok(vec![PathValue::Int(*number); input.len()]),
        PathNode::Float(number) => Ok(vec![PathValue::Float(*number); input.len()]),
        PathNode::Bool(yes) => Ok(vec![PathValue::Bool(*yes); input.len()]),
        PathNode::Word => Err(input),
    }
}

fn field<'a>(found: PathValue<'a>, name: &str) -> Option<PathValue<'a>> {
    found.value()?.get(name).map(PathValue::Value)
}

fn children(found: PathValue<'_>) -> Vec<PathValue<'_>> {
    match found {
        PathValue::Value(Value::Object(map)) => map.values().map(PathValue::Value).collect(),
        PathValue::Value(Value::Array(items)) => items.iter().map(PathValue::Value).collect(),
        PathValue::Value(Value::String(text)) => text.bytes().map(PathValue::Byte).collect(),
        PathValue::Text(text) => text.bytes().map(PathValue::Byte).collect(),
        _ => Vec::new(),
    }
}

fn descend<'a>(found: PathValue<'a>, all: &mut Vec<PathValue<'a>>) {
    let below = children(found);
    if !below.is_empty() {
        all.push(found);
        below.into_iter().for_each(|found| descend(found, all));
    }
}

fn slice<'a>(input: Vec<PathValue<'a>>, bounds: ArraySlice) -> EvalResult<'a> {
    let mut all = Vec::new();
    for found in &input {
        let items = match found {
            PathValue::Value(Value::Array(items)) => items,
            PathValue::Value(Value::Null) => continue,
            _ => return Err(input),
        };
        let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
        let start = bounds.start.unwrap_or(0);
        let start = if start < 0 { start.saturating_add(length) } else { start };
        let end = bounds.end.unwrap_or(length);
        let from_the_end = end < 0 || (end == 0 && bounds.is_index);
        let end = if from_the_end { end.saturating_add(length) } else { end };
        if start == end {
            return Ok(all);
        }
        let (Ok(from), Ok(to)) = (usize::try_from(start), usize::try_from(end)) else { return Err(input) };
        let step = match bounds.step.map(usize::try_from) {
            None => 1,
            Some(Ok(step)) if step > 0 => step,
            Some(_) => return Err(input),
        };
        match items.get(from..to) {
            Some(items) if from < to => all.extend(items.iter().step_by(step).map(PathValue::Value)),
            _ => return Err(input),
        }
    }
    Ok(all)
}

fn filter<'a>(input: Vec<PathValue<'a>>, condition: &'a Filter) -> EvalResult<'a> {
    let mut all = Vec::new();
    for found in &input {
        let PathValue::Value(Value::Array(items)) = found else { return Err(input) };
        for item in items.iter().map(PathValue::Value) {
            if let (Some(left), Some(right)) = (single(item, &condition.left), single(item, &condition.right))
            {
                match condition.operator.holds_for_single(left, right) {
                    Some(true) => all.push(item),
                    Some(false) => {}
                    None => return Err(all),
                }
                continue;
            }
            let left = walk(vec![item], &condition.left);
            if condition.operator == Operator::Exists {
                if !left.unwrap_or_else(|found| found).is_empty() {
                    all.push(item);
                }
                continue;
            }
            let Ok(left) = left else { return Err(input) };
            let left = match left[..] {
                [] => continue,
                [left] => left,
                _ => return Err(input),
            };
            let Ok(right) = walk(vec![item], &condition.right) else { return Err(input) };
            let right = match right[..] {
                [] => continue,
                [right] => right,
                _ => return Err(input),
            };
            match condition.operator.holds(left, right) {
                Some(true) => all.push(item),
                Some(false) => {}
                None => return Err(all),
            }
        }
    }
    Ok(all)
}

/// Evaluates an operand that finds at most one value, as nearly all do: fields, or a literal. `None` for all others.
fn single<'a>(item: PathValue<'a>, nodes: &'a [PathNode]) -> Option<Option<PathValue<'a>>> {
    match nodes {
        [PathNode::Text(text)] => return Some(Some(PathValue::Text(text))),
        [PathNode::Int(number)] => return Some(Some(PathValue::Int(*number))),
        [PathNode::Bool(yes)] => return Some(Some(PathValue::Bool(*yes))),
        _ => {}
    }
    let mut found = Some(item);
    for node in nodes {
        let PathNode::Field(name) = node else { return None };
        found = found.and_then(|found| field(found, name));
    }
    Some(found)
}

/// Comparable value: with others of its type, and integers with each other.
enum Comparable<'a> {
    Bool(bool),
    Whole(i64),
    Float(f64),
    Text(&'a str),
}

impl Operator {
    /// Returns whether the item passes, given the values of its operands; `None` if they cannot be compared.
    fn holds_for_single(self, left: Option<PathValue<'_>>, right: Option<PathValue<'_>>) -> Option<bool> {
        match (left, right) {
            (left, _) if self == Self::Exists => Some(left.is_some()),
            (Some(left), Some(right)) => self.holds(left, right),
            _ => Some(false),
        }
    }

    /// Compares two values; `None` where they cannot be compared.
    fn holds(self, left: PathValue<'_>, right: PathValue<'_>) -> Option<bool> {
        let (left, right) = (comparable(left)?, comparable(right)?);
        Some(match self {
            Self::Exists | Self::Unknown => return None,
            Self::Equal => equal(&left, &right)?,
            Self::NotEqual => !equal(&left, &right)?,
            Self::Less => less(&left, &right)?,
            Self::LessOrEqual => less(&left, &right)? || equal(&left, &right)?,
            Self::GreaterOrEqual => !less(&left, &right)?,
            Self::Greater => !(less(&left, &right)? || equal(&left, &right)?),
        })
    }
}

fn comparable(found: PathValue<'_>) -> Option<Comparable<'_>> {
    Some(match found {
        PathValue::Value(Value::Bool(yes)) => Comparable::Bool(*yes),
        PathValue::Value(Value::String(text)) => Comparable::Text(text),
        PathValue::Value(Value::Number(number)) => match whole(number) {
            Some(number) => Comparable::Whole(number),
            None => Comparable::Float(number.as_f64()?),
        },
        PathValue::Value(_) => return None,
        PathValue::Text(text) => Comparable::Text(text),
        PathValue::Int(number) => Comparable::Whole(number),
        PathValue::Float(number) => Comparable::Float(number),
        PathValue::Bool(yes) => Comparable::Bool(yes),
        PathValue::Byte(byte) => Comparable::Whole(byte.into()),
    })
}

fn equal(left: &Comparable<'_>, right: &Comparable<'_>) -> Option<bool> {
    Some(match (left, right) {
        (Comparable::Bool(left), Comparable::Bool(right)) => left == right,
        (Comparable::Whole(left), Comparable::Whole(right)) => left == right,
        (Comparable::Float(left), Comparable::Float(right)) => left == right,
        (Comparable::Text(left), Comparable::Text(right)) => left == right,
        _ => return None,
    })
}

fn less(left: &Comparable<'_>, right: &Comparable<'_>) -> Option<bool> {
    Some(match (left, right) {
        (Comparable::Whole(left), Comparable::Whole(right)) => left < right,
        (Comparable::Float(left), Comparable::Float(right)) => left < right,
        (Comparable::Text(left), Comparable::Text(right)) => left < right,
        _ => return None,
    })
}

/// Returns the number as kube-apiserver has it in memory, if it is an integer there: `2.0` is stored as `2`.
pub(super) fn whole(number: &serde_json::Number) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let short = |float: &f64| float.fract() == 0.0 && float.abs() <= EXACT;
    number
        .as_i64()
        .or_else(|| number.as_f64().filter(|_| number.is_f64()).filter(short).map(|float| float as i64))
}
