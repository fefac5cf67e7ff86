//! A handle, and what safe code can do with it.

use super::part::{Counted, Part};
use pgrx::pg_sys::{self, List, ListCell, Node, NodeTag, Oid, PgNode, RelationData};
use std::ffi::{CStr, c_char};
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;

/// Points to a struct of PostgreSQL that is live for `'q`.
#[repr(transparent)]
pub struct Handle<'q, T>(NonNull<T>, PhantomData<&'q T>);

impl<T> Clone for Handle<'_, T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<'_, T> {}

impl<T> PartialEq for Handle<'_, T> {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T> Deref for Handle<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        self.get()
    }
}

impl<'q, T> Handle<'q, T> {
    /// Makes a handle.
    ///
    /// # Safety
    /// * `pointer` must point to a live struct. While `'q` lasts, it stays live, and so does all that its
    ///   fields lead to: that of a started query is live until ExecutorEnd.
    /// * While `'q` lasts, whoever writes to any of this does so while no reference to it is in use. The
    ///   executor writes to it only while it runs the query.
    #[inline(always)]
    pub const unsafe fn new(pointer: *mut T) -> Handle<'q, T> {
        // SAFETY: the caller promises that the struct is there. The compiler uses that.
        unsafe {
            std::hint::assert_unchecked(!pointer.is_null());
            Handle(NonNull::new_unchecked(pointer), PhantomData)
        }
    }

    /// Returns the pointer, to write through it or to pass it to PostgreSQL.
    #[inline(always)]
    pub const fn as_ptr(self) -> *mut T {
        self.0.as_ptr()
    }

    /// Returns the struct.
    #[inline(always)]
    pub const fn get(self) -> &'q T {
        // SAFETY: the struct is live for `'q`, and nobody writes to it meanwhile while a reference to it is
        // in use: who made the first handle has promised that.
        unsafe { self.0.as_ref() }
    }
}

// In the nodes of a started query, a pointer to another node, to a List, to a relation or to characters is
// null, or what it points to is live as long as the node. Lists have pointers to nodes, null, or numbers.
impl<'q, T: PgNode> Handle<'q, T> {
    /// Returns the value of a field, which no other pointer can take the place of.
    #[inline(always)]
    fn field<F: Copy>(self, select: impl FnOnce(&T) -> &F) -> F {
        let field = select(self.get());
        self.offset(field);
        *field
    }

    /// Returns a handle to a field.
    #[inline(always)]
    pub fn part<F>(self, select: impl FnOnce(&T) -> &F) -> Handle<'q, F> {
        let offset = self.offset(select(self.get()));
        // SAFETY: a field is as live as the node that it is in.
        Handle(unsafe { self.0.byte_add(offset).cast() }, PhantomData)
    }

    /// Returns where a field is in the node.
    #[inline(always)]
    fn offset<F>(self, field: &F) -> usize {
        // What is elsewhere is no field. The compiler sees where it is, and drops this.
        let offset = std::ptr::from_ref(field).addr().wrapping_sub(self.0.addr().get());
        assert!(offset < size_of::<T>(), "a field of the node");
        offset
    }

    /// Returns the node that a field points to, unless it is null.
    #[inline(always)]
    pub fn follow<U: PgNode>(self, select: impl FnOnce(&T) -> &*mut U) -> Option<Handle<'q, U>> {
        NonNull::new(self.field(select)).map(|pointer| Handle(pointer, PhantomData))
    }

    /// Returns the part that a field points to, unless it is null.
    #[inline(always)]
    pub fn reach<U: Part>(self, select: impl FnOnce(&T) -> &*mut U) -> Option<Handle<'q, U>> {
        NonNull::new(self.field(select)).map(|pointer| Handle(pointer, PhantomData))
    }

    /// Returns the relation that a field points to, unless it is null.
    #[inline(always)]
    pub fn relation(self, select: impl FnOnce(&T) -> &pg_sys::Relation) -> Option<Handle<'q, RelationData>> {
        NonNull::new(self.field(select)).map(|pointer| Handle(pointer, PhantomData))
    }

    /// Returns the List that a field points to.
    #[inline(always)]
    pub fn list<U: PgNode>(self, select: impl FnOnce(&T) -> &*mut List) -> ListOf<'q, U> {
        ListOf(self.follow(select), PhantomData)
    }

    /// Returns the List that a field points to as one node: functions that take expressions take Lists, too.
    #[inline(always)]
    pub fn expressions(self, select: impl FnOnce(&T) -> &*mut List) -> Option<Handle<'q, Node>> {
        self.follow(select).map(Handle::node)
    }

    /// Returns the lengths of the Lists in the List that a field points to.
    pub fn lengths(self, select: impl FnOnce(&T) -> &*mut List) -> impl Iterator<Item = usize> {
        let lists = cells::<*mut Node>(self.follow(select), NodeTag::T_List);
        lists.map(|list| {
            let list = NonNull::new(*list).map(|list| Handle(list, PhantomData));
            let list = list.filter(|list| matches!(list.tag(), NodeTag::T_List | NodeTag::T_IntList));
            list.map_or(0, |list| {
                Handle::<List>(list.0.cast(), PhantomData).length.max(0) as usize
            })
        })
    }

    /// Returns the OIDs in the List that a field points to.
    pub fn oids(self, select: impl FnOnce(&T) -> &*mut List) -> impl Iterator<Item = Handle<'q, Oid>> {
        cells(self.follow(select), NodeTag::T_OidList)
    }

    /// Returns the numbers in the List that a field points to.
    pub fn integers(self, select: impl FnOnce(&T) -> &*mut List) -> impl Iterator<Item = Handle<'q, i32>> {
        cells(self.follow(select), NodeTag::T_IntList)
    }

    /// Returns the members of the set that a field points to; none if it is null.
    pub fn set(self, select: impl FnOnce(&T) -> &*mut pg_sys::Bitmapset) -> impl Iterator<Item = u32> {
        self.set_from(select, 0)
    }

    /// Returns whether a number is in the set that a field points to.
    pub fn has_member(self, select: impl FnOnce(&T) -> &*mut pg_sys::Bitmapset, member: u32) -> bool {
        self.set_from(select, member).next() == Some(member)
    }

    /// Returns the members of the set from `first` on.
    fn set_from(
        self,
        select: impl FnOnce(&T) -> &*mut pg_sys::Bitmapset,
        first: u32,
    ) -> impl Iterator<Item = u32> {
        let (set, mut last) = (self.field(select), first as i32 - 1);
        std::iter::from_fn(move || {
            // SAFETY: the pointer is null, or leads to a set that lives as long as the node.
            last = unsafe { pg_sys::bms_next_member(set, last) };
            u32::try_from(last).ok()
        })
    }

    /// Returns the string that a field points to, unless it is null.
    #[inline(always)]
    pub fn string(self, select: impl FnOnce(&T) -> &*mut c_char) -> Option<&'q CStr> {
        let string = self.field(select);
        // SAFETY: the pointer is null, or leads to a C string that lives as long as the node.
        (!string.is_null()).then(|| unsafe { CStr::from_ptr(string) })
    }

    /// Returns the type of the node.
    #[inline(always)]
    pub const fn tag(self) -> NodeTag {
        // SAFETY: the node is live, and each node begins with its tag.
        unsafe { self.0.cast::<NodeTag>().read() }
    }

    /// Returns the node as one of another type, if it is that.
    #[inline(always)]
    pub fn downcast<U: PgNode>(self) -> Option<Handle<'q, U>> {
        Tags::<U>::have(self.tag()).then(|| Handle(self.0.cast(), PhantomData))
    }

    /// Returns the node as one of another type.
    ///
    /// # Panics
    /// If it is not that.
    #[inline(always)]
    pub fn cast<U: PgNode>(self) -> Handle<'q, U> {
        self.downcast().expect("the type of a node follows its tag")
    }

    /// Returns the node as one of any type.
    #[inline(always)]
    pub const fn node(self) -> Handle<'q, Node> {
        Handle(self.0.cast(), PhantomData)
    }
}

impl<'q, T: Counted> Handle<'q, T> {
    /// Returns the members of the array: what each worker reported.
    pub fn reports(self) -> &'q [T::Member] {
        let (array, count) = self.get().array();
        // SAFETY: there are so many, as the trait promises.
        unsafe { array.as_slice(count.max(0) as usize) }
    }
}

impl<'q> Handle<'q, pg_sys::TriggerDesc> {
    /// Returns the triggers of a table.
    pub fn triggers(self) -> &'q [pg_sys::Trigger] {
        match usize::try_from(self.numtriggers) {
            // SAFETY: there are so many, which live as long as the list.
            Ok(count @ 1..) => unsafe { std::slice::from_raw_parts(self.triggers, count) },
            _ => &[],
        }
    }
}

impl<'q> Handle<'q, pg_sys::ErrorData> {
    /// Returns the error's message.
    pub fn message(self) -> Option<&'q CStr> {
        self.text(self.get().message)
    }

    /// Returns the file of the source that raised the error.
    pub fn file(self) -> Option<&'q CStr> {
        self.text(self.filename)
    }

    /// Returns one of the error's texts.
    fn text(self, text: *const c_char) -> Option<&'q CStr> {
        // SAFETY: it is null, or a C string that lives as long as the error.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
    }
}

/// The tags of a type of node, and of those that begin with it. There are none for [`Node`].
struct Tags<T>(PhantomData<T>);

impl<T: PgNode> Tags<T> {
    const FIRST: u32 = Self::last(u32::MAX);
    const LAST: u32 = Self::last(0);
    /// All tags between these are tags of the type.
    const ARE_ALL: bool = Self::LAST.wrapping_sub(Self::FIRST) as usize == T::CAST_TAGS.len().wrapping_sub(1);

    /// Returns the greatest tag, or the least one if `limit` is not 0.
    const fn last(limit: u32) -> u32 {
        let (mut last, mut i) = (limit, 0);
        while i < T::CAST_TAGS.len() {
            let tag = T::CAST_TAGS[i] as u32;
            if (tag > last) == (limit == 0) {
                last = tag;
            }
            i += 1;
        }
        last
    }

    /// Returns whether a tag is one of them.
    #[inline(always)]
    fn have(tag: NodeTag) -> bool {
        match T::CAST_TAGS.is_empty() {
            true => true,
            false if Self::ARE_ALL => (Self::FIRST..=Self::LAST).contains(&(tag as u32)),
            false => T::CAST_TAGS.contains(&tag),
        }
    }
}

/// Points to a node of PostgreSQL that is live for `'q` itself. What its fields lead to may be gone.
#[repr(transparent)]
pub struct Bare<'q, T>(Handle<'q, T>);

impl<T> Clone for Bare<'_, T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Bare<'_, T> {}

impl<T> Deref for Bare<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        self.0.get()
    }
}

impl<'q, T: PgNode> Bare<'q, T> {
    /// Makes a handle of this kind.
    ///
    /// # Safety
    /// `pointer` must point to a live node. While `'q` lasts, it stays live, and whoever writes to it does so
    /// while no reference to it is in use.
    #[inline(always)]
    pub const unsafe fn new(pointer: *mut T) -> Bare<'q, T> {
        // SAFETY: the caller promises that of the node itself, and no field is followed.
        Bare(unsafe { Handle::new(pointer) })
    }

    /// Returns the type of the node.
    #[inline(always)]
    pub const fn tag(self) -> NodeTag {
        self.0.tag()
    }

    /// Returns the node as one of another type.
    ///
    /// # Panics
    /// If it is not that.
    #[inline(always)]
    pub fn cast<U: PgNode>(self) -> Bare<'q, U> {
        Bare(self.0.cast())
    }
}

impl<'q, T> From<Handle<'q, T>> for Bare<'q, T> {
    #[inline(always)]
    fn from(handle: Handle<'q, T>) -> Bare<'q, T> {
        Bare(handle)
    }
}

/// A List of nodes of one type. A null pointer is an empty one.
#[repr(transparent)]
pub struct ListOf<'q, T>(Option<Handle<'q, List>>, PhantomData<&'q T>);

impl<T> Clone for ListOf<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for ListOf<'_, T> {}

impl<'q, T: PgNode> ListOf<'q, T> {
    /// Returns the list without members.
    pub const fn empty() -> ListOf<'q, T> {
        ListOf(None, PhantomData)
    }

    /// Returns a List as one of these nodes.
    #[cfg(pg_ge_19)]
    pub const fn of(list: Handle<'q, List>) -> ListOf<'q, T> {
        ListOf(Some(list), PhantomData)
    }

    /// Returns the number of members.
    #[inline(always)]
    pub fn len(self) -> usize {
        self.0.map_or(0, |list| list.length.max(0) as usize)
    }

    /// Returns a member, unless it is null or there is none.
    ///
    /// # Panics
    /// If the List has numbers, or nodes of another type.
    #[inline(always)]
    pub fn get(self, at: usize) -> Option<Handle<'q, T>> {
        let list = self.0.filter(|_| at < self.len())?;
        assert!(list.type_ == NodeTag::T_List, "a List of pointers");
        // SAFETY: a List of pointers has `length` of them.
        let member = unsafe { (*list.elements.add(at)).ptr_value };
        let member = NonNull::new(member)?;
        Some(Handle::<Node>(member.cast(), PhantomData).cast())
    }

    /// Returns all members that are not null.
    #[inline(always)]
    pub fn iter(self) -> impl Iterator<Item = Handle<'q, T>> + Clone {
        (0..self.len()).filter_map(move |at| self.get(at))
    }
}

/// Returns the numbers in a List of this type, which may be null.
fn cells<'q, T: 'q>(list: Option<Handle<'q, List>>, kind: NodeTag) -> impl Iterator<Item = Handle<'q, T>> {
    const { assert!(size_of::<T>() <= size_of::<ListCell>() && align_of::<T>() <= align_of::<ListCell>()) };
    assert!(list.is_none_or(|list| list.type_ == kind), "a List of numbers");
    let count = list.map_or(0, |list| list.length.max(0) as usize);
    let first = list.map_or(std::ptr::null_mut(), |list| list.elements);
    // SAFETY: a List has `length` cells, which begin with a number if its type says so.
    (0..count).map(move |at| unsafe { Handle::new(first.add(at).cast()) })
}

/// Returns the tag of a node.
///
/// # Safety
/// `node` must point to a live node of PostgreSQL, which begins with its tag.
#[inline(always)]
pub const unsafe fn tag<T>(node: *const T) -> NodeTag {
    // SAFETY: the node is live, and begins with its tag, by the caller's promise.
    unsafe { *node.cast::<NodeTag>() }
}

/// Returns the bytes of a name, without the zeros behind it.
pub fn name(name: &pg_sys::NameData) -> &CStr {
    // SAFETY: characters are bytes, of another sign.
    let bytes: &[u8; 64] = unsafe { &*(&raw const name.data).cast() };
    CStr::from_bytes_until_nul(bytes).unwrap_or_default()
}
