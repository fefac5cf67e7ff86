//! Replaces `table` on systems other than Linux, whose import tables this extension cannot read.

/// Refuses to replace anything.
pub fn install() -> Result<(), String> {
    Err("it supports only Linux".into())
}

/// Does nothing, because nothing is replaced.
pub fn set_enabled(_is_on: bool) {}
