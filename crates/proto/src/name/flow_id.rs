use core::fmt;

/// The name of a flow: 128 bits, random for a live stream, the leading bits of the content hash for a stored
/// object. It never holds an address or a port, so that equal content has an equal name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub [u8; 16]);

impl FlowId {
    /// Bytes on the wire.
    pub const LEN: usize = 16;

    /// The flow of a stored object: the first 128 bits of its content hash (32 bytes, BLAKE3).
    pub fn of_content(hash: &[u8; 32]) -> Self {
        let mut id = [0; Self::LEN];
        id.copy_from_slice(&hash[..Self::LEN]);
        Self(id)
    }
}

impl fmt::Debug for FlowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Display for FlowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
