//! Union of the resources that several clusters serve: pure.
//!
//! Where definitions differ, the majority of clusters decides, and with a tie the first by name. So a single cluster that
//! joins does not change what the others are asked for. Clusters with another definition are named, and none of their
//! objects is shown.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use skopos_fleet::ClusterId;
use skopos_serve::{ResourceType, discovery};

use crate::catalog::Catalog;

/// The resources that one cluster serves beside the built-in kinds.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub(crate) cluster: ClusterId,
    pub(crate) catalog: Arc<Catalog>,
}

/// The resources of all clusters.
#[derive(Debug, Default)]
pub(crate) struct Union {
    /// In discovery's order: groups and versions that most clusters have come first.
    pub(crate) types: Vec<Arc<ResourceType>>,
    /// The clusters with another definition than the one shown, and that definition.
    pub(crate) otherwise: Vec<(ClusterId, String)>,
}

/// Maximum number of reported differences.
const MAX_DIFFERENCES: usize = 100;

/// Returns the definition that most clusters have; `None` if none has the resource. `offers` are sorted by cluster name.
pub(crate) fn elect(offers: &[Offer], group: &str, version: &str, plural: &str) -> Option<Arc<ResourceType>> {
    let mut ballot = Ballot::default();
    for (offer, weight) in distinct(offers) {
        if let Some(resource) = offer.catalog.get(group, version, plural) {
            ballot.cast(resource, weight);
        }
    }
    ballot.winner().cloned()
}

/// Returns the union of all offers. `offers` are sorted by cluster name.
pub(crate) fn unite(offers: &[Offer]) -> Union {
    let mut ballots: BTreeMap<(&str, &str, &str), Ballot<'_>> = BTreeMap::new();
    // The number of clusters per group, and per version of a group.
    let mut groups: BTreeMap<&str, usize> = BTreeMap::new();
    let mut versions: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (offer, weight) in distinct(offers) {
        let (mut own_groups, mut own_versions) = (BTreeSet::new(), BTreeSet::new());
        for resource in offer.catalog.types() {
            let (group, version) = (resource.group.as_str(), resource.version.as_str());
            ballots.entry((group, version, &resource.plural)).or_default().cast(resource, weight);
            own_groups.insert(group);
            own_versions.insert((group, version));
        }
        own_groups.into_iter().for_each(|group| *groups.entry(group).or_default() += weight);
        own_versions.into_iter().for_each(|version| *versions.entry(version).or_default() += weight);
    }
    let mut types: Vec<&Arc<ResourceType>> = ballots.values().filter_map(Ballot::winner).collect();
    let place = |resource: &ResourceType| {
        let (group, version) = (resource.group.as_str(), resource.version.as_str());
        (groups.get(group).copied().unwrap_or_default(), versions.get(&(group, version)).copied())
    };
    types.sort_by(|a, b| {
        let (of_a, of_b) = (place(a), place(b));
        (Reverse(of_a.0), &a.group, Reverse(of_a.1))
            .cmp(&(Reverse(of_b.0), &b.group, Reverse(of_b.1)))
            .then_with(|| discovery::by_stability(&a.version, &b.version))
            .then_with(|| a.plural.cmp(&b.plural))
    });
    let contested = ballots.values().filter(|ballot| ballot.is_contested()).filter_map(Ballot::winner);
    let otherwise = contested.flat_map(|winner| {
        offers.iter().filter_map(|offer| {
            let own = offer.catalog.get(&winner.group, &winner.version, &winner.plural)?;
            (!is_same(own, winner)).then(|| (offer.cluster.clone(), describe(own)))
        })
    });
    Union {
        otherwise: otherwise.take(MAX_DIFFERENCES).collect(),
        types: types.into_iter().cloned().collect(),
    }
}

/// Returns whether both have the same kind and scope.
pub(crate) fn is_same(a: &ResourceType, b: &ResourceType) -> bool {
    (&a.kind, a.namespaced) == (&b.kind, b.namespaced)
}

/// Returns a description of the definition, for users.
pub(crate) fn describe(resource: &ResourceType) -> String {
    let scope = if resource.namespaced { "in namespaces" } else { "outside of namespaces" };
    format!(
        "its {} of {} are of kind {}, {scope}: not merged with those of other clusters",
        resource.group_resource(),
        resource.version,
        resource.kind
    )
}

/// Groups offers with the same catalog: returns the first of each, and their number.
fn distinct(offers: &[Offer]) -> Vec<(&Offer, usize)> {
    let mut places: BTreeMap<*const Catalog, usize> = BTreeMap::new();
    let mut distinct: Vec<(&Offer, usize)> = Vec::new();
    for offer in offers {
        let place = *places.entry(Arc::as_ptr(&offer.catalog)).or_insert(distinct.len());
        match distinct.get_mut(place) {
            Some((_, weight)) => *weight += 1,
            None => distinct.push((offer, 1)),
        }
    }
    distinct
}

/// The definitions of one resource, in the order of the clusters' names, with the number of clusters.
#[derive(Debug, Default)]
struct Ballot<'a> {
    variants: Vec<(&'a Arc<ResourceType>, usize)>,
}

impl<'a> Ballot<'a> {
    fn cast(&mut self, resource: &'a Arc<ResourceType>, weight: usize) {
        match self.variants.iter_mut().find(|(variant, _)| *variant == resource) {
            Some((_, count)) => *count += weight,
            None => self.variants.push((resource, weight)),
        }
    }

    /// Returns the most frequent names among the definitions with the most frequent kind and scope.
    fn winner(&self) -> Option<&'a Arc<ResourceType>> {
        let votes = |variant: &ResourceType| -> usize {
            self.variants.iter().filter(|(other, _)| is_same(variant, other)).map(|(_, count)| count).sum()
        };
        // The first of the greatest.
        let variants = self.variants.iter().rev();
        variants.max_by_key(|(variant, count)| (votes(variant), *count)).map(|(variant, _)| *variant)
    }

    fn is_contested(&self) -> bool {
        self.variants.windows(2).any(|pair| matches!(pair, [(a, _), (b, _)] if !is_same(a, b)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Makes the offer of a cluster that serves these: group, version, plural, kind, scope.
    fn offer(cluster: &str, all: &[(&str, &str, &str, &str, &str)]) -> Offer {
        let items: Vec<Value> = all
            .iter()
            .map(|(group, version, plural, kind, scope)| {
                let resource = json!({"resource": plural, "responseKind": {"kind": kind}, "scope": scope,
                    "verbs": ["list", "watch"]});
                json!({"metadata": {"name": group}, "versions": [{"version": version, "resources": [resource]}]})
            })
            .collect();
        let document = json!({"kind": "APIGroupDiscoveryList", "items": items}).to_string();
        let catalog = Arc::new(Catalog::parse(document.as_bytes()).unwrap());
        assert_eq!(catalog.types().count(), all.len());
        Offer { cluster: ClusterId::new(cluster).unwrap(), catalog }
    }

    const BOATS: (&str, &str, &str, &str, &str) = ("sea.example", "v1", "boats", "Boat", "Namespaced");

    #[test]
    fn majority_elects_kind_and_ties_go_to_first() {
        let other = ("sea.example", "v1", "boats", "Trap", "Cluster");
        let elected = |offers: &[Offer]| elect(offers, "sea.example", "v1", "boats").unwrap().kind.clone();
        let (a, b, c) = (offer("a", &[other]), offer("b", &[BOATS]), offer("c", &[BOATS]));
        assert_eq!(elected(&[a.clone(), b.clone(), c.clone()]), "Boat");
        assert_eq!(elected(&[b.clone(), a.clone()]), "Boat");
        assert_eq!(elected(&[a.clone(), b.clone()]), "Trap");
        // Clusters with the same catalog count one vote each.
        let twin = Offer { cluster: ClusterId::new("d").unwrap(), catalog: b.catalog.clone() };
        assert_eq!(elected(&[a.clone(), b.clone(), twin]), "Boat");
        assert!(elect(std::slice::from_ref(&a), "sea.example", "v2", "boats").is_none());
        let union = unite(&[a, b, c]);
        assert_eq!(union.types.len(), 1);
        let [(cluster, how)] = union.otherwise.as_slice() else { panic!("{union:?}") };
        assert_eq!(cluster.as_str(), "a");
        assert!(how.contains("Trap") && how.contains("outside"), "{how}");
    }

    #[test]
    fn orders_versions_by_cluster_count() {
        let newer = ("sea.example", "v9", "boats", "Boat", "Namespaced");
        let early = ("aaa.example", "v1", "boats", "Trap", "Namespaced");
        let beta = ("sea.example", "v1beta1", "boats", "Boat", "Namespaced");
        let union = unite(&[
            offer("a", &[BOATS, beta, newer, early]),
            offer("b", &[BOATS, beta]),
            offer("c", &[BOATS]),
        ]);
        let names: Vec<String> =
            union.types.iter().map(|resource| format!("{}/{}", resource.group, resource.version)).collect();
        assert_eq!(names, ["sea.example/v1", "sea.example/v1beta1", "sea.example/v9", "aaa.example/v1"]);
        assert!(union.otherwise.is_empty());
    }

    #[test]
    fn one_kind_in_another_scope_is_another() {
        let cluster = ("sea.example", "v1", "boats", "Boat", "Cluster");
        let union = unite(&[offer("a", &[BOATS]), offer("b", &[BOATS]), offer("c", &[cluster])]);
        assert!(union.types[0].namespaced);
        assert_eq!(union.otherwise.len(), 1);
    }
}
