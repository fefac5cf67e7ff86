//! Defines settings whose values are checked by functions, and settings whose values are words.
//!
//! Checks are safe Rust functions. PostgreSQL needs a hook for each of them. Each hook is one instance of a
//! generic function of this file.

use crate::pg::border::unguarded;
use crate::pg::{compat, server};
use pgrx::guc::{GucCheckError, GucEnum, GucValue};
use pgrx::pg_sys::panic::pgrx_extern_c_guard;
use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting, pg_sys};
use std::ffi::{CStr, CString, c_int, c_void};
use std::ops::RangeInclusive;
use std::ptr::NonNull;

/// Returns a setting's value as PostgreSQL last assigned it. Unlike [`GucSetting::get`], this has no guard.
#[inline(always)]
pub fn value<T: GucValue>(setting: &GucSetting<T>) -> T {
    // SAFETY: `setting` owns the value, which only this thread writes. PostgreSQL checked it before it
    // assigned it.
    unsafe { T::from_raw(setting.as_ptr().read()) }
}

/// Returns whether a setting whose value is a list of words, with commas between them, has this word.
pub fn list_has(setting: &GucSetting<Option<CString>>, word: &[u8]) -> bool {
    // SAFETY: `setting` owns the value, which only this thread writes. It is null or a C string.
    let list = unsafe {
        let list = setting.as_ptr().read();
        if list.is_null() {
            return false;
        }
        CStr::from_ptr(list).to_bytes()
    };
    let mut words = list.split(|byte| *byte == b',');
    words.any(|listed| listed.trim_ascii() == word)
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin(pg_sys::GucSource::Type);

impl Origin {
    /// Returns whether this is the built-in value.
    pub fn is_default(self) -> bool {
        self.0 == pg_sys::GucSource::PGC_S_DEFAULT
    }

    /// Returns whether the value was set in the configuration file, for a database or role, or in the
    /// session.
    pub fn is_explicit(self) -> bool {
        self.0 > pg_sys::GucSource::PGC_S_DYNAMIC_DEFAULT
    }

    /// Returns whether a `SET` in this session set the value.
    pub fn is_session(self) -> bool {
        self.0 == pg_sys::GucSource::PGC_S_SESSION
    }

    /// Returns whether the server or a library set the value by [`override_int`]. Users cannot do that.
    pub fn is_override(self) -> bool {
        self.0 == pg_sys::GucSource::PGC_S_OVERRIDE
    }
}

/// Why a value is refused.
pub struct Refusal {
    /// The error's message.
    pub message: String,
    /// More about the reason, and what to do about it.
    pub detail_and_hint: Option<(String, String)>,
}

/// The name and properties of a setting.
pub struct About {
    /// The name with its prefix.
    pub name: &'static CStr,
    /// One sentence for `pg_settings.short_desc`.
    pub summary: &'static CStr,
    /// More sentences, for `pg_settings.extra_desc`.
    pub details: &'static CStr,
    /// Who may set it, and when.
    pub context: GucContext,
    /// Its unit, and where it is shown.
    pub flags: GucFlags,
}

/// Defines an integer setting. `check` may refuse a value; it must be a function, or a closure that captures
/// nothing.
pub fn define_checked_int<C>(
    setting: &'static GucSetting<i32>,
    about: About,
    range: RangeInclusive<i32>,
    check: C,
) where
    C: Check<i32>,
{
    define_assigned_int(setting, about, range, check, |_, _| ());
}

/// Defines an integer setting as [`define_checked_int`] does. `assign` is called when PostgreSQL assigns a
/// value; it must be a function, or a closure that captures nothing.
pub fn define_assigned_int<C, A>(
    setting: &'static GucSetting<i32>,
    about: About,
    range: RangeInclusive<i32>,
    check: C,
    assign: A,
) where
    C: Check<i32>,
    A: Fn(i32, Origin) + Copy + 'static,
{
    let _ = (check, assign);
    // SAFETY: the hooks are guarded. Both are instances for this setting's type, and `assign_hook` gets the
    // extra data that `check_hook` stored.
    unsafe {
        GucRegistry::define_int_guc_with_hooks(
            about.name,
            about.summary,
            about.details,
            setting,
            *range.start(),
            *range.end(),
            about.context,
            about.flags,
            Some(check_hook::<i32, C, true>),
            Some(assign_hook::<i32, A>),
            None,
        );
    }
}

/// Defines a setting that is on or off. `assign` is called when PostgreSQL assigns a value; it must be a
/// function, or a closure that captures nothing.
pub fn define_assigned_bool<A>(setting: &'static GucSetting<bool>, about: About, assign: A)
where
    A: Fn(bool) + Copy + 'static,
{
    let _ = assign;
    // SAFETY: the hook is guarded, and it is an instance for this function.
    unsafe {
        GucRegistry::define_bool_guc_with_hooks(
            about.name,
            about.summary,
            about.details,
            setting,
            about.context,
            about.flags,
            None,
            Some(assign_bool_hook::<A>),
            None,
        );
    }
}

/// Defines a setting whose values are words. `check` may refuse a word; it must be a function, or a closure
/// that captures nothing.
pub fn define_checked_enum<T, C>(setting: &'static GucSetting<T>, about: About, check: C)
where
    T: GucEnum,
    C: Check<T>,
{
    define_assigned_enum(setting, about, check, |_, _| ());
}

/// Defines a setting whose values are words. `check` may refuse a word, and `assign` is called when
/// PostgreSQL assigns one; both must be functions, or closures that capture nothing.
pub fn define_assigned_enum<T, C, A>(setting: &'static GucSetting<T>, about: About, check: C, assign: A)
where
    T: GucEnum,
    C: Check<T>,
    A: Fn(T, Origin) + Copy + 'static,
{
    let _ = (check, assign);
    // SAFETY: the hooks are guarded. Both are instances for this setting's type, and `assign_hook` gets the
    // extra data that `check_hook` stored.
    unsafe {
        GucRegistry::define_enum_guc_with_hooks(
            about.name,
            about.summary,
            about.details,
            setting,
            about.context,
            about.flags,
            Some(check_hook::<T, C, true>),
            Some(assign_hook::<T, A>),
            None,
        );
    }
}

/// Defines a setting whose value is a text. `check` may refuse it; it must be a function, or a closure
/// that captures nothing.
pub fn define_checked_text<C>(setting: &'static GucSetting<Option<CString>>, about: About, check: C)
where
    C: Check<Option<CString>>,
{
    let _ = check;
    // SAFETY: the hook is guarded, and it is an instance for this setting's type.
    unsafe {
        GucRegistry::define_string_guc_with_hooks(
            about.name,
            about.summary,
            about.details,
            setting,
            about.context,
            about.flags,
            Some(check_hook::<Option<CString>, C, false>),
            None,
            None,
        );
    }
}

/// A check of a setting's values.
pub trait Check<T>: Fn(T, Origin) -> Result<(), Refusal> + Copy + 'static {}
impl<T, C: Fn(T, Origin) -> Result<(), Refusal> + Copy + 'static> Check<T> for C {}

/// Returns the value of a function type that captures nothing.
///
/// # Safety
/// A value of the type must have existed before.
unsafe fn instance<F: Copy + 'static>() -> F {
    const { assert!(size_of::<F>() == 0, "a check must not capture anything") };
    // SAFETY: the type has no bytes, so any aligned address is valid for it. It has a value, by the caller's
    // promise.
    unsafe { NonNull::<F>::dangling().read() }
}

/// Calls a check, and stores its refusal for PostgreSQL's error. If `STORE_ORIGIN` is set, it also stores the
/// value's origin for [`assign_hook`].
///
/// # Safety
/// * Only PostgreSQL may call this, as the check hook of a setting of type `T`.
/// * A value of the type `C` must have existed before.
unsafe extern "C-unwind" fn check_hook<T, C, const STORE_ORIGIN: bool>(
    new: *mut T::Raw,
    extra: *mut *mut c_void,
    source: pg_sys::GucSource::Type,
) -> bool
where
    T: GucValue,
    C: Check<T>,
{
    // SAFETY: PostgreSQL passes the address of a new value of the setting, and room for the address of the
    // extra data, which it frees. The guard turns a panic or error of the check into PostgreSQL's error.
    unsafe {
        pgrx_extern_c_guard(|| {
            let check = instance::<C>();
            if let Err(refusal) = check(T::from_raw(*new), Origin(source)) {
                let mut error = GucCheckError::new(refusal.message);
                if let Some((detail, hint)) = refusal.detail_and_hint {
                    error = error.with_detail(detail).with_hint(hint);
                }
                error.apply();
                return false;
            }
            if !STORE_ORIGIN {
                return true;
            }
            let origin: *mut Origin = compat::guc_malloc(size_of::<Origin>()).cast();
            if origin.is_null() {
                return false;
            }
            origin.write(Origin(source));
            *extra = origin.cast();
            true
        })
    }
}

/// Calls a setting's function for a value that PostgreSQL assigns.
///
/// # Safety
/// * Only PostgreSQL may call this, as the assign hook of a setting whose check hook is [`check_hook`].
/// * A value of the type `A` must have existed before.
unsafe extern "C-unwind" fn assign_hook<T, A>(new: c_int, extra: *mut c_void)
where
    T: GucValue<Raw = i32>,
    A: Fn(T, Origin) + Copy + 'static,
{
    // SAFETY: PostgreSQL passes a checked value, and the extra data that `check_hook` stored for it, or null.
    unsafe {
        pgrx_extern_c_guard(|| {
            let origin = extra.cast::<Origin>().as_ref().copied();
            let assign = instance::<A>();
            assign(
                T::from_raw(new),
                origin.unwrap_or(Origin(pg_sys::GucSource::PGC_S_DEFAULT)),
            );
        });
    }
}

/// Calls a setting's function for a value that PostgreSQL assigns.
///
/// # Safety
/// * Only PostgreSQL may call this, as the assign hook of a setting that is on or off.
/// * A value of the type `A` must have existed before.
unsafe extern "C-unwind" fn assign_bool_hook<A: Fn(bool) + Copy + 'static>(new: bool, _extra: *mut c_void) {
    // SAFETY: the caller promises that there was a value. The guard turns a panic into PostgreSQL's error.
    unsafe { pgrx_extern_c_guard(|| instance::<A>()(new)) }
}

/// Sets an integer setting with a source that users cannot use. A rollback does not undo this. In parallel
/// mode, PostgreSQL refuses to set any: then the value is just replaced, which parallel workers see if it was
/// set before.
pub fn override_int(name: &CStr, setting: &'static GucSetting<i32>, value: i32) {
    if server::is_parallel_mode() {
        // SAFETY: `setting` owns the value, which only this thread uses.
        unsafe { setting.as_ptr().write(value) };
        return;
    }
    let value = CString::new(value.to_string()).unwrap_or_default();
    let by = (pg_sys::GucContext::PGC_USERSET, pg_sys::GucSource::PGC_S_OVERRIDE);
    set(name, &value, by, pg_sys::GucAction::GUC_ACTION_SET);
}

/// Sets a setting as a superuser's SET does: a rollback undoes it.
pub fn set_in_session(name: &CStr, value: &CStr) {
    let by = (pg_sys::GucContext::PGC_SUSET, pg_sys::GucSource::PGC_S_SESSION);
    set(name, value, by, pg_sys::GucAction::GUC_ACTION_SET);
}

/// Sets a setting that any user may set, until the current level of settings ends.
pub fn set_on_level(name: &CStr, value: &CStr) {
    let by = (pg_sys::GucContext::PGC_USERSET, pg_sys::GucSource::PGC_S_SESSION);
    set(name, value, by, pg_sys::GucAction::GUC_ACTION_SAVE);
}

/// Sets a setting with these rights, from this source. Raises an error if that is not allowed.
fn set(
    name: &CStr,
    value: &CStr,
    (context, source): (pg_sys::GucContext::Type, pg_sys::GucSource::Type),
    action: pg_sys::GucAction::Type,
) {
    let (name, value) = (name.as_ptr(), value.as_ptr());
    // SAFETY: both strings are terminated, and PostgreSQL copies the value.
    unsafe { pg_sys::set_config_option(name, value, context, source, action, true, 0, false) };
}

/// A level of settings: what is set on it is so until it is closed, or until an error ends the transaction.
pub struct Level(c_int);

impl Level {
    /// Opens a level inside of the current one.
    pub fn open() -> Level {
        Level(unguarded::NewGUCNestLevel())
    }

    /// Closes the level, and those that are open inside of it. Settings that functions have changed with
    /// `SET` stay so if `keep`.
    pub fn close(self, keep: bool) {
        // SAFETY: the level is open, because only this closes it, or the end of the transaction that an error
        // ends, after which nobody has it.
        unsafe { unguarded::AtEOXact_GUC(keep, self.0) };
    }
}

/// Runs `body` with other values of settings that any user may set.
pub fn with<T>(settings: &[(&CStr, &CStr)], body: impl FnOnce() -> T) -> T {
    let level = Level::open();
    for (name, value) in settings {
        set_on_level(name, value);
    }
    let result = body();
    level.close(true);
    result
}

/// Makes PostgreSQL refuse unknown settings with this prefix from now on.
pub fn reserve_prefix(prefix: &'static CStr) {
    // SAFETY: the string is terminated, and PostgreSQL copies it.
    unsafe { pg_sys::MarkGUCPrefixReserved(prefix.as_ptr()) }
}

/// A type whose values are the words of a setting.
pub trait Words: Copy + Send + Sync + 'static {
    /// The words, in the order of the values.
    const WORDS: &'static [&'static CStr];

    /// Returns the value of the word at an index.
    fn from_place(place: usize) -> Self;

    /// Returns the index of a value's word.
    fn place(self) -> usize;
}

/// The maximal number of words of a setting.
const MAX_WORDS: usize = 31;

/// A value of a setting whose values are words.
#[derive(Clone, Copy)]
pub struct Word<T>(pub T);

impl<T: Words> Word<T> {
    /// The entries that PostgreSQL needs: one for each word, and an empty one at the end.
    const ENTRIES: [pg_sys::config_enum_entry; MAX_WORDS + 1] = {
        assert!(T::WORDS.len() <= MAX_WORDS, "a setting has too many words");
        let mut entries = [pg_sys::config_enum_entry {
            name: std::ptr::null(),
            val: 0,
            hidden: false,
        }; MAX_WORDS + 1];
        let mut place = 0;
        while place < T::WORDS.len() {
            entries[place].name = T::WORDS[place].as_ptr();
            entries[place].val = place as c_int;
            place += 1;
        }
        entries
    };
}

// SAFETY: the entries are constants, so they live as long as the process, and an empty one ends them.
unsafe impl<T: Words> GucEnum for Word<T> {
    fn from_ordinal(ordinal: i32) -> Self {
        Word(T::from_place(usize::try_from(ordinal).unwrap_or(0)))
    }

    fn to_ordinal(&self) -> i32 {
        self.0.place() as i32
    }

    const CONFIG_ENUM_ENTRY: *const pg_sys::config_enum_entry = (&raw const *{ &Self::ENTRIES }).cast();
}
