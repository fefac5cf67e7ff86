//! What a utility statement of the client waited itself: all waits that no query in it has taken. They are no
//! part of the next statement, so they are taken when it ends.

use super::listener::{Listen, Utility};
use super::nesting;
use crate::pg::hot::waits;

pub struct Listener;

impl Listen for Listener {
    #[inline(always)]
    fn utility(utility: &Utility, body: impl FnOnce(&Utility)) {
        body(utility);
        take();
    }

    #[inline(always)]
    fn execute(utility: &Utility, body: impl FnOnce(&Utility)) {
        Self::utility(utility, body);
    }

    fn begins_while_off() {
        take();
    }
}

#[inline(always)]
fn take() {
    if nesting::depth() == 0 && waits::waited_outside() {
        waits::take_outside();
    }
}
