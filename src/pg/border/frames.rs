//! Who may be crossed by an error.

/// The promise that an error may cross the frames of who has this, and of all bodies that he runs: they are
/// plain. Nothing that he has run when an error comes may raise or panic.
#[derive(Clone, Copy)]
pub struct PlainFrames(());

impl PlainFrames {
    /// Makes the promise.
    ///
    /// # Safety
    /// It must hold wherever the result is used.
    #[inline(always)]
    pub const unsafe fn promised() -> PlainFrames {
        PlainFrames(())
    }
}
