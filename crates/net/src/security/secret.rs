use super::{hex, unhex};
use std::fmt;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// 32 secret bytes: overwritten when dropped, never shown.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub(super) struct Secret([u8; 32]);

impl Secret {
    /// Fresh ones from the operating system's generator.
    pub(super) fn random() -> std::io::Result<Self> {
        let mut bytes = [0; 32];
        fill_random(&mut bytes)?;
        Ok(Self(bytes))
    }

    pub(super) fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub(super) fn from_hex(text: &str) -> Option<Self> {
        unhex(text).map(Self)
    }

    pub(super) fn to_hex(&self) -> Zeroizing<String> {
        Zeroizing::new(hex(&self.0))
    }

    pub(super) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Fills `bytes` from the operating system's generator.
pub(super) fn fill_random(bytes: &mut [u8]) -> std::io::Result<()> {
    getrandom::fill(bytes).map_err(|error| {
        std::io::Error::other(format!("the system's random number generator failed: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_never_shown() {
        let secret = Secret::new([0xab; 32]);
        assert_eq!(format!("{secret:?}"), "Secret(…)");
        assert!(Secret::from_hex(&secret.to_hex()) == Some(secret));
    }
}
