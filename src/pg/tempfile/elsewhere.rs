//! Other systems than Linux: their import tables are not known here.

pub fn install() -> Result<(), String> {
    Err("that is done on Linux only".into())
}

pub fn per_node(_on: bool) -> bool {
    false
}
