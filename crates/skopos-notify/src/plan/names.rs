use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::entry::EntryName;

/// Returns, in order, the names that only one of two maps has, or whose values differ.
pub(super) fn differing<'a, V>(
    before: &'a BTreeMap<EntryName, V>,
    after: &'a BTreeMap<EntryName, V>,
    is_alike: impl Fn(&V, &V) -> bool + 'a,
) -> impl Iterator<Item = &'a EntryName> + 'a {
    let (mut before, mut after) = (before.iter().peekable(), after.iter().peekable());
    std::iter::from_fn(move || {
        loop {
            let order = match (before.peek(), after.peek()) {
                (Some((old, _)), Some((new, _))) => old.cmp(new),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return None,
            };
            match order {
                Ordering::Less => return before.next().map(|(name, _)| name),
                Ordering::Greater => return after.next().map(|(name, _)| name),
                Ordering::Equal => {
                    let ((_, old), (name, new)) = before.next().zip(after.next())?;
                    if !is_alike(old, new) {
                        return Some(name);
                    }
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differing_includes_names_missing_on_one_side() {
        let of = |pairs: &[(&str, u8)]| -> BTreeMap<EntryName, u8> {
            pairs.iter().map(|(name, value)| ((*name).into(), *value)).collect()
        };
        let (before, after) =
            (of(&[("a", 1), ("b", 1), ("d", 1)]), of(&[("b", 1), ("c", 1), ("d", 2), ("e", 1)]));
        let names: Vec<_> = differing(&before, &after, u8::eq).map(EntryName::as_str).collect();
        assert_eq!(names, ["a", "c", "d", "e"]);
    }
}
