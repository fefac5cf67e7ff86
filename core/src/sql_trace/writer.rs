//! Writes lines into a buffer of a fixed size.
//!
//! Lines are also written when a wait has ended, inside a system call: nothing here allocates or panics.

/// The buffer. A line that does not fit is lost, and counted.
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
    used: usize,
    lost: u64,
}

/// A line in progress. It must end with [`Line::end`].
#[derive(Debug)]
pub struct Line<'a> {
    buffer: &'a mut Buffer,
    at: usize,
    fits: bool,
    separator: u8,
}

impl Buffer {
    /// Returns a buffer without room: each line is lost.
    pub const fn none() -> Buffer {
        Buffer {
            bytes: Vec::new(),
            used: 0,
            lost: 0,
        }
    }

    /// Returns a buffer with this many bytes; `None` if there is no memory.
    pub fn with_room(room: usize) -> Option<Buffer> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(room).ok()?;
        bytes.resize(room, 0);
        Some(Buffer {
            bytes,
            ..Buffer::none()
        })
    }

    /// Begins a line: a word, and the number of a cursor.
    #[inline]
    pub fn line<const N: usize>(&mut self, word: &[u8; N], cursor: u64) -> Line<'_> {
        self.line_of(cursor, |line| line.put(word))
    }

    /// Begins a line with a word that is not known when this is compiled.
    #[inline]
    pub fn line_with(&mut self, word: &str, cursor: u64) -> Line<'_> {
        self.line_of(cursor, |line| line.push(word.as_bytes()))
    }

    #[inline]
    fn line_of(&mut self, cursor: u64, put_word: impl FnOnce(&mut Line)) -> Line<'_> {
        let mut line = Line {
            at: self.used,
            buffer: self,
            fits: true,
            separator: b':',
        };
        put_word(&mut line);
        line.put(b" #");
        line.push_number(cursor);
        line
    }

    /// Returns the lines.
    #[inline]
    pub fn lines(&self) -> &[u8] {
        self.bytes.get(..self.used).unwrap_or_default()
    }

    /// Returns how many bytes are free.
    #[inline]
    pub fn room(&self) -> usize {
        self.bytes.len().saturating_sub(self.used)
    }

    /// Returns how many bytes it has in all.
    #[inline]
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Removes the lines.
    #[inline]
    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// Removes the lines because they cannot be written, and counts them as lost.
    #[inline]
    pub fn lose(&mut self) {
        let lines = self.lines().iter().filter(|byte| **byte == b'\n').count();
        self.lost = self.lost.saturating_add(lines as u64);
        self.used = 0;
    }

    /// Counts a line that was never written.
    #[inline]
    pub fn lose_line(&mut self) {
        self.lost = self.lost.saturating_add(1);
    }

    /// Returns how many lines were lost.
    #[inline]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns how many lines were lost since this was last called.
    pub fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }
}

/// The digits of the numbers below 100.
const DIGIT_PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        number += 1;
    }
    pairs
};

impl Line<'_> {
    /// Adds bytes as they are.
    #[inline]
    fn push(&mut self, bytes: &[u8]) {
        let end = self.at.saturating_add(bytes.len());
        match self.buffer.bytes.get_mut(self.at..end) {
            Some(place) => {
                for (to, from) in place.iter_mut().zip(bytes) {
                    *to = *from;
                }
                self.at = end;
            }
            None => self.fits = false,
        }
    }

    /// Adds bytes whose number is known when this is compiled, so that they are copied without a loop.
    #[inline]
    fn put<const N: usize>(&mut self, bytes: &[u8; N]) {
        let rest = self.buffer.bytes.get_mut(self.at..);
        match rest.and_then(<[u8]>::first_chunk_mut::<N>) {
            Some(place) => {
                *place = *bytes;
                self.at = self.at.saturating_add(N);
            }
            None => self.fits = false,
        }
    }

    /// Adds a number. The digits go to their places at once: to collect them elsewhere and to copy them takes
    /// longer.
    #[inline]
    fn push_number(&mut self, number: u64) {
        if number < 10 {
            return self.put(&[b'0' + number as u8]);
        }
        if let Some(digits) = DIGIT_PAIRS.get(number as usize) {
            return self.put(digits);
        }
        let used = number.checked_ilog10().unwrap_or(0) as usize + 1;
        let end = self.at.saturating_add(used);
        let Some(places) = self.buffer.bytes.get_mut(self.at..end) else {
            self.fits = false;
            return;
        };
        self.at = end;
        let (mut pairs, mut rest) = (places.rchunks_exact_mut(2), number);
        for pair in &mut pairs {
            if let (Some(place), Some(digits)) = (
                pair.first_chunk_mut::<2>(),
                DIGIT_PAIRS.get((rest % 100) as usize),
            ) {
                *place = *digits;
            }
            rest /= 100;
        }
        if let Some(first) = pairs.into_remainder().first_mut() {
            *first = b'0' + (rest % 10) as u8;
        }
    }

    #[inline]
    fn key<const N: usize>(&mut self, key: &[u8; N]) {
        let separator = std::mem::replace(&mut self.separator, b',');
        let rest = self.buffer.bytes.get_mut(self.at..).unwrap_or_default();
        if rest.len() < N + 2 {
            self.fits = false;
            return;
        }
        if let Some((first, rest)) = rest.split_first_mut()
            && let Some((place, rest)) = rest.split_first_chunk_mut::<N>()
            && let Some(last) = rest.first_mut()
        {
            (*first, *place, *last) = (separator, *key, b'=');
            self.at = self.at.saturating_add(N + 2);
        }
    }

    /// Adds a number.
    #[inline]
    pub fn number<const K: usize>(mut self, key: &[u8; K], number: u64) -> Self {
        self.key(key);
        self.push_number(number);
        self
    }

    /// Adds a number, unless it is 0.
    #[inline]
    pub fn nonzero<const K: usize>(self, key: &[u8; K], number: u64) -> Self {
        match number {
            0 => self,
            _ => self.number(key, number),
        }
    }

    /// Adds a number that may be negative.
    #[inline]
    pub fn signed<const K: usize>(mut self, key: &[u8; K], number: i64) -> Self {
        self.key(key);
        if number < 0 {
            self.put(b"-");
        }
        self.push_number(number.unsigned_abs());
        self
    }

    /// Adds a number, unless it is unknown.
    #[inline]
    pub fn known<const K: usize>(self, key: &[u8; K], number: Option<u64>) -> Self {
        match number {
            Some(number) => self.number(key, number),
            None => self,
        }
    }

    /// Adds a text of letters and digits.
    #[inline]
    pub fn word<const K: usize>(mut self, key: &[u8; K], word: &[u8]) -> Self {
        self.key(key);
        self.push(word);
        self
    }

    /// Adds the last field, a text. A backslash introduces what has a meaning in the file.
    #[inline]
    pub fn text<const K: usize>(self, key: &[u8; K], text: &[u8]) -> Self {
        self.words(key, [text])
    }

    /// Adds the last field, a text of several parts.
    #[inline]
    pub fn words<const K: usize, const N: usize>(mut self, key: &[u8; K], parts: [&[u8]; N]) -> Self {
        self.key(key);
        for part in parts {
            self.push_text(part);
        }
        self
    }

    #[inline]
    fn push_text(&mut self, text: &[u8]) {
        let has_meaning = |byte: &u8| matches!(byte, b'\n' | b'\r' | b'\\');
        if !text.iter().any(has_meaning) {
            self.push(text);
            return;
        }
        for byte in text {
            match byte {
                b'\n' => self.put(b"\\n"),
                b'\r' => self.put(b"\\r"),
                b'\\' => self.put(b"\\\\"),
                other => self.put(&[*other]),
            }
        }
    }

    /// Ends the line. Returns whether it fits.
    #[inline]
    pub fn end(mut self) -> bool {
        self.put(b"\n");
        if self.fits {
            self.buffer.used = self.at;
        } else {
            self.buffer.lose_line();
        }
        self.fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_fields() {
        let mut buffer = Buffer::with_room(200).expect("memory");
        assert!(
            buffer
                .line(b"STAT", 7)
                .number(b"a", 0)
                .signed(b"b", -10)
                .known(b"c", None)
                .known(b"d", Some(u64::MAX))
                .text(b"op", b"x,\n\\y\r=")
                .end()
        );
        assert_eq!(
            std::str::from_utf8(buffer.lines()),
            Ok("STAT #7:a=0,b=-10,d=18446744073709551615,op=x,\\n\\\\y\\r=\n")
        );
        buffer.clear();
        assert_eq!((buffer.lines(), buffer.room()), (&b""[..], 200));
    }

    #[test]
    fn numbers_of_each_length_have_their_digits() {
        let powers = (0..20).map(|power| 10_u64.pow(power));
        for number in powers.flat_map(|power| [power - 1, power, power + 7, power.saturating_mul(9)]) {
            let mut buffer = Buffer::with_room(100).expect("memory");
            assert!(buffer.line(b"X", number).signed(b"n", number as i64).end());
            let expected = format!("X #{number}:n={}\n", number as i64);
            assert_eq!(std::str::from_utf8(buffer.lines()), Ok(expected.as_str()));
        }
    }

    #[test]
    fn a_line_that_does_not_fit_is_lost_as_a_whole() {
        let mut buffer = Buffer::with_room(21).expect("memory");
        assert!(buffer.line(b"WAIT", 1).number(b"ela", 5).end());
        assert!(!buffer.line(b"WAIT", 1).number(b"ela", 5).end());
        assert_eq!((buffer.lines(), buffer.lost()), (&b"WAIT #1:ela=5\n"[..], 1));
        buffer.lose();
        assert_eq!(buffer.lines(), b"");
        assert_eq!((buffer.take_lost(), buffer.lost()), (2, 0));
        assert!(!Buffer::none().line(b"WAIT", 1).end());
    }
}
