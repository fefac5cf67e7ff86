//! Replaces `table` on systems other than Linux, whose import tables this extension cannot read.

/// Refuses to replace anything.
pub fn install() -> Result<(), String> {
    Err("it supports only Linux".into())
}
