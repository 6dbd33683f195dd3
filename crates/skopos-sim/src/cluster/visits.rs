//! Writes through a gateway, as part of the true state.

use skopos_testserver::{EventType, WriteRecord};
use skopos_wire::{Limits, RawObject};

use crate::history::{Change, ClusterId, Fact, Recorder, Shape};

/// The resource that visitors of a gateway write. No informer of a plan has it, so that the requirements on informers stay
/// unchanged. The answer to its deletion does not contain the version.
pub const VISITED: &str = "limitranges";

/// Records a change of the visitors' objects at the moment of the commit.
pub(super) fn committed(recorder: &Recorder, cluster: ClusterId, record: &WriteRecord) {
    if *record.resource != *VISITED {
        return;
    }
    let Ok(object) = RawObject::from_value(&record.object, &Limits::default()) else { return };
    recorder.record(Fact::Committed {
        cluster,
        resource: recorder.resource(VISITED),
        object: recorder.seen(&object),
        shape: recorder.shape(&Shape::default()),
        change: match record.kind {
            EventType::Added => Change::Created,
            EventType::Modified => Change::Updated,
            EventType::Deleted => Change::Deleted,
        },
    });
}
