//! Requests to the servers: I5, I14 and I15.

mod apart;
mod beside;
mod load;
mod paced;
mod resumed;
mod window;

use std::collections::HashMap;
use std::time::Duration;

use super::{Case, Verdict};
use crate::history::{At, ClusterId, InformerId, Names, Selection, Target, TargetId};

pub(super) fn check(case: &Case<'_>, verdict: &mut Verdict) {
    resumed::check(case, verdict);
    apart::check(case, verdict);
    load::check(case, verdict);
    paced::check(case, verdict);
    beside::check(case, verdict);
}

/// Maximum time for which a request may be in flight, and so have begun before the store's later progress.
const ON_ITS_WAY: Duration = Duration::from_secs(100);

/// Owners of requests, by their targets.
pub(super) struct Owners {
    by_target: HashMap<(ClusterId, Target), Vec<(InformerId, usize)>>,
}

impl Owners {
    pub(super) fn of(case: &Case<'_>) -> Self {
        let mut by_target: HashMap<_, Vec<_>> = HashMap::new();
        for (id, informer) in (0..).map(InformerId).zip(&case.history.cast.informers) {
            let resource = &case.history.names.resources[informer.resource.index()];
            for (view, target) in targets(resource, &informer.selection).into_iter().enumerate() {
                by_target.entry((case.cluster_of(id), target)).or_default().push((id, view));
            }
        }
        Self { by_target }
    }

    pub(super) fn all(
        &self,
        case: &Case<'_>,
        cluster: ClusterId,
        target: TargetId,
    ) -> &[(InformerId, usize)] {
        let target = case.history.names.targets[target.index()].clone();
        self.by_target.get(&(cluster, target)).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the list/watch that sent a request, if only one can have.
    fn only(
        &self,
        case: &Case<'_>,
        cluster: ClusterId,
        target: TargetId,
        at: At,
    ) -> Option<(InformerId, usize)> {
        let alive = |(informer, _): &&(InformerId, usize)| {
            let life = case.lives.informer(*informer);
            life.from.is_some_and(|from| from <= at) && life.to.is_none_or(|to| to.plus(ON_ITS_WAY) > at)
        };
        let mut alive = self.all(case, cluster, target).iter().filter(alive);
        let only = alive.next().copied();
        only.filter(|_| alive.next().is_none())
    }
}

/// Returns the targets of an informer's requests: one for each view.
pub(super) fn targets(resource: &str, selection: &Selection) -> Vec<Target> {
    let target = |namespace: Option<&String>| Target {
        resource: resource.to_owned(),
        namespace: namespace.cloned(),
        labels: selection.label_selector(),
        fields: selection.field_selector(),
    };
    match selection.namespaces.as_slice() {
        [] => vec![target(None)],
        namespaces => namespaces.iter().map(|namespace| target(Some(namespace))).collect(),
    }
}

pub(super) fn text(names: &Names, target: TargetId) -> String {
    let Target { resource, namespace, labels, fields } = &names.targets[target.index()];
    let place = namespace.as_ref().map_or(String::new(), |namespace| format!(" in {namespace}"));
    let selectors: String =
        [labels, fields].into_iter().filter(|text| !text.is_empty()).map(|text| format!(" {text}")).collect();
    format!("{resource}{place}{selectors}")
}
