//! Writes that come through a gateway, as part of the truth.

use skopos_testserver::{EventType, WriteRecord};
use skopos_wire::{Limits, RawObject};

use crate::history::{Change, ClusterId, Fact, Recorder, Shape};

/// What visitors of a gateway write. No informer of a plan has it, so that what is demanded of those stays as it is; and the answer to
/// its deletion does not tell the version.
pub const VISITED: &str = "limitranges";

/// Writes down a change of what visitors write, in the moment in which it is made.
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
