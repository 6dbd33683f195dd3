//! The frames of a port-forward over WebSocket: `v4.channel.k8s.io`, for one port.
//!
//! The first byte of a message is its channel: 0 has the data, 1 has errors. The server's first message on each is the port, as two
//! bytes. See `pkg/kubelet/cri/streaming/portforward/websocket.go` of Kubernetes.

use bytes::{BufMut, Bytes, BytesMut};

/// The subprotocol.
pub(super) const PROTOCOL: &str = "v4.channel.k8s.io";

const DATA: u8 = 0;
const ERROR: u8 = 1;

/// Reader of the server's messages.
#[derive(Debug, Default)]
pub(super) struct FrameReader {
    /// Set for each channel whose port was seen.
    begun: [bool; 2],
}

/// Content of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// Bytes of the pod.
    Data(Bytes),
    /// The reason why the pod cannot be reached, or no longer.
    Error(String),
    /// Nothing for the reader: the port, or an empty message.
    Nothing,
}

impl FrameReader {
    /// Reads a message.
    ///
    /// # Errors
    /// If it is none of this protocol.
    pub(super) fn read(&mut self, mut message: Bytes) -> Result<Frame, String> {
        let Some(channel) = message.first().copied() else { return Ok(Frame::Nothing) };
        let content = message.split_off(1);
        let Some(begun) = self.begun.get_mut(usize::from(channel)) else {
            return Err(format!("a message on channel {channel}, which was not asked for"));
        };
        if !std::mem::replace(begun, true) {
            return match content.len() {
                2 => Ok(Frame::Nothing),
                other => {
                    Err(format!("the first message on channel {channel} has {other} bytes, and is no port"))
                }
            };
        }
        match (channel, content.is_empty()) {
            (_, true) => Ok(Frame::Nothing),
            (ERROR, false) => Ok(Frame::Error(String::from_utf8_lossy(&content).trim().to_owned())),
            _ => Ok(Frame::Data(content)),
        }
    }
}

/// Makes a message with bytes for the pod.
pub(super) fn data(bytes: &[u8]) -> Bytes {
    let mut message = BytesMut::with_capacity(bytes.len() + 1);
    message.put_u8(DATA);
    message.put_slice(bytes);
    message.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(reader: &mut FrameReader, message: &'static [u8]) -> Result<Frame, String> {
        reader.read(Bytes::from_static(message))
    }

    #[test]
    fn ports_precede_data_and_errors() {
        let mut reader = FrameReader::default();
        assert_eq!(read(&mut reader, &[0, 0xfb, 0x20]), Ok(Frame::Nothing));
        assert_eq!(read(&mut reader, &[1, 0xfb, 0x20]), Ok(Frame::Nothing));
        assert_eq!(read(&mut reader, b"\x00hello"), Ok(Frame::Data(Bytes::from_static(b"hello"))));
        assert_eq!(read(&mut reader, b"\x00"), Ok(Frame::Nothing));
        assert_eq!(read(&mut reader, b""), Ok(Frame::Nothing));
        assert_eq!(read(&mut reader, b"\x01refused\n"), Ok(Frame::Error("refused".into())));
    }

    #[test]
    fn other_messages_are_refused() {
        for message in [b"\x02x".as_slice(), b"\xff", b"\x00", b"\x00x", b"\x01abc"] {
            assert!(FrameReader::default().read(Bytes::copy_from_slice(message)).is_err(), "{message:?}");
        }
    }

    #[test]
    fn data_has_its_channel_first() {
        assert_eq!(data(b"ab").as_ref(), b"\x00ab");
    }
}
