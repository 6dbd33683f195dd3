use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use shuttle::future::block_on;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;
use skopos_transport::{Transport, TransportOptions};

use super::{Happened, explore};
use crate::handler::{HandlerOptions, sync_handler};
use crate::{Event, FactoryOptions, Freshness, Informer, InformerFactory, InformerOptions};

/// Makes a factory whose lists and watches never get a connection: nothing runs on tokio here.
fn factory() -> InformerFactory {
    let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
    let transport = Transport::from_config(config, TransportOptions::default()).unwrap();
    let options = FactoryOptions {
        audit_interval: None,
        keep_transport: true,
        seed: Some(1),
        ..FactoryOptions::default()
    };
    InformerFactory::new(transport, options)
}

fn is_stopped<K>(informer: &Informer<K>) -> bool {
    matches!(informer.freshness(), Freshness::Stopped { .. })
}

#[test]
fn dropped_informer_stops_no_other_handle() {
    let (shared, anew) = (Happened::default(), Happened::default());
    let (note_shared, note_anew) = (shared.clone(), anew.clone());
    explore(move || {
        let factory = factory();
        let users = [(); 3].map(|()| {
            let (factory, note_shared) = (factory.clone(), note_shared.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    let mine = factory.informer::<Pod>(InformerOptions::all()).unwrap();
                    thread::yield_now();
                    let other = factory.informer::<Pod>(InformerOptions::all()).unwrap();
                    assert!(std::sync::Arc::ptr_eq(&mine.shared, &other.shared), "two of the same kind");
                    note_shared.note(std::sync::Arc::strong_count(&mine.shared).saturating_sub(2));
                    if thread_rng().gen_bool(0.5) {
                        let handler = sync_handler(|_: Event<Pod>| {});
                        let handle = mine.add_handler(handler, HandlerOptions::default()).unwrap();
                        drop(mine);
                        drop(other);
                        assert!(!handle.stats().ended, "a handler keeps its informer");
                        block_on(handle.remove(Duration::MAX)).unwrap();
                    } else {
                        drop(other);
                        thread::yield_now();
                        assert!(!is_stopped(&mine), "another handle stopped it");
                    }
                }
            })
        });
        users.into_iter().for_each(|user| user.join().unwrap());
        let last = factory.informer::<Pod>(InformerOptions::all()).unwrap();
        assert!(!is_stopped(&last));
        note_anew.note(usize::from(last.store().stats().handlers == 0));
        let store = last.store();
        drop(last);
        assert!(matches!(store.freshness(), Freshness::Stopped { .. }), "no handle holds it, and it runs");
    });
    shared.check("an informer of two threads");
    anew.check("an informer that was started again");
}

#[test]
fn nothing_runs_or_starts_after_shutdown() {
    let (late, early) = (Happened::default(), Happened::default());
    let (note_late, note_early) = (late.clone(), early.clone());
    explore(move || {
        let factory = factory();
        let users = [0, 1].map(|user| {
            let factory = factory.clone();
            thread::spawn(move || {
                let pods = factory.informer::<Pod>(InformerOptions::all());
                let maps = factory.informer::<ConfigMap>(InformerOptions::namespace(format!("n{user}")));
                (pods.ok(), maps.ok())
            })
        });
        let stopper = {
            let factory = factory.clone();
            thread::spawn(move || block_on(factory.shutdown(Duration::from_millis(1))))
        };
        let informers = users.map(|user| user.join().unwrap());
        stopper.join().unwrap();
        for (pods, maps) in informers {
            let started = usize::from(pods.is_some()) + usize::from(maps.is_some());
            note_early.note(started);
            note_late.note(2 - started);
            assert!(pods.is_none_or(|pods| is_stopped(&pods)), "it runs after the shutdown");
            assert!(maps.is_none_or(|maps| is_stopped(&maps)), "it runs after the shutdown");
        }
        assert!(factory.informer::<Pod>(InformerOptions::all()).is_err());
    });
    late.check("a start after the shutdown");
    early.check("a start before the shutdown");
}
