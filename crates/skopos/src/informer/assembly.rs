//! Assembly of an informer: its store, its list/watches, and the probes that tell them the server's revision.

use std::sync::Arc;

use skopos_reflect::{Form, InitialList, MachineOptions, Resume, Target};
use tokio::time::Instant;

use super::compaction::Compaction;
use super::options::InformerOptions;
use super::reflector::{self, Reflector, ReflectorParts};
use super::resource::{ResourceId, Scope};
use super::{InformerInner, NextAudit};
use crate::factory::context::FactoryContext;
use crate::freshness::prober::{Probe, Prober};
use crate::freshness::{Evidence, FreshnessCell, Proof};
use crate::store::{StoreContent, StoreCore};
use crate::sync::{Mutex, deadline};

/// Creates the store of an informer, with the restored content. The user's functions compute its indexes; they may be slow,
/// and may call the factory.
pub(crate) fn store_for(
    context: &FactoryContext,
    options: &InformerOptions,
    compaction: &mut Compaction,
) -> Arc<StoreCore> {
    let restored = options.restored.as_ref();
    let mut content = match (restored, &options.scope) {
        (Some(checkpoint), _) => checkpoint.content().clone(),
        (None, Scope::All) => StoreContent::unsynced(),
        (None, Scope::Namespaces(namespaces)) => {
            StoreContent::unsynced_set(namespaces.iter().map(String::as_str))
        }
    };
    content.compact(|object| compaction.listed(object));
    let mut evidence = Evidence::new(context.freshness.clone(), content.parts.len().max(1));
    if let Some(checkpoint) = restored {
        // First: time that passes before the other clock is read counts twice, rather than never.
        let here = Proof::now(&context.freshness);
        let now = context.options.restart_clock.now();
        for (index, part) in evidence.parts.iter_mut().enumerate() {
            part.restore(here, checkpoint.age_of(index, &now), checkpoint.written_at());
        }
    }
    let store = StoreCore::new(content, FreshnessCell::new(evidence));
    options.indexers.iter().for_each(|indexer| drop(store.add_indexer(indexer.clone())));
    options.journal.into_iter().for_each(|journal| store.keep_journal(journal));
    store
}

/// Starts the informer's list/watches, probes and audits.
pub(crate) fn assemble(
    context: &Arc<FactoryContext>,
    prober: &Arc<Prober>,
    store: Arc<StoreCore>,
    resource: ResourceId,
    form: Form,
    compaction: &Compaction,
    options: InformerOptions,
) -> InformerInner {
    let targets = targets(&resource, form, &options);
    let restored = options.restored.as_ref();
    let stop = context.stop.child_token();
    let machine = machine_options(context, &resource);
    let reflectors: Vec<Reflector> = targets
        .into_iter()
        .enumerate()
        .map(|(part, target)| {
            reflector::start(ReflectorParts {
                context,
                part,
                resource: &resource,
                target,
                store: &store,
                prober: prober.clone(),
                machine: machine.clone(),
                transform: options.transform.clone(),
                compaction: compaction.clone(),
                stop: stop.clone(),
                seed: context.seed(),
                resume: restored.map(|checkpoint| Resume {
                    resource_version: checkpoint.content().rv_of(part).clone(),
                    epoch: checkpoint.content().epoch_of(part),
                }),
            })
        })
        .collect();
    let handles: Vec<_> = reflectors.iter().map(|reflector| reflector.handle.clone()).collect();
    let clock = context.freshness.clock;
    let listener = Arc::new(move |probe: &Probe| {
        for reflector in &handles {
            reflector.probed(clock.at(probe.sent_at), probe.resource_version.clone());
            if reflector.state().condition.is_failing() {
                reflector.retry_now();
            }
        }
    });
    let freshness = store.freshness().clone();
    let is_watching =
        Arc::new(move |part: usize| freshness.evidence().parts[part].reflector.condition.is_watching());
    let audit_in = context.options.audit_interval.map(|interval| interval.mul_f64(context.jitter()));
    // Restored content is compared with the server as soon as possible, even if audits run on demand only.
    let next_audit = NextAudit { at: audit_in.map(deadline::after), confirms_at: Instant::now() };
    InformerInner {
        context: context.clone(),
        resource,
        scope: options.scope,
        probes: prober.subscribe(
            reflectors.iter().map(|reflector| reflector.target.clone()),
            is_watching,
            listener,
        ),
        reflectors,
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
fn machine_options(context: &FactoryContext, resource: &ResourceId) -> MachineOptions {
    let mut options = context.options.machine.clone();
    if context.watch_list_support.is_unsupported(resource) {
        options.initial = InitialList::Paged;
    }
    options
}
