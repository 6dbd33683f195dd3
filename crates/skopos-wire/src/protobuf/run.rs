//! All occurrences of one field of a message.

use super::reader::{BadEncoding, Reader, TRUNCATED, WireValue};

/// All occurrences of a field.
#[derive(Clone, Debug)]
pub(crate) enum Run<'a> {
    Absent,
    One(WireValue<'a>),
    /// As many fields with the same number.
    Fields(Reader<'a>, usize),
    Several(std::vec::IntoIter<WireValue<'a>>),
}

impl<'a> From<Option<WireValue<'a>>> for Run<'a> {
    #[inline]
    fn from(value: Option<WireValue<'a>>) -> Self {
        value.map_or(Self::Absent, Self::One)
    }
}

impl<'a> Run<'a> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Absent => 0,
            Self::One(_) => 1,
            Self::Fields(_, count) => *count,
            Self::Several(values) => values.len(),
        }
    }

    /// Returns numbers of fixed width one by one, those that came packed too.
    pub(crate) fn unpack_doubles(self) -> Result<Self, BadEncoding> {
        self.unpack(|packed, numbers| {
            let (doubles, []) = packed.as_chunks() else { return Err(TRUNCATED) };
            numbers.extend(doubles.iter().map(|bytes| WireValue::Fixed64(u64::from_le_bytes(*bytes))));
            Ok(())
        })
    }

    /// Returns numbers one by one, those that came packed too.
    pub(crate) fn unpack_varints(self) -> Result<Self, BadEncoding> {
        self.unpack(|packed, numbers| {
            let mut reader = Reader::new(packed);
            while !reader.rest().is_empty() {
                numbers.push(WireValue::Varint(reader.varint()?));
            }
            Ok(())
        })
    }

    fn unpack(
        self,
        read: impl Fn(&'a [u8], &mut Vec<WireValue<'a>>) -> Result<(), BadEncoding>,
    ) -> Result<Self, BadEncoding> {
        let mut numbers = Vec::new();
        for value in self {
            match value {
                WireValue::Bytes(packed) => read(packed, &mut numbers)?,
                number => numbers.push(number),
            }
        }
        Ok(Self::Several(numbers.into_iter()))
    }
}

impl<'a> Iterator for Run<'a> {
    type Item = WireValue<'a>;

    fn next(&mut self) -> Option<WireValue<'a>> {
        match self {
            Self::Absent => None,
            Self::One(value) => {
                let value = *value;
                *self = Self::Absent;
                Some(value)
            }
            Self::Fields(fields, count) => {
                *count = count.checked_sub(1)?;
                fields.next().ok()?.map(|(_, value)| value)
            }
            Self::Several(values) => values.next(),
        }
    }

    // Most fields come once.
    #[inline]
    fn last(self) -> Option<WireValue<'a>> {
        match self {
            Self::Absent => None,
            Self::One(value) => Some(value),
            several => several.fold(None, |_, value| Some(value)),
        }
    }
}
