//! Reader of the fields of a message, one at a time.

/// The value of a field, as far as the wire encodes its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WireValue<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    /// A text, bytes, a nested message, or packed numbers.
    Bytes(&'a [u8]),
}

/// The fields of a message that were not read yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

/// A defect of the encoding.
pub(crate) type BadEncoding = &'static str;

pub(crate) const TRUNCATED: BadEncoding = "it ends within a field";
pub(crate) const TOO_DEEP: BadEncoding = "it nests too deep";
pub(crate) const WRONG_WIRE_TYPE: BadEncoding = "a field has the wire type of another type";
const LONG_VARINT: BadEncoding = "a number has more than 10 bytes";
pub(crate) const WIRE_TYPE: BadEncoding = "a field has a wire type that Kubernetes does not use";
const FIELD_ZERO: BadEncoding = "a field has the number 0";

impl<'a> Reader<'a> {
    pub(crate) fn new(message: &'a [u8]) -> Self {
        Self(message)
    }

    /// Returns the number and the value of the next field; `None` at the end of the message.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Result<Option<(u32, WireValue<'a>)>, BadEncoding> {
        loop {
            if self.0.is_empty() {
                return Ok(None);
            }
            let tag = self.varint()?;
            let number = u32::try_from(tag >> 3).map_err(|_| FIELD_ZERO)?;
            if number == 0 {
                return Err(FIELD_ZERO);
            }
            let value = match tag & 7 {
                0 => WireValue::Varint(self.varint()?),
                1 => WireValue::Fixed64(u64::from_le_bytes(self.array()?)),
                2 => {
                    let length = self.varint()?;
                    WireValue::Bytes(self.take(usize::try_from(length).map_err(|_| TRUNCATED)?)?)
                }
                3 => {
                    self.skip_group()?;
                    continue;
                }
                5 => WireValue::Fixed32(u32::from_le_bytes(self.array()?)),
                _ => return Err(WIRE_TYPE),
            };
            return Ok(Some((number, value)));
        }
    }

    /// Skips a group, which no type of Kubernetes has, but a newer one may. Groups in it need no recursion.
    #[cold]
    fn skip_group(&mut self) -> Result<(), BadEncoding> {
        let mut open = 1u32;
        while open > 0 {
            match self.varint()? & 7 {
                0 => drop(self.varint()?),
                1 => drop(self.array::<8>()?),
                2 => {
                    let length = self.varint()?;
                    self.take(usize::try_from(length).map_err(|_| TRUNCATED)?)?;
                }
                3 => open = open.saturating_add(1),
                4 => open -= 1,
                5 => drop(self.array::<4>()?),
                _ => return Err(WIRE_TYPE),
            }
        }
        Ok(())
    }

    /// Reads a number of up to 10 bytes with 7 bits each, the low ones first.
    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, BadEncoding> {
        if let Some((&byte, rest)) = self.0.split_first()
            && byte < 0x80
        {
            self.0 = rest;
            return Ok(u64::from(byte));
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Result<u64, BadEncoding> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first().ok_or(TRUNCATED)?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(LONG_VARINT)
    }

    /// Returns the bytes that were not read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.0
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], BadEncoding> {
        let (head, tail) = self.0.split_at_checked(length).ok_or(TRUNCATED)?;
        self.0 = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], BadEncoding> {
        let (head, tail) = self.0.split_first_chunk().ok_or(TRUNCATED)?;
        self.0 = tail;
        Ok(*head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_groups_need_no_stack() {
        let groups = b"\x0b\x0c".repeat(1 << 20);
        assert_eq!(Reader::new(&groups).next(), Ok(None));
        let field = [groups.as_slice(), b"\x08\x07"].concat();
        assert_eq!(Reader::new(&field).next(), Ok(Some((1, WireValue::Varint(7)))));
    }
}
