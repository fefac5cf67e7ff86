//! Options that extensions add to EXPLAIN, from 18 on, and to auto_explain, from 19 on.

#[cfg(not(pg_ge_18))]
pub use before_18::{of_auto_explain, register};
#[cfg(pg_ge_18)]
pub use from_18::{of_auto_explain, register};

#[cfg(not(pg_ge_18))]
mod before_18 {
    use pgrx::pg_sys::{DefElem, ExplainState, NodeTag, ParseState};
    use std::ffi::{CStr, c_char};

    /// Registers an option of EXPLAIN, if extensions can have one.
    ///
    /// # Safety
    /// Only `_PG_init` may call this, once. The functions must be sound to call with the arguments that
    /// PostgreSQL passes to them.
    pub unsafe fn register(
        _name: &'static CStr,
        _apply: unsafe extern "C-unwind" fn(*mut ExplainState, *mut DefElem, *mut ParseState),
        _check: unsafe extern "C-unwind" fn(*const c_char, *const c_char, NodeTag) -> bool,
        _validate: unsafe fn(*mut ExplainState),
    ) {
    }

    /// Returns the options in auto_explain's setting. Before 19 there are none.
    pub fn of_auto_explain() -> Option<String> {
        None
    }
}

#[cfg(pg_ge_18)]
mod from_18 {
    use crate::pg::border::backend_local::BackendLocal;
    use pgrx::pg_guard;
    use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
    use pgrx::pg_sys::{self, DefElem, ExplainState, NodeTag, ParseState};
    use std::cell::Cell;
    use std::ffi::{CStr, c_char};

    static PREV_VALIDATE: BackendLocal<Cell<pg_sys::explain_validate_options_hook_type>> =
        BackendLocal::new(Cell::new(None));
    type Validate = unsafe fn(*mut ExplainState);
    static VALIDATE: BackendLocal<Cell<Option<Validate>>> = BackendLocal::new(Cell::new(None));

    /// Registers an option of EXPLAIN, if extensions can have one.
    ///
    /// # Safety
    /// Only `_PG_init` may call this, once. The functions must be sound to call with the arguments that
    /// PostgreSQL passes to them.
    pub unsafe fn register(
        name: &'static CStr,
        apply: unsafe extern "C-unwind" fn(*mut ExplainState, *mut DefElem, *mut ParseState),
        check: unsafe extern "C-unwind" fn(*const c_char, *const c_char, NodeTag) -> bool,
        validate_option: Validate,
    ) {
        // SAFETY: `_PG_init` calls this once, and the name is static. Each function has the type that
        // PostgreSQL calls.
        unsafe {
            VALIDATE.set(Some(validate_option));
            #[cfg(not(pg_ge_19))]
            {
                let _ = check;
                pg_sys::RegisterExtensionExplainOption(name.as_ptr(), Some(apply));
            }
            #[cfg(pg_ge_19)]
            pg_sys::RegisterExtensionExplainOption(name.as_ptr(), Some(apply), Some(check));
            PREV_VALIDATE.set(pg_sys::explain_validate_options_hook);
            pg_sys::explain_validate_options_hook = Some(validate);
        }
    }

    /// Checks the options of an EXPLAIN, after the previous hook.
    ///
    /// # Safety
    /// Only PostgreSQL may call this, as its hook of this name.
    #[allow(
        clippy::missing_safety_doc,
        reason = "pg_guard makes an inner function without a doc"
    )]
    #[pg_guard]
    #[allow(ffi_unwind_calls, reason = "it is inside of a boundary")]
    unsafe extern "C-unwind" fn validate(
        state: *mut ExplainState,
        options: *mut pg_sys::List,
        parse: *mut ParseState,
    ) {
        // SAFETY: PostgreSQL passes valid arguments, which are passed on unchanged.
        unsafe {
            if let Some(previous) = PREV_VALIDATE.get() {
                pg_guard_ffi_boundary(|| previous(state, options, parse));
            }
            if let Some(validate_option) = VALIDATE.get() {
                validate_option(state);
            }
        }
    }

    /// Returns the options in auto_explain's setting. Before 19 there are none.
    #[cfg(not(pg_ge_19))]
    pub fn of_auto_explain() -> Option<String> {
        None
    }
    /// Returns the options in auto_explain's setting.
    #[cfg(pg_ge_19)]
    pub fn of_auto_explain() -> Option<String> {
        // SAFETY: the name is terminated. For a setting that does not exist the result is null.
        unsafe {
            let text = pg_sys::GetConfigOption(c"auto_explain.log_extension_options".as_ptr(), true, false);
            (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        }
    }
}
