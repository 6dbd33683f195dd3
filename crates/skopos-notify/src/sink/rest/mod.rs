//! Inventory of a company, such as its service tree. Items are written by PUT and DELETE of URLs, and read back by a list.
//!
//! A name is the path and query of an item's URL, and its value is the one JSON object at this URL. A PUT of a new item has
//! `If-None-Match: *`, so a server that checks preconditions never lets it overwrite an item of another writer. For items that
//! are ours already there is no precondition: lists have no ETags.

mod answer;
mod body;
mod link;
mod listing;
mod name;
#[cfg(test)]
mod properties;
mod url_template;

use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Uri, header};
use tokio::time::timeout;

use self::body::ItemBody;
pub use self::listing::ItemTemplate;
use self::listing::Listing;
use self::name::Origin;
pub use self::url_template::{UrlTemplate, UrlTemplateError};
use super::{EntryMark, Fence, Observed, Sink, SinkError, SinkStep, SinkTraits, StepAction, StepOutcome};
use crate::entry::{EntryName, EntryValue, Readiness};
use crate::http::{HttpClient, HttpOptions};

/// An inventory behind HTTP.
pub struct RestSink {
    options: RestOptions,
    origin: Origin,
    list: String,
    headers: HeaderMap,
    client: HttpClient,
}

/// Options of an inventory.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestOptions {
    /// The scheme, host and port of all URLs.
    pub base: Uri,
    /// The path and query of the list, or its URL. All listed items are ours, unless `owner_field` says otherwise.
    pub list: String,
    /// The path of the array in the answer. Default: the answer itself, or its `items`.
    pub items: Vec<String>,
    /// The name of a listed item.
    pub item: ItemTemplate,
    /// The fields of the bodies, by which a listed item is compared. An item's other fields are neither written nor read.
    pub fields: Vec<String>,
    /// A field, and our value of it. It is written with each body, and an item without it is left alone.
    pub owner_field: Option<(String, String)>,
    /// The token of `Authorization: Bearer`.
    pub token: Option<String>,
    /// The connection. A list of many pages may take ten times as long as one exchange.
    pub http: HttpOptions,
}

/// Maximum length of one page.
const MAX_PAGE: usize = 64 * 1024 * 1024;
/// Time limit of a list, as a multiple of one exchange's limit.
const LIST_TIMES: u32 = 10;

impl RestOptions {
    /// Returns the defaults for an inventory.
    pub fn new(base: Uri, list: impl Into<String>, item: ItemTemplate) -> Self {
        Self {
            base,
            list: list.into(),
            items: Vec::new(),
            item,
            fields: Vec::new(),
            owner_field: None,
            token: None,
            http: HttpOptions::default(),
        }
    }

    /// Returns the names of the fields that a body may have, in no order.
    fn written_fields(&self) -> impl Iterator<Item = &str> {
        let owner = self.owner_field.iter().map(|(field, _)| field);
        self.fields.iter().chain(owner).map(String::as_str)
    }
}

impl fmt::Debug for RestOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RestOptions")
            .field("base", &self.base)
            .field("list", &self.list)
            .finish_non_exhaustive()
    }
}

impl RestSink {
    /// Makes a sink; it connects with the first call.
    ///
    /// # Errors
    /// When the origin, the list, the token or the CA cannot be used, with the reason for people.
    pub fn new(options: RestOptions) -> Result<Self, String> {
        let origin = Origin::from_uri(&options.base)?;
        let list = origin.path_of(&options.list).and_then(name::normalise);
        let list = list.map_err(|problem| format!("the list {:?}: {problem}", options.list))?;
        let client = HttpClient::new(&options.base, &options.http)?;
        let headers = headers(options.token.as_deref())?;
        Ok(Self { options, origin, list, headers, client })
    }

    async fn list(&self) -> Result<Observed, SinkError> {
        let mut listing = Listing::new(&self.options, &self.origin);
        let mut next = Some(self.list.clone());
        while let Some(path) = next {
            let answer = self.client.get(&path, self.headers.clone(), MAX_PAGE).await;
            let answer = answer.map_err(answer::page_error)?;
            answer::check_page(&path, &answer)?;
            let taken = listing.take(&path, &answer.headers, &answer.body);
            next = taken.map_err(|problem| {
                SinkError::Incomplete(format!("the list of {} at {path}: {problem}", self.client.origin()))
            })?;
        }
        Ok(listing.finish())
    }

    async fn put(&self, step: &SinkStep, value: &EntryValue) -> StepOutcome {
        let mut headers = self.headers.clone();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if step.before.is_none() {
            headers.insert(header::IF_NONE_MATCH, HeaderValue::from_static("*"));
        }
        self.write(Method::PUT, &step.name, headers, Bytes::copy_from_slice(value.as_bytes())).await
    }

    async fn write(&self, method: Method, name: &EntryName, headers: HeaderMap, body: Bytes) -> StepOutcome {
        let is_delete = method == Method::DELETE;
        match self.client.send(method, name.as_str(), headers, body).await {
            Ok(answer) => answer::write_outcome(&answer, is_delete),
            Err(error) => answer::failed_write_outcome(error),
        }
    }
}

#[async_trait]
impl Sink for RestSink {
    fn traits(&self) -> SinkTraits {
        SinkTraits { drains: false, most_values: None }
    }

    fn name(&self, text: &str) -> Result<EntryName, String> {
        Ok(self.origin.item(text)?.into())
    }

    fn value(&self, text: &str) -> Result<EntryValue, String> {
        let mut body = ItemBody::parse(text)?;
        let known = |field: &&String| self.options.written_fields().any(|known| known == *field);
        if let Some(field) = body.0.keys().find(|field| !known(field)) {
            return Err(format!("field {field:?} is not among `fields`, by which items are read back"));
        }
        if let Some((field, ours)) = &self.options.owner_field {
            let says = body.0.insert(field.clone(), ours.clone());
            if says.is_some_and(|says| says != *ours) {
                return Err(format!("field {field:?} says whose it is: it is {ours:?} in all of ours"));
            }
        }
        Ok(body.canonical())
    }

    /// Keeps one value, because an item has one body.
    fn select(&self, members: &mut BTreeMap<EntryValue, Readiness>) {
        let ready = members.iter().find(|(_, readiness)| **readiness == Readiness::Ready);
        let kept = ready.or(members.iter().next()).map(|(value, _)| value.clone());
        members.retain(|value, _| Some(value) == kept.as_ref());
    }

    async fn observe(&self) -> Result<Observed, SinkError> {
        let limit = self.options.http.time_limit.saturating_mul(LIST_TIMES);
        match timeout(limit, self.list()).await {
            Ok(observed) => observed,
            Err(_) => Err(SinkError::Unreachable(format!(
                "{}: the list was not complete in {limit:?}",
                self.client.origin()
            ))),
        }
    }

    async fn apply(&self, step: &SinkStep, _fence: Option<&Fence>) -> StepOutcome {
        if step.before.as_ref().is_some_and(|entry| entry.mark == EntryMark::Foreign) {
            return StepOutcome::Conflict(format!("{} belongs to another program", step.name));
        }
        match new_value(step) {
            Some(value) => self.put(step, value).await,
            None => self.write(Method::DELETE, &step.name, self.headers.clone(), Bytes::new()).await,
        }
    }
}

impl fmt::Debug for RestSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RestSink").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Chooses the value to write: one that is not there yet, which replaces the present one. `None` without values.
fn new_value(step: &SinkStep) -> Option<&EntryValue> {
    let StepAction::Put { members, .. } = &step.action else { return None };
    let is_there =
        |value: &EntryValue| step.before.as_ref().is_some_and(|entry| entry.members.contains_key(value));
    members.keys().find(|value| !is_there(value)).or(members.keys().next())
}

fn headers(token: Option<&str>) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(
        header::USER_AGENT,
        HeaderValue::from_static(concat!("skopos-notify/", env!("CARGO_PKG_VERSION"))),
    );
    if let Some(token) = token {
        let value = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
        let mut value = value.map_err(|_| "the token has characters that no header can have".to_owned())?;
        value.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> RestOptions {
        let item = ItemTemplate::parse("/nodes/{node}/hosts/{ip}").expect("a template");
        let mut options = RestOptions::new(Uri::from_static("https://cmdb.test"), "/hosts?owner=a", item);
        options.fields = vec!["ip".to_owned(), "zone".to_owned()];
        options
    }

    fn sink() -> RestSink {
        RestSink::new(options()).expect("a sink")
    }

    #[tokio::test]
    async fn a_value_has_only_fields_that_are_read_back() {
        let sink = sink();
        assert_eq!(&*sink.value(r#"{"zone":"a","ip":"1"}"#).unwrap(), r#"{"ip":"1","zone":"a"}"#);
        assert!(sink.value(r#"{"rack":"a"}"#).unwrap_err().contains("\"rack\" is not among"));
        let mut options = options();
        options.owner_field = Some(("by".to_owned(), "skopos".to_owned()));
        let sink = RestSink::new(options).unwrap();
        assert_eq!(&*sink.value(r#"{"ip":"1"}"#).unwrap(), r#"{"by":"skopos","ip":"1"}"#);
        assert_eq!(&*sink.value(r#"{"by":"skopos"}"#).unwrap(), r#"{"by":"skopos"}"#);
        assert!(sink.value(r#"{"by":"hand"}"#).unwrap_err().contains("whose it is"));
    }

    #[tokio::test]
    async fn of_many_values_one_is_kept() {
        let sink = sink();
        let kept = |members: &[(&str, Readiness)]| {
            let mut members: BTreeMap<EntryValue, _> =
                members.iter().map(|(value, readiness)| ((*value).into(), *readiness)).collect();
            sink.select(&mut members);
            members.into_keys().collect::<Vec<_>>()
        };
        use Readiness::{NotReady, Ready, Terminating};
        assert_eq!(kept(&[("a", NotReady), ("b", Ready), ("c", Ready)]), ["b".into()]);
        assert_eq!(kept(&[("a", Terminating), ("b", NotReady)]), ["a".into()]);
        assert!(kept(&[]).is_empty());
    }

    #[tokio::test]
    async fn rejects_unusable_options() {
        let problem = |change: &dyn Fn(&mut RestOptions)| {
            let mut options = options();
            change(&mut options);
            RestSink::new(options).unwrap_err()
        };
        let base = |options: &mut RestOptions| options.base = Uri::from_static("https://cmdb.test/api");
        assert!(problem(&base).contains("is no origin"));
        assert!(problem(&|options| options.list = "https://other.test/hosts".into()).contains("one origin"));
        assert!(problem(&|options| options.list = "/a b".into()).contains("percent-encoded"));
        let told = problem(&|options| options.token = Some("se\ncret".into()));
        assert!(told.contains("token") && !told.contains("cret"), "{told}");
        let secret = RestOptions { token: Some("secret".into()), ..options() };
        assert!(!format!("{:?}", RestSink::new(secret).unwrap()).contains("secret"));
        assert!(ItemTemplate::parse("/hosts").unwrap_err().contains("no places"));
    }
}
