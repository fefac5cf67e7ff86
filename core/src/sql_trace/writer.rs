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
    pub fn line(&mut self, word: &str, cursor: u64) -> Line<'_> {
        let mut line = Line {
            at: self.used,
            buffer: self,
            fits: true,
            separator: b':',
        };
        line.push(word.as_bytes());
        line.push(b" #");
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

/// The most digits of a number.
const DIGITS: usize = 20;

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

    #[inline]
    fn push_number(&mut self, number: u64) {
        let mut digits = [0; DIGITS];
        let (mut rest, mut used) = (number, 0);
        for place in digits.iter_mut().rev() {
            *place = b'0' + (rest % 10) as u8;
            rest /= 10;
            used += 1;
            if rest == 0 {
                break;
            }
        }
        let first = DIGITS.saturating_sub(used);
        self.push(digits.get(first..).unwrap_or_default());
    }

    #[inline]
    fn key(&mut self, key: &str) {
        let separator = std::mem::replace(&mut self.separator, b',');
        self.push(&[separator]);
        self.push(key.as_bytes());
        self.push(b"=");
    }

    /// Adds a number.
    #[inline]
    pub fn number(mut self, key: &str, number: u64) -> Self {
        self.key(key);
        self.push_number(number);
        self
    }

    /// Adds a number that may be negative.
    #[inline]
    pub fn signed(mut self, key: &str, number: i64) -> Self {
        self.key(key);
        if number < 0 {
            self.push(b"-");
        }
        self.push_number(number.unsigned_abs());
        self
    }

    /// Adds a number, unless it is unknown.
    #[inline]
    pub fn known(self, key: &str, number: Option<u64>) -> Self {
        match number {
            Some(number) => self.number(key, number),
            None => self,
        }
    }

    /// Adds a text of letters and digits.
    #[inline]
    pub fn word(mut self, key: &str, word: &[u8]) -> Self {
        self.key(key);
        self.push(word);
        self
    }

    /// Adds the last field, a text. A backslash introduces what has a meaning in the file.
    #[inline]
    pub fn text(self, key: &str, text: &[u8]) -> Self {
        self.words(key, [text])
    }

    /// Adds the last field, a text of several parts.
    #[inline]
    pub fn words<const N: usize>(mut self, key: &str, parts: [&[u8]; N]) -> Self {
        self.key(key);
        for byte in parts.iter().copied().flatten() {
            match byte {
                b'\n' => self.push(b"\\n"),
                b'\r' => self.push(b"\\r"),
                b'\\' => self.push(b"\\\\"),
                other => self.push(&[*other]),
            }
        }
        self
    }

    /// Ends the line. Returns whether it fits.
    #[inline]
    pub fn end(mut self) -> bool {
        self.push(b"\n");
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
                .line("STAT", 7)
                .number("a", 0)
                .signed("b", -10)
                .known("c", None)
                .known("d", Some(u64::MAX))
                .text("op", b"x,\n\\y\r=")
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
    fn a_line_that_does_not_fit_is_lost_as_a_whole() {
        let mut buffer = Buffer::with_room(21).expect("memory");
        assert!(buffer.line("WAIT", 1).number("ela", 5).end());
        assert!(!buffer.line("WAIT", 1).number("ela", 5).end());
        assert_eq!((buffer.lines(), buffer.lost()), (&b"WAIT #1:ela=5\n"[..], 1));
        buffer.lose();
        assert_eq!(buffer.lines(), b"");
        assert_eq!((buffer.take_lost(), buffer.lost()), (2, 0));
        assert!(!Buffer::none().line("WAIT", 1).end());
    }
}
