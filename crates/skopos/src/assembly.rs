//! Assembly of an informer: its store, its list/watches, and the probes that tell them the server's revision.

use std::sync::Arc;

use skopos_reflect::{Form, InitialList, MachineOptions, Resume, Target};
use tokio::time::Instant;

use crate::deadline;
use crate::freshness::{Basis, FreshnessCell, Proof};
use crate::ground::Ground;
use crate::informer::{NextAudit, Shared};
use crate::link::{self, Link, LinkParts};
use crate::options::InformerOptions;
use crate::prober::{Probe, Prober};
use crate::resource::{ResourceId, Scope};
use crate::store::{Content, StoreCore};
use crate::sync::Mutex;

/// Creates the store of an informer, with the restored content. The user's functions compute its indexes; they may be slow,
/// and may call the factory.
pub(crate) fn store_for(ground: &Ground, options: &InformerOptions) -> Arc<StoreCore> {
    let restored = options.restored.as_ref();
    let content = match (restored, &options.scope) {
        (Some(checkpoint), _) => checkpoint.content().clone(),
        (None, Scope::All) => Content::unsynced(),
        (None, Scope::Namespaces(namespaces)) => Content::unsynced_set(namespaces.iter().map(String::as_str)),
    };
    let mut basis = Basis::new(ground.common.clone(), content.parts.len().max(1));
    if let Some(checkpoint) = restored {
        // First: time that passes before the other clock is read counts twice, rather than never.
        let here = Proof::of_now(&ground.common);
        let now = ground.options.wall_clock.now();
        for (index, part) in basis.parts.iter_mut().enumerate() {
            part.restore(here, checkpoint.age_of(index, &now), checkpoint.written_at());
        }
    }
    let store = StoreCore::new(content, FreshnessCell::new(basis));
    options.indexers.iter().for_each(|indexer| drop(store.add_indexer(indexer.clone())));
    options.journal.into_iter().for_each(|journal| store.keep_journal(journal));
    store
}

/// Starts the informer's list/watches, probes and audits.
pub(crate) fn assemble(
    ground: &Arc<Ground>,
    prober: &Arc<Prober>,
    store: Arc<StoreCore>,
    resource: ResourceId,
    form: Form,
    options: InformerOptions,
) -> Shared {
    let targets = targets(&resource, form, &options);
    let restored = options.restored.as_ref();
    let stop = ground.stop.child_token();
    let machine = machine_options(ground, &resource);
    let links: Vec<Link> = targets
        .into_iter()
        .enumerate()
        .map(|(part, target)| {
            link::start(LinkParts {
                ground,
                part,
                resource: &resource,
                target,
                store: &store,
                prober: prober.clone(),
                machine: machine.clone(),
                transform: options.transform.clone(),
                stop: stop.clone(),
                seed: ground.seed(),
                resume: restored.map(|checkpoint| Resume {
                    resource_version: checkpoint.content().rv_of(part).clone(),
                    epoch: checkpoint.content().epoch_of(part),
                }),
            })
        })
        .collect();
    let tell: Vec<_> = links.iter().map(|link| link.handle.clone()).collect();
    let clock = ground.common.clock;
    let listener = Arc::new(move |probe: &Probe| {
        for link in &tell {
            link.probed(clock.at(probe.sent_at), probe.resource_version.clone());
            if link.state().condition.is_failing() {
                link.retry_now();
            }
        }
    });
    let freshness = store.freshness().clone();
    let stands = Arc::new(move |part: usize| freshness.basis().parts[part].link.condition.is_watching());
    let audit_in = ground.options.audit_interval.map(|interval| interval.mul_f64(ground.jitter()));
    // Restored content is compared with the server as soon as possible, even if audits run on demand only.
    let next_audit = NextAudit { at: audit_in.map(deadline::after), confirms_at: Instant::now() };
    Shared {
        ground: ground.clone(),
        resource,
        scope: options.scope,
        probes: prober.subscribe(links.iter().map(|link| link.target.clone()), stands, listener),
        links,
        store,
        labels: options.labels,
        fields: options.fields,
        transform: options.transform,
        stop,
        audits: Mutex::default(),
        next_audit: Mutex::new(Some(next_audit)),
        auditing: tokio::sync::Mutex::new(()),
    }
}

/// Returns one target, or one for each namespace of a set.
fn targets(resource: &ResourceId, form: Form, options: &InformerOptions) -> Vec<Target> {
    let mut all = Target::new(&resource.group, &resource.version, &resource.plural)
        .with_kind(&resource.kind)
        .with_labels(&options.labels)
        .with_fields(&options.fields);
    all.form = form;
    match &options.scope {
        Scope::All => vec![all],
        Scope::Namespaces(namespaces) => {
            namespaces.iter().map(|namespace| all.clone().in_namespace(namespace)).collect()
        }
    }
}

/// Returns the options of a new list/watch, with what others of this resource have learned about the server.
fn machine_options(ground: &Ground, resource: &ResourceId) -> MachineOptions {
    let mut options = ground.options.machine.clone();
    if ground.unstreamed.knows(resource) {
        options.initial = InitialList::Paged;
    }
    options
}
