//! Inventories, as the file has them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use http::Uri;
use schemars::JsonSchema;
use serde::Deserialize;
use skopos_config::Span;

use super::http;
use super::secret::read_secret;
use crate::config::source::PodsConfig;
use crate::desired::{PodSource, PodTemplates, Template};
use crate::sink::rest::{ItemTemplate, RestOptions, RestSink};

/// An inventory behind HTTP, such as a service tree: each pod is an item with a URL, which is PUT and DELETEd. All items are listed to read them back.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RestConfig {
    /// The URL of a pod's item, with `{pod.name}`, `{pod.namespace}`, `{pod.uid}`, `{pod.ip}`, `{pod.node}`, `{pod.label:KEY}` and `{pod.annotation:KEY}`.
    pub url: String,
    /// The fields of the JSON object that is PUT, with the same placeholders. Default: none.
    #[serde(default)]
    pub body: BTreeMap<String, String>,
    /// The URL of the list of the notifier's items, with `{owner}`. Further pages come by `Link: <URL>; rel="next"`.
    pub list: String,
    /// The path of the array in the list, such as `data.hosts`. Default: the answer itself, or its `items`.
    pub items: Option<String>,
    /// The path of a listed item's URL, made of the item's fields, such as `/nodes/{node}/hosts/{ip}`.
    pub item: String,
    /// The owner of the items, for `list` and `ownerField`. Default `skopos`.
    pub owner: Option<String>,
    /// The field with the owner of an item. It is written with each item, and items of others are left alone. Default: all listed items are the notifier's.
    pub owner_field: Option<String>,
    /// The file with the token of `Authorization: Bearer`. Default: none.
    pub token: Option<PathBuf>,
    /// The condition that is set to true when a pod's item exists, for pods with it among their readiness gates.
    pub readiness_gate: Option<String>,
    /// Deadline of an exchange, from the connection to the answer. Default 15s.
    pub timeout: Option<Span>,
    /// File with the CAs of the inventory, in PEM. Default: the system's.
    pub certificate_authority: Option<PathBuf>,
    /// Permitted networks among those that are denied by default: private ones and this machine. Default: none.
    #[serde(default)]
    pub allow: Vec<String>,
}

impl RestConfig {
    pub(super) fn sink(&self) -> Result<RestSink, String> {
        let mut options = self.options()?;
        let token = self.token.as_deref().map(read_secret).transpose()?;
        options.token = token.map(|token| token.trim().to_owned());
        RestSink::new(options)
    }

    /// Returns the options without the secret.
    pub(super) fn options(&self) -> Result<RestOptions, String> {
        let owner = self.owner.as_deref().unwrap_or("skopos");
        let list = Template::parse(&self.list, &["owner"]).map_err(|error| format!("list: {error}"))?;
        let list = list.fill(&BTreeMap::from([("owner", owner)]));
        let item = ItemTemplate::parse(&self.item).map_err(|problem| format!("item: {problem}"))?;
        let mut options = RestOptions::new(origin(&self.url)?, list, item);
        options.items = self.items.iter().flat_map(|path| path.split('.')).map(str::to_owned).collect();
        options.fields = self.body.keys().cloned().collect();
        options.owner_field = self.owner_field.clone().map(|field| (field, owner.to_owned()));
        options.http = http(self.timeout, self.certificate_authority.as_deref(), &self.allow)?;
        Ok(options)
    }

    pub(super) fn source(&self, pods: &PodsConfig) -> Result<PodSource, String> {
        Ok(PodSource {
            namespaces: pods.namespaces.clone(),
            labels: pods.labels.clone(),
            ready: pods.ready.unwrap_or(true),
            item: PodTemplates::parse(&self.url, &self.body).map_err(|error| error.to_string())?,
            gate: self.readiness_gate.clone(),
        })
    }
}

/// Returns the scheme and host of a URL with placeholders in its path.
fn origin(url: &str) -> Result<Uri, String> {
    let none = || {
        format!(
            "url: {url:?} is no URL, such as https://cmdb.example.test/nodes/{{pod.label:tree}}/hosts/{{pod.ip}}"
        )
    };
    let (scheme, rest) = url.split_once("://").ok_or_else(none)?;
    let (host, _) = rest.split_once('/').ok_or_else(none)?;
    format!("{scheme}://{host}").parse().map_err(|_| none())
}
