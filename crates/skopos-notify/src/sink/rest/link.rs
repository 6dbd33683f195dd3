//! The next page of a list, from a `Link` header (RFC 8288).

use http::{HeaderMap, header};

/// Returns the target of `rel="next"`. An unreadable link is an error: an overlooked link would make a part of a list look
/// complete.
pub(super) fn next(headers: &HeaderMap) -> Result<Option<String>, String> {
    let mut found: Option<String> = None;
    for value in headers.get_all(header::LINK) {
        let text = value.to_str().map_err(|_| "a Link header is not ASCII".to_owned())?;
        let links = links(text).ok_or_else(|| format!("a Link header cannot be read: {text:?}"))?;
        for target in links.into_iter().filter(|link| link.is_next).map(|link| link.target) {
            match &found {
                Some(other) if *other != target => {
                    return Err(format!("there are two next pages: {other:?} and {target:?}"));
                }
                _ => found = Some(target),
            }
        }
    }
    Ok(found)
}

/// Resolves the target of a link on the page of this path.
pub(super) fn resolve(page: &str, target: &str) -> String {
    let path = page.split('?').next().unwrap_or_default();
    let folder = path.rfind('/').map_or("/", |slash| &path[..=slash]);
    match target {
        // A URL, an absolute path, or the beginning of another host's URL, which is refused where paths are parsed.
        _ if target.starts_with('/') || target.contains("://") => target.to_owned(),
        "" => page.to_owned(),
        _ if target.starts_with('?') => format!("{path}{target}"),
        _ => format!("{folder}{target}"),
    }
}

struct Link {
    target: String,
    is_next: bool,
}

/// Parses `<target>; name=value; name="value", …`.
fn links(text: &str) -> Option<Vec<Link>> {
    let mut links = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        // Empty elements of a list are allowed (RFC 9110 5.6.1).
        if let Some(after) = rest.strip_prefix(',') {
            rest = after.trim_start();
            continue;
        }
        let (target, after) = rest.strip_prefix('<')?.split_once('>')?;
        let mut link = Link { target: target.trim().to_owned(), is_next: false };
        let mut has_rel = false;
        rest = after.trim_start();
        while let Some(after) = rest.strip_prefix(';') {
            let (name, value, after) = parameter(after.trim_start())?;
            // The first `rel` counts (RFC 8288 3.3).
            if name.eq_ignore_ascii_case("rel") && !has_rel {
                has_rel = true;
                link.is_next = value.split_ascii_whitespace().any(|rel| rel.eq_ignore_ascii_case("next"));
            }
            rest = after.trim_start();
        }
        if !rest.is_empty() && !rest.starts_with(',') {
            return None;
        }
        links.push(link);
    }
    Some(links)
}

/// Parses one parameter; returns its name, its value, and the text behind it.
fn parameter(text: &str) -> Option<(&str, String, &str)> {
    let end = text.find(['=', ';', ',']).unwrap_or(text.len());
    let (name, rest) = (text[..end].trim_end(), &text[end..]);
    let Some(rest) = rest.strip_prefix('=').map(str::trim_start) else {
        return Some((name, String::new(), rest));
    };
    let Some(quoted) = rest.strip_prefix('"') else {
        let end = rest.find([';', ',']).unwrap_or(rest.len());
        return Some((name, rest[..end].trim_end().to_owned(), &rest[end..]));
    };
    let mut value = String::new();
    let mut characters = quoted.chars();
    loop {
        match characters.next()? {
            '"' => return Some((name, value, characters.as_str())),
            '\\' => value.push(characters.next()?),
            other => value.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[&str]) -> Result<Option<String>, String> {
        let value = |text: &&str| (header::LINK, text.parse().expect("a header"));
        next(&values.iter().map(value).collect())
    }

    #[test]
    fn finds_next_page_link() {
        let cases = [
            (&["</a?p=2>; rel=\"next\""][..], Some("/a?p=2")),
            (&["</a>; rel=prev, </b>;rel=next"], Some("/b")),
            (&["</a>; rel=first", "</b>; title=\"x, \\\"<y>; rel=next\"; REL=\"last NEXT\""], Some("/b")),
            (&["</a>; rel=last; rel=next"], None),
            (&["</a,b;c>; rel=next"], Some("/a,b;c")),
            (&[", </a> ; crossorigin ; rel = next ,"], Some("/a")),
            (&["</a>; rel=next, </a>; rel=next"], Some("/a")),
            (&["</a>"], None),
            (&[""], None),
            (&[], None),
        ];
        for (values, expected) in cases {
            assert_eq!(of(values).unwrap().as_deref(), expected, "{values:?}");
        }
    }

    #[test]
    fn a_link_that_cannot_be_read_is_an_error() {
        for text in
            ["/a; rel=next", "</a; rel=next", "</a>; rel=\"next", "</a> rel=next", "</a>; rel=\"next\"x"]
        {
            assert!(of(&[text]).unwrap_err().contains("cannot be read"), "{text}");
        }
        assert!(of(&["</a>; rel=next", "</b>; rel=next"]).unwrap_err().contains("two next pages"));
    }

    #[test]
    fn a_link_is_resolved_on_its_page() {
        let cases = [
            ("/c", "/c"),
            ("https://other.test/c", "https://other.test/c"),
            ("?p=2", "/a/b?p=2"),
            ("c?p=2", "/a/c?p=2"),
            ("", "/a/b?p=1"),
            ("//other.test/c", "//other.test/c"),
        ];
        for (target, expected) in cases {
            assert_eq!(resolve("/a/b?p=1", target), expected);
        }
    }
}
