//! The members of a message in the order of its JSON.

use super::InvalidProtobuf;
use super::reader::{Reader, WRONG_WIRE_TYPE, WireValue};
use super::run::Run;
use super::schema::{FieldPlace, MessageType};
use super::value::{Object, Owner, Value, member};

/// A message whose fields were found, in whatever order they are.
#[derive(Clone, Debug)]
pub(crate) struct View<'a> {
    owner: Owner,
    /// In the order of the members, and within a member of the bytes.
    found: Vec<Found<'a>>,
}

/// A field that was found, with those that follow it and have the same number.
#[derive(Clone, Copy, Debug)]
struct Found<'a> {
    /// The index of the member.
    at: u16,
    first: WireValue<'a>,
    /// The fields from the first one on.
    fields: Reader<'a>,
    count: usize,
}

impl<'a> View<'a> {
    /// Finds the fields of a message.
    pub(crate) fn read(object: &Object<'a>) -> Result<Self, InvalidProtobuf> {
        let owner = object.owner()?;
        let mut view = Self { owner, found: Vec::with_capacity(8) };
        for part in object.parts() {
            view.find(owner.message, 0, part).map_err(owner.invalid())?;
        }
        if !view.found.is_sorted_by_key(|found| found.at) {
            view.found.sort_by_key(|found| found.at);
        }
        Ok(view)
    }

    /// Finds the fields of a message whose members begin at `base`.
    fn find(&mut self, message: &MessageType, base: u16, bytes: &'a [u8]) -> Result<(), &'static str> {
        let mut reader = Reader::new(bytes);
        let mut previous = 0;
        loop {
            let fields = reader;
            let Some((number, value)) = reader.next()? else { return Ok(()) };
            match (message.field(number), value) {
                // A newer server's.
                (None, _) => {}
                (Some(FieldPlace::Member(at)), first) => match self.found.last_mut() {
                    Some(last) if number == previous => last.count += 1,
                    _ => self.found.push(Found { at: base + at, first, fields, count: 1 }),
                },
                (Some(FieldPlace::Inline(inner, at)), WireValue::Bytes(bytes)) => {
                    self.find(inner.get(), base + at, bytes)?;
                }
                (Some(FieldPlace::Inline(..)), _) => return Err(WRONG_WIRE_TYPE),
            }
            previous = number;
        }
    }

    /// Reads the value of the next member from `position` on, moves the position behind it, and returns its name.
    pub(crate) fn next_member(
        &self,
        position: &mut Position,
        value: &mut Value<'a>,
    ) -> Result<Option<&'static str>, InvalidProtobuf> {
        let message = self.owner.message;
        loop {
            let rest = self.found.get(position.found..).unwrap_or_default();
            // Most members of most messages are absent.
            let shown = message.next_shown(position.member);
            let at = rest.first().map_or(shown, |found| shown.min(usize::from(found.at)));
            let Some(field) = message.members.get(at) else { return Ok(None) };
            position.member = at + 1;
            let count = rest.iter().take_while(|found| usize::from(found.at) == at).count();
            position.found += count;
            let run = match &rest[..count] {
                [] => Run::Absent,
                [one] => one.run(),
                several => Run::Several(several.iter().flat_map(Found::run).collect::<Vec<_>>().into_iter()),
            };
            if member(self.owner, field, run, value)? {
                return Ok(Some(field.name));
            }
        }
    }
}

impl<'a> Found<'a> {
    fn run(&self) -> Run<'a> {
        if self.count == 1 { Run::One(self.first) } else { Run::Fields(self.fields, self.count) }
    }
}

/// A position between two members.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Position {
    member: usize,
    found: usize,
}
