use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, AES_256_GCM_SIV, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use starhop_proto::security::{Algorithm, NONCE_LEN, SealKey, TAG_LEN};

/// A key of one of the [`Algorithm`]s.
#[derive(Debug)]
pub struct AeadKey(LessSafeKey);

impl AeadKey {
    /// The key whose bytes are the first that `algorithm` needs of `bytes`.
    pub fn new(algorithm: Algorithm, bytes: &[u8; 32]) -> Option<Self> {
        let (algorithm, bytes) = match algorithm {
            Algorithm::Aes128Gcm => (&AES_128_GCM, &bytes[..16]),
            Algorithm::ChaCha20Poly1305 => (&CHACHA20_POLY1305, &bytes[..]),
            Algorithm::Aes256Gcm => (&AES_256_GCM, &bytes[..]),
            Algorithm::Aes256GcmSiv => (&AES_256_GCM_SIV, &bytes[..]),
        };
        UnboundKey::new(algorithm, bytes).ok().map(|key| Self(LessSafeKey::new(key)))
    }

    /// The algorithm with which this machine seals: AES if the processor supports it.
    pub fn best_algorithm() -> Algorithm {
        #[cfg(target_arch = "x86_64")]
        let has_aes =
            std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq");
        #[cfg(target_arch = "aarch64")]
        let has_aes = std::arch::is_aarch64_feature_detected!("aes")
            && std::arch::is_aarch64_feature_detected!("pmull");
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let has_aes = false;
        if has_aes { Algorithm::Aes128Gcm } else { Algorithm::ChaCha20Poly1305 }
    }
}

impl SealKey for AeadKey {
    #[inline]
    fn seal(&self, nonce: [u8; NONCE_LEN], header: &[u8], out: &mut Vec<u8>, start: usize) -> bool {
        let nonce = Nonce::assume_unique_for_key(nonce);
        match self.0.seal_in_place_separate_tag(nonce, Aad::from(header), &mut out[start..]) {
            Ok(tag) => {
                debug_assert_eq!(tag.as_ref().len(), TAG_LEN);
                out.extend_from_slice(tag.as_ref());
                true
            }
            Err(_) => false,
        }
    }

    #[inline]
    fn open<'a>(&self, nonce: [u8; NONCE_LEN], header: &[u8], bytes: &'a mut [u8]) -> Option<&'a [u8]> {
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.0.open_in_place(nonce, Aad::from(header), bytes).ok().map(|opened| &*opened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_opens_and_nothing_else_does() {
        let all = [
            Algorithm::Aes128Gcm,
            Algorithm::ChaCha20Poly1305,
            Algorithm::Aes256Gcm,
            Algorithm::Aes256GcmSiv,
        ];
        for algorithm in all {
            let key = AeadKey::new(algorithm, &[7; 32]).unwrap();
            let mut sealed = b"--packet".to_vec();
            assert!(key.seal([1; 12], b"header", &mut sealed, 2));
            assert_eq!(sealed.len(), 8 + TAG_LEN);
            let open = |nonce, header: &[u8], flip: Option<usize>| {
                let mut bytes = sealed[2..].to_vec();
                flip.into_iter().for_each(|at| bytes[at] ^= 1);
                key.open(nonce, header, &mut bytes).map(<[u8]>::to_vec)
            };
            assert_eq!(open([1; 12], b"header", None).as_deref(), Some(&b"packet"[..]));
            assert_eq!(open([2; 12], b"header", None), None, "another nonce");
            assert_eq!(open([1; 12], b"Header", None), None, "another header");
            for at in 0..6 + TAG_LEN {
                assert_eq!(open([1; 12], b"header", Some(at)), None, "byte {at} was changed");
            }
        }
    }

    /// A restored machine repeats a nonce: GCM then reveals the difference of two packets, GCM-SIV only whether
    /// they are equal.
    #[test]
    fn a_nonce_that_repeats_shows_equality_only_under_gcm_siv() {
        let plain = [[0x11; 40], [0x2f; 40]];
        for (algorithm, shows) in [(Algorithm::Aes256Gcm, true), (Algorithm::Aes256GcmSiv, false)] {
            let key = AeadKey::new(algorithm, &[7; 32]).unwrap();
            let seal = |packet: &[u8; 40]| {
                let mut out = packet.to_vec();
                assert!(key.seal([1; 12], b"header", &mut out, 0));
                out
            };
            let [first, second] = plain.each_ref().map(seal);
            assert_eq!(first, seal(&plain[0]), "equality shows");
            let difference = first.iter().zip(&second).take(40).all(|(a, b)| a ^ b == 0x11 ^ 0x2f);
            assert_eq!(difference, shows, "{algorithm:?}");
        }
    }

    /// The library tests its own key schedule (NIST SP 800-38D, test case 3); this tests that our algorithm is
    /// AES-128-GCM.
    #[test]
    fn the_published_vector_of_aes_128_gcm_holds() {
        // Test case 2 of the GCM specification (McGrew and Viega): key, nonce and 16 bytes of zeros.
        let key = AeadKey::new(Algorithm::Aes128Gcm, &[0; 32]).unwrap();
        let mut out = vec![0; 16];
        assert!(key.seal([0; 12], b"", &mut out, 0));
        let expected = "0388dace60b6a392f328c2b971b2fe78ab6e47d42cec13bdf53a67b21257bddf";
        assert_eq!(super::super::hex(&out), expected);
    }
}
