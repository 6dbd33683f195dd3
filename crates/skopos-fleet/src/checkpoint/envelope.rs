//! Small file with a checksum: a line with the format, the SHA-256 of the rest, the rest.

use std::io::{self, Read};

use sha2::{Digest as _, Sha256};

use super::refusal::RefusalReason;

/// The length of SHA-256.
const CHECKSUM: usize = 32;

pub(super) fn wrap(head: &str, body: &[u8]) -> Vec<u8> {
    [head.as_bytes(), b"\n", &Sha256::digest(body)[..], body].concat()
}

/// Returns the body if the file is intact to the last bit. Blocks as long as the reader does.
pub(super) fn unwrap(head: &str, reader: impl Read, most: u64) -> Result<Vec<u8>, RefusalReason> {
    let mut bytes = Vec::new();
    let unreadable = |error: io::Error| RefusalReason::Unreadable(error.to_string());
    reader.take(most.saturating_add(1)).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > most {
        return Err(RefusalReason::Foreign(format!("it has more than {most} bytes")));
    }
    let begins = bytes.strip_prefix(head.as_bytes()).and_then(|rest| rest.strip_prefix(b"\n"));
    let rest = begins.ok_or_else(|| RefusalReason::Damaged(format!("it does not begin with {head:?}")))?;
    match rest.split_at_checked(CHECKSUM) {
        Some((checksum, body)) if Sha256::digest(body)[..] == *checksum => Ok(body.to_vec()),
        _ => Err(RefusalReason::Damaged("the checksum does not fit".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bit_can_be_changed_and_nothing_cut_off() {
        let bytes = wrap("a test 1", b"some body");
        assert_eq!(unwrap("a test 1", &bytes[..], 1000).unwrap(), b"some body");
        for cut in 0..bytes.len() {
            assert!(unwrap("a test 1", &bytes[..cut], 1000).is_err(), "{cut}");
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(unwrap("a test 1", &changed[..], 1000).is_err(), "{at}");
        }
        assert!(matches!(unwrap("a test 1", &bytes[..], 20), Err(RefusalReason::Foreign(_))));
        assert!(matches!(unwrap("a test 2", &bytes[..], 1000), Err(RefusalReason::Damaged(_))));
    }
}
