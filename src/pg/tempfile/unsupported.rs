//! Replaces `interpose` on systems other than Linux, whose import tables this extension cannot read.

/// Refuses to replace anything.
pub fn install() -> Result<(), String> {
    Err("it supports only Linux".into())
}

/// Does nothing, because no request is intercepted.
pub fn per_node(_on: bool) -> bool {
    false
}
