use std::io::Cursor;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;
use skopos_reflect::Form;
use skopos_wire::{Limits, RawObject};

use super::header::{ContentIdentity, Header, HeaderPart};
use super::*;
use crate::informer::options::InformerOptions;
use crate::informer::resource::{ResourceId, Scope};
use crate::informer::transform::Transform;
use crate::store::object::StoredObject;
use crate::store::tree::Tree;
use crate::store::{RestoredPart, StoreContent};
use crate::testing::{cases, object};

fn identity(options: &InformerOptions) -> ContentIdentity {
    let resource = ResourceId {
        group: "apps".into(),
        version: "v1".into(),
        plural: "deployments".into(),
        kind: "Deployment".into(),
    };
    options.identity(Some("c1"), &resource, Form::Full)
}

/// Makes a checkpoint of some objects in each of these namespaces.
fn checkpoint(namespaces: &[&str], objects: usize) -> Checkpoint {
    let written = WallTime::new(UNIX_EPOCH + Duration::from_secs(1000), None);
    let scope = match namespaces {
        [] => InformerOptions::all(),
        some => InformerOptions::namespaces(some.iter().copied()),
    };
    let names: Vec<Option<&str>> = match namespaces {
        [] => vec![None],
        some => some.iter().copied().map(Some).collect(),
    };
    let parts = names.iter().enumerate().map(|(n, namespace)| HeaderPart {
        namespace: namespace.map(str::to_owned),
        resource_version: (100 + n as u64).into(),
        epoch: n as u64,
        proven: written.before(Duration::from_secs(10 * (n as u64 + 1))),
    });
    let header = Header { identity: identity(&scope), written: written.clone(), parts: parts.collect() };
    let entries = names.iter().flat_map(|namespace| {
        let namespace = namespace.unwrap_or("ns");
        (0..objects)
            .map(move |n| StoredObject::new(object(namespace, &format!("o{n:05}"), "u", 1 + n as u64)))
    });
    let restored = names.iter().enumerate().map(|(n, namespace)| RestoredPart {
        namespace: namespace.map(Into::into),
        rv: (100 + n as u64).into(),
        epoch: n as u64,
    });
    let content = StoreContent::restored(restored.collect(), Tree::from_sorted(entries.collect()));
    Checkpoint { header: Arc::new(header), content: Arc::new(content) }
}

fn bytes(checkpoint: &Checkpoint) -> Vec<u8> {
    let mut bytes = Vec::new();
    let written = checkpoint.write_to(&mut bytes).unwrap();
    assert_eq!(written, Written { bytes: bytes.len() as u64, objects: checkpoint.objects() });
    bytes
}

fn read(bytes: &[u8]) -> Result<Checkpoint, CheckpointError> {
    Checkpoint::read_from(Cursor::new(bytes), &CheckpointLimits::default())
}

#[test]
fn written_checkpoint_reads_back_equal() {
    for (namespaces, objects) in [(&[][..], 0), (&[][..], 1), (&[][..], 9000), (&["a", "b"][..], 20)] {
        let written = checkpoint(namespaces, objects);
        let found = read(&bytes(&written)).unwrap();
        assert!(found.is_same_content(&written), "{found:?}");
        assert_eq!(found.header, written.header);
        let json = |checkpoint: &Checkpoint| -> Vec<_> {
            checkpoint.content.objects.iter().map(|entry| entry.raw().content().clone()).collect()
        };
        assert_eq!(json(&found), json(&written));
        assert_eq!(found.json_bytes(), written.json_bytes());
        assert!(found.content.synced && found.content.is_restored(0));
        assert_eq!((found.epoch(), found.cluster()), (written.epoch(), Some("c1")));
    }
    let set = read(&bytes(&checkpoint(&["a", "b"], 1))).unwrap();
    let at =
        |secs| RestartClock::from_fn(move || WallTime::new(UNIX_EPOCH + Duration::from_secs(secs), None));
    assert!(set.age(&at(1100)).is_some_and(|age| age >= Duration::from_secs(120)), "the older part counts");
    assert_eq!(set.age(&at(999)), None, "by a clock that is behind, nothing is proven");
}

#[test]
fn content_rewritten_at_same_versions_differs() {
    let whole = checkpoint(&[], 2);
    let mut content = StoreContent::clone(&whole.content);
    let json = br#"{"metadata":{"name":"o00001","namespace":"ns","uid":"u","resourceVersion":"2"},"defaulted":true}"#;
    content.put(StoredObject::new(RawObject::scan(json.as_slice().into(), &Limits::default()).unwrap()));
    let rewritten = Checkpoint { content: Arc::new(content), ..whole.clone() };
    assert_eq!(rewritten.content.digest, whole.content.digest);
    assert!(!rewritten.is_same_content(&whole) && !rewritten.mark().has_same_objects(&whole.mark()));
}

#[test]
fn every_bit_and_every_byte_counts() {
    let whole = bytes(&checkpoint(&[], 40));
    assert!(whole.len() < 4000, "small enough to try them all: {}", whole.len());
    for at in 0..whole.len() {
        assert!(read(&whole[..at]).is_err(), "cut off at {at}");
        for bit in 0..8 {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << bit;
            assert!(read(&flipped).is_err(), "bit {bit} of byte {at}");
        }
    }
    let cut = |at: usize| read(&whole[..at]).unwrap_err();
    assert!(matches!(cut(0), CheckpointError::Truncated));
    assert!(matches!(cut(whole.len() - 1), CheckpointError::Truncated));
    let mut longer = whole.clone();
    longer.push(0);
    assert!(matches!(read(&longer), Err(CheckpointError::Malformed { .. })));
    let mut newer = whole.clone();
    newer[8] = 2;
    assert!(matches!(read(&newer), Err(CheckpointError::Version { found: 2, known: 1 })));
    assert!(matches!(read(b"{\"kind\":\"List\",\"items\":[]}"), Err(CheckpointError::NotACheckpoint)));
}

#[test]
fn reader_enforces_checkpoint_limits() {
    let whole = bytes(&checkpoint(&[], 40));
    let limited = |limits: CheckpointLimits| Checkpoint::read_from(Cursor::new(&whole), &limits).unwrap_err();
    let most = CheckpointLimits::default();
    let few = limited(CheckpointLimits { objects: 39, ..most.clone() });
    assert!(matches!(few, CheckpointError::TooLarge { what: "objects", limit: 39 }));
    let small = limited(CheckpointLimits { bytes: 1000, ..most.clone() });
    assert!(matches!(small, CheckpointError::TooLarge { what: "bytes", .. }));
    let object = limited(CheckpointLimits { object_bytes: 10, ..most });
    assert!(matches!(object, CheckpointError::Malformed { .. }));
    // A head that claims four gigabytes.
    let mut boast = whole[..12].to_vec();
    boast.extend([b'B', 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    assert!(matches!(read(&boast), Err(CheckpointError::TooLarge { .. })));
}

#[test]
fn content_of_something_else_is_foreign() {
    let own = identity(&InformerOptions::all());
    let differs = |change: &dyn Fn(&mut ContentIdentity)| {
        let mut other = own.clone();
        change(&mut other);
        own.expect(&other).unwrap_err().what
    };
    assert_eq!(own.expect(&own.clone()), Ok(()));
    assert_eq!(differs(&|other| other.cluster = None), "cluster");
    assert_eq!(differs(&|other| other.resource.version = "v2".into()), "kind of object");
    assert_eq!(differs(&|other| other.metadata_only = true), "form");
    assert_eq!(differs(&|other| other.scope = Scope::Namespaces(vec!["a".into()])), "scope");
    assert_eq!(differs(&|other| other.labels = "a=b".into()), "label selector");
    assert_eq!(differs(&|other| other.fields = "a=b".into()), "field selector");
    let transform = Transform::DropManagedFields.name().to_owned();
    assert_eq!(differs(&|other| other.transform.clone_from(&transform)), "transform");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(64), ..ProptestConfig::default() })]

    #[test]
    fn damage_of_any_kind_is_refused(
        objects in 0usize..3000,
        at in any::<prop::sample::Index>(),
        len in 0usize..64,
        how in 0u8..3,
        with in any::<u8>(),
    ) {
        let whole = bytes(&checkpoint(&[], objects));
        let at = at.index(whole.len());
        let end = (at + len).min(whole.len());
        let mut damaged = whole.clone();
        match how {
            0 => damaged.truncate(at),
            1 => drop(damaged.drain(at..end)),
            _ => damaged[at..end].fill(with),
        }
        prop_assert_eq!(read(&damaged).is_ok(), damaged == whole);
    }

    #[test]
    fn any_bytes_are_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), begins in any::<bool>()) {
        if begins {
            bytes.splice(0..0, *b"skoposCP\x01\0\0\0");
        }
        prop_assert!(read(&bytes).is_err());
    }
}
