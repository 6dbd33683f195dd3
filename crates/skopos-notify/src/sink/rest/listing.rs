//! A list of the inventory, page by page, and its meaning.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use http::HeaderMap;
use serde_json::Value;

use super::body::{ItemBody, plain_text};
use super::name::{Origin, normalise};
use super::url_template::UrlTemplate;
use super::{RestOptions, link};
use crate::entry::EntryName;
use crate::event::FieldPath;
use crate::sink::{EntryMark, Observed, ObservedEntry, ObservedMember};

/// A template of the name of a listed item, such as `/nodes/{node}/hosts/{ip}`. Its placeholders are paths of the item's fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemTemplate {
    url: UrlTemplate,
    fields: BTreeMap<String, FieldPath>,
}

/// The part of a list that was read so far.
pub(super) struct Listing<'a> {
    options: &'a RestOptions,
    origin: &'a Origin,
    observed: Observed,
    /// Paths that were read. A list that leads back to one of them never ends.
    pages: BTreeSet<String>,
    bytes: usize,
}

/// Maximum number of pages of a list.
const MAX_PAGES: usize = 1_000;
/// Maximum length of all pages.
const MAX_BYTES: usize = 256 * 1024 * 1024;
/// Fields by which common inventories report further items within an answer. Without a `Link` such an answer is incomplete.
const MORE: [&str; 10] = [
    "next",
    "nextLink",
    "@odata.nextLink",
    "next_page",
    "nextPage",
    "next_page_token",
    "nextPageToken",
    "next_cursor",
    "nextCursor",
    "has_more",
];

impl ItemTemplate {
    /// Parses a template.
    ///
    /// # Errors
    /// When it is not a template of a URL, or a placeholder is not a path of a field; with the reason for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        let url = UrlTemplate::parse(text).map_err(|error| error.to_string())?;
        let field = |place: &str| Ok((place.to_owned(), place.parse()?));
        let fields: BTreeMap<_, _> = url.places().map(field).collect::<Result<_, String>>()?;
        match fields.is_empty() {
            true => Err(format!("{text:?} has no places: all items would have one name")),
            false => Ok(Self { url, fields }),
        }
    }

    fn fill(&self, item: &Value) -> Result<String, String> {
        let lookup = |place: &str| self.fields.get(place).and_then(|path| plain_text(path.find(item)?));
        self.url.fill(lookup).map_err(|error| error.to_string())
    }
}

impl<'a> Listing<'a> {
    pub(super) fn new(options: &'a RestOptions, origin: &'a Origin) -> Self {
        Self { options, origin, observed: Observed::default(), pages: BTreeSet::new(), bytes: 0 }
    }

    /// Takes the page of this path, and returns the path of the next one.
    pub(super) fn take(
        &mut self,
        path: &str,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Option<String>, String> {
        self.bytes = self.bytes.saturating_add(body.len());
        if self.bytes > MAX_BYTES {
            return Err(format!("all pages together are longer than {MAX_BYTES} bytes"));
        }
        let answer: Value =
            serde_json::from_slice(body).map_err(|error| format!("it is not JSON: {error}"))?;
        let next = self.next(path, headers)?;
        if next.is_none()
            && let Some(field) = MORE.iter().find(|field| says_more(answer.get(**field)))
        {
            return Err(format!(
                "there is more by its field {field:?}, but no Link header with rel=\"next\""
            ));
        }
        let items = items(&answer, &self.options.items)?;
        items.iter().try_for_each(|item| self.add(item))?;
        Ok(next)
    }

    pub(super) fn finish(self) -> Observed {
        self.observed
    }

    fn next(&mut self, path: &str, headers: &HeaderMap) -> Result<Option<String>, String> {
        self.pages.insert(path.to_owned());
        let Some(target) = link::next(headers)? else { return Ok(None) };
        let target = link::resolve(path, &target);
        let next = self.origin.path_of(&target).and_then(normalise);
        let next = next.map_err(|problem| format!("the next page {target:?}: {problem}"))?;
        if self.pages.contains(&next) {
            return Err(format!("the next page {next:?} was there before: the list has no end"));
        }
        match self.pages.len() < MAX_PAGES {
            true => Ok(Some(next)),
            false => Err(format!("the list has more than {MAX_PAGES} pages")),
        }
    }

    fn add(&mut self, item: &Value) -> Result<(), String> {
        let owner = self.options.owner_field.as_ref();
        let says = owner.and_then(|(field, _)| item.get(field)?.as_str());
        let mark = match owner.is_none_or(|(_, ours)| says == Some(ours)) {
            true => EntryMark::Ours(None),
            false => EntryMark::Foreign,
        };
        let name = self.options.item.fill(item).and_then(|name| self.origin.item(&name));
        let name: EntryName = match name {
            Ok(name) => name.into(),
            // An item of another writer whose name cannot be one of ours. An item without an owner may just have an unexpected
            // shape.
            Err(_) if mark == EntryMark::Foreign && says.is_some() => return Ok(()),
            Err(problem) => return Err(format!("the name of an item: {problem}: {}", begin(item))),
        };
        let value = ItemBody::from_item(item, self.options.written_fields()).canonical();
        let members = BTreeMap::from_iter([(value, ObservedMember::default())]);
        let entry = ObservedEntry { mark, members, tidy: true };
        match self.observed.entries.entry(name) {
            Entry::Vacant(free) => drop(free.insert(entry)),
            // A page may begin with the last item of the previous page.
            Entry::Occupied(known) if *known.get() == entry => {}
            Entry::Occupied(known) => {
                return Err(format!("two different items have the name {}: {}", known.key(), begin(item)));
            }
        }
        Ok(())
    }
}

/// Finds the items in an answer.
fn items<'a>(answer: &'a Value, path: &[String]) -> Result<&'a Vec<Value>, String> {
    let found = match path {
        [] if answer.is_array() => Some(answer),
        [] => answer.get("items"),
        path => path.iter().try_fold(answer, |value, field| value.get(field)),
    };
    found.and_then(Value::as_array).ok_or_else(|| {
        let place = if path.is_empty() { "items".to_owned() } else { path.join(".") };
        format!("there is no array at {place:?}: {}", begin(answer))
    })
}

fn says_more(field: Option<&Value>) -> bool {
    match field {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(_) => true,
    }
}

/// Returns the beginning of a value, for people.
fn begin(value: &Value) -> String {
    value.to_string().chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Uri, header};
    use serde_json::json;

    use super::*;

    fn options() -> RestOptions {
        let item = ItemTemplate::parse("/nodes/{node}/hosts/{net.ip}").expect("a template");
        let mut options = RestOptions::new(Uri::from_static("https://cmdb.test"), "/hosts", item);
        options.fields = vec!["ip".to_owned()];
        options
    }

    fn read(options: &RestOptions, answer: &Value) -> Result<Observed, String> {
        let origin = Origin::from_uri(&options.base).expect("an origin");
        let mut listing = Listing::new(options, &origin);
        listing.take("/hosts", &HeaderMap::new(), answer.to_string().as_bytes())?;
        Ok(listing.finish())
    }

    fn item(ip: &str) -> Value {
        json!({"id": 7, "node": "shop", "net": {"ip": ip}, "ip": ip})
    }

    #[test]
    fn items_are_where_they_are_said_to_be() {
        let names = |options: &RestOptions, answer: Value| -> Result<Vec<String>, String> {
            Ok(read(options, &answer)?.entries.keys().map(|name| name.as_str().to_owned()).collect())
        };
        let mut options = options();
        let all = ["/nodes/shop/hosts/10.0.0.1", "/nodes/shop/hosts/10.0.0.2"];
        let two = json!([item("10.0.0.2"), item("10.0.0.1")]);
        assert_eq!(names(&options, two.clone()).unwrap(), all);
        assert_eq!(names(&options, json!({"items": two})).unwrap(), all);
        assert_eq!(names(&options, json!([])).unwrap(), <[&str; 0]>::default());
        for answer in [json!({}), json!({"data": two}), json!({"items": {}}), json!(null), json!("x")] {
            assert!(names(&options, answer).unwrap_err().contains("no array at \"items\""));
        }
        options.items = vec!["data".to_owned(), "hosts".to_owned()];
        assert_eq!(names(&options, json!({"data": {"hosts": two}})).unwrap(), all);
        assert!(names(&options, two).unwrap_err().contains("no array at \"data.hosts\""));
    }

    #[test]
    fn an_item_that_has_no_name_is_an_error() {
        let options = options();
        for (item, part) in [
            (json!({"node": "shop"}), "there is no {net.ip}"),
            (json!({"node": "shop", "net": {"ip": null}}), "there is no {net.ip}"),
            (json!({"node": "..", "net": {"ip": "10.0.0.1"}}), "{node} cannot be"),
            (json!("shop"), "there is no {node}"),
        ] {
            let problem = read(&options, &json!([item])).unwrap_err();
            assert!(problem.contains(part), "{problem}");
        }
        let mut other = item("10.0.0.1");
        other["ip"] = json!("10.0.0.9");
        let problem = read(&options, &json!([item("10.0.0.1"), other])).unwrap_err();
        assert!(problem.contains("two different items"), "{problem}");
        assert_eq!(read(&options, &json!([item("10.0.0.1"), item("10.0.0.1")])).unwrap().entries.len(), 1);
    }

    #[test]
    fn an_item_with_another_owner_is_foreign() {
        let mut options = options();
        options.owner_field = Some(("by".to_owned(), "skopos".to_owned()));
        let owned = |ip: &str, owner: Value| {
            let mut item = item(ip);
            item["by"] = owner;
            item
        };
        let answer = json!([
            owned("10.0.0.1", json!("skopos")),
            owned("10.0.0.2", json!("hand")),
            item("10.0.0.3"),
            // An item of another writer, whose name cannot be one of ours.
            owned("..", json!("hand")),
        ]);
        let observed = read(&options, &answer).unwrap();
        let ours = |ip: &str| {
            let entry = &observed.entries[format!("/nodes/shop/hosts/{ip}").as_str()];
            (entry.mark == EntryMark::Ours(None))
                .then(|| entry.members.keys().next().expect("a value").clone())
        };
        assert_eq!(ours("10.0.0.1").as_deref(), Some(r#"{"by":"skopos","ip":"10.0.0.1"}"#));
        assert_eq!((ours("10.0.0.2"), ours("10.0.0.3"), observed.entries.len()), (None, None, 3));
        assert!(read(&options, &json!([{"error": "no rights"}])).is_err(), "another shape is no empty list");
    }

    #[test]
    fn a_list_has_bounds() {
        let options = options();
        let origin = Origin::from_uri(&options.base).unwrap();
        let mut listing = Listing::new(&options, &origin);
        let mut page = 0;
        let problem = loop {
            let next = format!("<?page={}>; rel=next", page + 1);
            let header = HeaderMap::from_iter([(header::LINK, HeaderValue::from_str(&next).unwrap())]);
            match listing.take(&format!("/hosts?page={page}"), &header, b"[]") {
                Ok(_) => page += 1,
                Err(problem) => break problem,
            }
        };
        assert_eq!((page, problem.contains("more than 1000 pages")), (999, true), "{problem}");
        listing.bytes = MAX_BYTES;
        let problem = listing.take("/hosts", &HeaderMap::new(), b"[]").unwrap_err();
        assert!(problem.contains("longer than"), "{problem}");
    }

    #[test]
    fn a_part_of_a_list_is_an_error() {
        let options = options();
        for (field, value, is_part) in [
            ("next", json!("/hosts?page=2"), true),
            ("next", json!(null), false),
            ("nextPageToken", json!(""), false),
            ("nextPageToken", json!("x"), true),
            ("has_more", json!(true), true),
            ("has_more", json!(false), false),
        ] {
            let answer = json!({"items": [], field: value});
            assert_eq!(read(&options, &answer).is_err(), is_part, "{answer}");
        }
        let origin = Origin::from_uri(&options.base).unwrap();
        let mut listing = Listing::new(&options, &origin);
        let link = |text: &str| HeaderMap::from_iter([(header::LINK, HeaderValue::from_str(text).unwrap())]);
        let next = "<https://cmdb.test/hosts?page=2>; rel=next";
        assert_eq!(listing.take("/hosts", &link(next), b"[]").unwrap().as_deref(), Some("/hosts?page=2"));
        for (target, part) in [
            ("/hosts", "no end"),
            ("?page=2", "no end"),
            ("http://cmdb.test/hosts?page=3", "one origin"),
            ("//evil.test/hosts", "empty segment"),
            ("/hosts/../x", "another path"),
        ] {
            let header = link(&format!("<{target}>; rel=next"));
            let problem = listing.take("/hosts?page=2", &header, b"[]").unwrap_err();
            assert!(problem.contains(part), "{problem}");
        }
        for body in [&b""[..], b"[", b"[{}", b"[] []", b"<html>", b"\xff"] {
            let problem = listing.take("/hosts", &HeaderMap::new(), body).unwrap_err();
            assert!(problem.starts_with("it is not JSON"), "{problem}");
        }
    }
}
