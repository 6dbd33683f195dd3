//! The old paths of watches, `/api/v1/watch/...`, which kube-apiserver still serves. They are rewritten to the current form.

use http::Method;
use skopos_wire::Status;

use super::path::Path;
use super::query::Query;

/// Rewrites an old path of a watch, within a cluster's API, to that of the list with `watch=true`; another path stays.
///
/// Authorization, answer and forwarding are the same for both spellings then.
///
/// # Errors
/// 400 if there are two field selectors.
pub(crate) fn spelled_as_list(method: &Method, path: Path, query: Query) -> Result<(Path, Query), Status> {
    let reads = *method == Method::GET || *method == Method::HEAD;
    let segments: Vec<&str> = path.segments().collect();
    let versioned = match segments.first() {
        Some(&"api") => 2,
        Some(&"apis") => 3,
        _ => return Ok((path, query)),
    };
    let (version, rest) = segments.split_at(versioned.min(segments.len()));
    let Some((&"watch", rest)) = rest.split_first().filter(|_| reads) else { return Ok((path, query)) };
    let (collection, name) = match rest {
        ["namespaces", _, _] | [_] => (rest, None),
        ["namespaces", _, _, name] => (&rest[..3], Some(*name)),
        [_, name] => (&rest[..1], Some(*name)),
        _ => return Ok((path, query)),
    };
    let mut selectors: Vec<String> = query.single("fieldSelector")?.map(str::to_owned).into_iter().collect();
    selectors.retain(|selector| !selector.is_empty());
    selectors.extend(name.map(|name| format!("metadata.name={}", escaped(name))));
    let mut watch = query.without(&["watch", "fieldSelector"]).with("watch", "true");
    if !selectors.is_empty() {
        watch = watch.with("fieldSelector", selectors.join(","));
    }
    Ok((Path::from_segments(version.iter().chain(collection).copied()), watch))
}

/// Returns a value escaped for a field selector: commas, equals signs and backslashes belong to the selector.
fn escaped(name: &str) -> String {
    name.chars().flat_map(|c| matches!(c, ',' | '=' | '\\').then_some('\\').into_iter().chain([c])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(text: &str) -> String {
        let (path, query) = text.split_once('?').unwrap_or((text, ""));
        let (path, query) = (Path::parse(path).unwrap(), Query::parse(query).unwrap());
        let (path, query) = spelled_as_list(&Method::GET, path, query).unwrap();
        match query.to_string() {
            query if query.is_empty() => path.to_string(),
            query => format!("{path}?{query}"),
        }
    }

    #[test]
    fn old_watches_are_lists_with_watch() {
        for (old, new) in [
            ("/api/v1/watch/pods", "/api/v1/pods?watch=true"),
            ("/api/v1/watch/namespaces", "/api/v1/namespaces?watch=true"),
            ("/api/v1/watch/namespaces/a", "/api/v1/namespaces?watch=true&fieldSelector=metadata.name%3Da"),
            ("/api/v1/watch/namespaces/a/pods", "/api/v1/namespaces/a/pods?watch=true"),
            (
                "/apis/apps/v1/watch/namespaces/a/deployments/b?fieldSelector=metadata.namespace%3Da&watch=0",
                "/apis/apps/v1/namespaces/a/deployments?watch=true&fieldSelector=metadata.namespace%3Da%2Cmetadata.name%3Db",
            ),
            (
                "/api/v1/watch/nodes/n?resourceVersion=5",
                "/api/v1/nodes?resourceVersion=5&watch=true&fieldSelector=metadata.name%3Dn",
            ),
            ("/api/v1/watch/pods?limit=1", "/api/v1/pods?limit=1&watch=true"),
        ] {
            assert_eq!(rewritten(old), new);
        }
    }

    #[test]
    fn other_paths_stay() {
        for path in [
            "/api/v1/pods",
            "/api/v1/watch",
            "/apis/apps/v1/watch",
            "/apis/watch/v1/things",
            "/apis/apps/watch",
            "/api/v1/namespaces/watch",
            "/api/v1/namespaces/watch/pods",
            "/api/v1/watch/namespaces/a/pods/b/status",
            "/watch/api/v1/pods",
        ] {
            assert_eq!(rewritten(path), path);
        }
    }

    #[test]
    fn only_reads_are_watches() {
        let (path, query) = (Path::parse("/api/v1/watch/pods").unwrap(), Query::default());
        let deleted = spelled_as_list(&Method::DELETE, path.clone(), query.clone()).unwrap();
        assert_eq!(deleted, (path, query));
    }
}
