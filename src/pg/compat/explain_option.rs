//! EXPLAIN's options that extensions add, from 18 on, and their way into auto_explain, from 19 on.

#[cfg(not(pg_ge_18))]
pub use before_18::{of_auto_explain, register};
#[cfg(pg_ge_18)]
pub use from_18::{of_auto_explain, register};

#[cfg(not(pg_ge_18))]
mod before_18 {
    use pgrx::pg_sys::{DefElem, ExplainState, NodeTag, ParseState};
    use std::ffi::{CStr, c_char};

    pub unsafe fn register(
        _name: &'static CStr,
        _apply: unsafe extern "C-unwind" fn(*mut ExplainState, *mut DefElem, *mut ParseState),
        _check: unsafe extern "C-unwind" fn(*const c_char, *const c_char, NodeTag) -> bool,
        _validate: unsafe fn(*mut ExplainState),
    ) {
    }
    pub fn of_auto_explain() -> Option<String> {
        None
    }
}

#[cfg(pg_ge_18)]
mod from_18 {
    use pgrx::pg_guard;
    use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
    use pgrx::pg_sys::{self, DefElem, ExplainState, NodeTag, ParseState};
    use std::ffi::{CStr, c_char};

    static mut PREV_VALIDATE: pg_sys::explain_validate_options_hook_type = None;
    static mut VALIDATE: Option<unsafe fn(*mut ExplainState)> = None;

    pub unsafe fn register(
        name: &'static CStr,
        apply: unsafe extern "C-unwind" fn(*mut ExplainState, *mut DefElem, *mut ParseState),
        check: unsafe extern "C-unwind" fn(*const c_char, *const c_char, NodeTag) -> bool,
        validate_ours: unsafe fn(*mut ExplainState),
    ) {
        // SAFETY: called once from _PG_init, with a static name.
        unsafe {
            VALIDATE = Some(validate_ours);
            #[cfg(not(pg_ge_19))]
            {
                let _ = check;
                pg_sys::RegisterExtensionExplainOption(name.as_ptr(), Some(apply));
            }
            #[cfg(pg_ge_19)]
            pg_sys::RegisterExtensionExplainOption(name.as_ptr(), Some(apply), Some(check));
            PREV_VALIDATE = pg_sys::explain_validate_options_hook;
            pg_sys::explain_validate_options_hook = Some(validate);
        }
    }

    #[pg_guard]
    unsafe extern "C-unwind" fn validate(
        state: *mut ExplainState,
        options: *mut pg_sys::List,
        parse: *mut ParseState,
    ) {
        // SAFETY: PostgreSQL passes valid arguments, which go on unchanged.
        unsafe {
            if let Some(previous) = PREV_VALIDATE {
                pg_guard_ffi_boundary(|| previous(state, options, parse));
            }
            if let Some(ours) = VALIDATE {
                ours(state);
            }
        }
    }

    #[cfg(not(pg_ge_19))]
    pub fn of_auto_explain() -> Option<String> {
        None
    }
    #[cfg(pg_ge_19)]
    pub fn of_auto_explain() -> Option<String> {
        // SAFETY: a static name; missing is answered with null.
        unsafe {
            let text = pg_sys::GetConfigOption(c"auto_explain.log_extension_options".as_ptr(), true, false);
            (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        }
    }
}
