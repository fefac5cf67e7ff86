//! The events of extensions: their names, and numbers for what is stored of them. PostgreSQL's own numbers
//! for them are good for one run of the server only, and it fails if it is asked for the name of a number
//! that nobody has in this run.

use super::names;
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::server;
use pgrx::pg_sys;
use rowsource_core::waits::names::{Names, is_lasting};
use rowsource_core::waits::{CLASS, Event};
use std::cell::Cell;
use std::sync::LazyLock;

/// The number of such events whose names are kept. Each takes 80 bytes.
const EVENTS: usize = 64;

pub type EventNames = Names<EVENTS>;

/// The names of a session that has no shared memory for them.
static OWN: LazyLock<EventNames> = LazyLock::new(EventNames::default);
/// The events that this process has met last, and their lasting numbers.
static MET: BackendLocal<[Cell<(Event, Event)>; 8]> = BackendLocal::new([const { Cell::new((0, 0)) }; 8]);

/// The names that all processes share, if there is shared memory for them.
static SHARED: BackendLocal<Cell<Option<&'static EventNames>>> = BackendLocal::new(Cell::new(None));

/// Notes where the names are that all processes share.
pub fn share(names: &'static EventNames) {
    SHARED.set(Some(names));
}

fn all() -> &'static EventNames {
    SHARED.get().unwrap_or(&OWN)
}

/// Returns whether PostgreSQL gives an event its number while it runs: those of the classes Extension and,
/// from 18 on, InjectionPoint, and locks of extensions.
fn is_of_this_run(event: Event) -> bool {
    const INJECTION_POINT: Event = 0x0B00_0000;
    let number = event & !CLASS;
    match event & CLASS {
        pg_sys::PG_WAIT_LWLOCK => {
            number >= pg_sys::BuiltinTrancheIds::LWTRANCHE_FIRST_USER_DEFINED && !is_lasting(event)
        }
        pg_sys::PG_WAIT_EXTENSION | INJECTION_POINT => number > 0 && !is_lasting(event),
        _ => false,
    }
}

/// Returns the number of an event for what is stored.
#[inline]
pub fn lasting(event: Event) -> Event {
    if is_of_this_run(event) { met(event) } else { event }
}

#[cold]
#[inline(never)]
fn met(event: Event) -> Event {
    let place = &MET.inner()[event as usize % MET.inner().len()];
    if let (of, lasting) = place.get()
        && of == event
    {
        return lasting;
    }
    // It is known, because a process of this run waited for it.
    let name = server::attempt("name a wait", || names::event_names(event)).flatten();
    let lasting = all().learn(event, name.as_ref().map_or("extension", |(_, name)| name));
    place.set((event, lasting));
    lasting
}

/// Returns the names of an event's type and of the event, which may have a lasting number.
pub fn event_names(event: Event) -> Option<(String, String)> {
    if !is_lasting(event) {
        return names::event_names(event);
    }
    let name = all().name(event).unwrap_or_else(|| "extension".to_owned());
    Some((names::type_name(event)?, name))
}
