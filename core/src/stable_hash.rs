//! A hash whose results never change: they are part of identifiers that are kept in files and in users'
//! tables.

/// Hashes bytes and numbers, by FNV-1a with a final mixing. It tells texts apart, but does not resist an
/// attacker.
pub struct StableHasher(u64);

impl StableHasher {
    /// Starts a hash.
    pub fn new() -> Self {
        StableHasher(0xcbf2_9ce4_8422_2325)
    }

    /// Adds a byte.
    #[inline(always)]
    pub fn byte(&mut self, byte: u8) {
        self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }

    /// Adds bytes.
    pub fn bytes(&mut self, bytes: impl IntoIterator<Item = u8>) {
        bytes.into_iter().for_each(|byte| self.byte(byte));
    }

    /// Adds a text, and that it ends here.
    pub fn text(&mut self, text: &[u8]) {
        self.bytes(text.iter().copied());
        self.byte(0);
    }

    /// Adds a number.
    pub fn number(&mut self, number: u32) {
        self.bytes(number.to_le_bytes());
    }

    /// Returns the hash. It is never 0.
    pub fn finish(&self) -> i64 {
        let mixed = (self.0 ^ (self.0 >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        match (mixed ^ (mixed >> 32)) as i64 {
            0 => 1,
            hash => hash,
        }
    }
}

impl Default for StableHasher {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_never_change() {
        let mut hasher = StableHasher::new();
        let empty = hasher.finish();
        hasher.bytes(*b"pg_temp");
        let text = hasher.finish();
        hasher.number(23);
        let all = [empty, text, hasher.finish()];
        let expected = [
            -8_831_310_017_513_925_503,
            -5_798_284_950_680_583_385,
            8_188_663_960_953_400_237,
        ];
        assert_eq!(all, expected);
    }
}
