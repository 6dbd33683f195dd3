//! Effect of a text on the checksum of the preceding text, precomputed.
//!
//! A CRC is the remainder of a polynomial with coefficients of one bit. Appending n bytes multiplies it by x^8n, and that factor
//! depends on n alone. So a block that stores its factor is appended to any checksum with one multiplication.

/// The factor x^8n modulo the polynomial of CRC-32, the coefficient of x^0 in the highest bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CrcShift(u32);

/// The polynomial without x^32, the coefficient of x^0 in the highest bit.
const POLYNOMIAL: u32 = 0xedb8_8320;

const ONE: u32 = 1 << 31;
/// x^8: the factor of one byte.
const BYTE: u32 = ONE >> 8;

impl CrcShift {
    /// Returns the factor of `bytes` bytes.
    pub(super) fn new(bytes: usize) -> Self {
        let (mut factor, mut power, mut left) = (ONE, BYTE, bytes);
        while left > 0 {
            if left & 1 == 1 {
                factor = product(factor, power);
            }
            power = product(power, power);
            left >>= 1;
        }
        Self(factor)
    }

    /// Returns the checksum shifted by that many zero bytes, without the terms that these bytes add themselves.
    pub(super) fn apply(self, crc: u32) -> u32 {
        product(self.0, crc)
    }
}

/// Returns the product of two polynomials modulo that of CRC-32.
fn product(a: u32, mut b: u32) -> u32 {
    let mut sum = 0;
    for place in (0..32).rev() {
        // No branches: the bits are as good as random.
        sum ^= b & (a >> place & 1).wrapping_neg();
        b = (b >> 1) ^ (POLYNOMIAL & (b & 1).wrapping_neg());
    }
    sum
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn combined_crc_equals_crc_of_concatenation(
            first in prop::collection::vec(any::<u8>(), 0..200),
            second in prop::collection::vec(any::<u8>(), 0..5000),
        ) {
            let both = crc32fast::hash(&[first.as_slice(), &second].concat());
            let combined = CrcShift::new(second.len()).apply(crc32fast::hash(&first)) ^ crc32fast::hash(&second);
            prop_assert_eq!(combined, both);
        }
    }
}
