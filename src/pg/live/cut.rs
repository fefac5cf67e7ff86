//! What others see of a statement in private memory: all but its nodes.
//!
//! Each session has the room for some such statements behind its first block, so that a statement is seen
//! also if no block is left for it. The protocol is that of a block: what was read is of one execution if
//! that was live before and afterwards.

use super::header::{Header, Setup};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU32};

/// For how many statements a session has the room.
pub const CUTS: usize = 8;
/// The bytes of a text that are published.
const TEXT: usize = 320;
/// What a text ends with if it was cut.
const MARK: &str = "...";

/// A statement without its nodes. Zero bytes are one that is not live.
#[repr(C, align(64))]
pub struct Cut {
    pub header: Header,
    /// The bytes of the text.
    size: AtomicU32,
    text: [AtomicU8; TEXT],
}

/// They take one page of 4 kB.
const _: () = assert!(size_of::<[Cut; CUTS]>() == crate::pg::compat::MIN_PAGE);

impl Cut {
    /// Publishes how a statement is measured, and the beginning of its text.
    ///
    /// # Safety
    /// Only the session that owns the area may call this, while no statement is live here.
    pub unsafe fn publish(&self, setup: Setup, text: &str) {
        // SAFETY: the caller promises what the function requires.
        unsafe { self.header.set_up(setup) };
        let is_cut = text.len() > TEXT;
        let end = if is_cut {
            text.floor_char_boundary(TEXT - MARK.len())
        } else {
            text.len()
        };
        let bytes = text[..end].bytes().chain(MARK.bytes().filter(|_| is_cut));
        let size = self
            .text
            .iter()
            .zip(bytes)
            .map(|(to, byte)| to.store(byte, Relaxed));
        self.size.store(size.count() as u32, Relaxed);
    }

    /// Returns the text. It is that of the statement only if the same execution is live before and
    /// afterwards.
    pub fn text(&self) -> String {
        let bytes = self.text.iter().take(self.size.load(Relaxed) as usize);
        let bytes: Vec<u8> = bytes.map(|byte| byte.load(Relaxed)).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
