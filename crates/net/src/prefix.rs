//! Prefixes of addresses, as policies and routes name them.

use std::net::IpAddr;

/// Addresses that begin alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix {
    address: IpAddr,
    bits: u8,
}

impl Prefix {
    /// Reads `192.0.2.0/24`, or an address alone.
    ///
    /// # Errors
    /// The fault, as the end of a sentence about the text.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let wrong = "which is no prefix such as 192.0.2.0/24";
        let (address, bits) = text.split_once('/').map_or((text, None), |(ip, bits)| (ip, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| wrong)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), str::parse::<u8>).map_err(|_| wrong)?;
        if bits > most { Err("whose length is too long") } else { Ok(Self { address, bits }) }
    }

    /// The address that it was read with.
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// Bits that addresses have in common.
    pub fn bits(self) -> u8 {
        self.bits
    }

    /// It is of IPv4.
    pub fn is_ipv4(self) -> bool {
        self.address.is_ipv4()
    }

    /// An address begins as it does.
    pub fn contains(self, address: IpAddr) -> bool {
        let differing = match (self.address, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => u128::from(a.to_bits() ^ b.to_bits()) << 96,
            (IpAddr::V6(a), IpAddr::V6(b)) => a.to_bits() ^ b.to_bits(),
            _ => return false,
        };
        differing.leading_zeros() >= u32::from(self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_holds_what_begins_as_it_does() {
        let prefix = Prefix::parse("10.1.0.0/16").unwrap();
        assert!(prefix.contains([10, 1, 2, 3].into()) && !prefix.contains([10, 2, 0, 0].into()));
        let prefix = Prefix::parse("fd00::/8").unwrap();
        assert!(prefix.contains("fd77::1".parse().unwrap()) && !prefix.contains([10, 1, 2, 3].into()));
        assert!(Prefix::parse("0.0.0.0/0").unwrap().contains([1, 2, 3, 4].into()));
        assert!(Prefix::parse("10.0.0.0/33").is_err() && Prefix::parse("ten").is_err());
    }
}
