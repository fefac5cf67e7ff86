//! The names of wait events, as the lines of waits have them.

use crate::pg::hot::sql_trace as hot;
use crate::pg::server;
use crate::pg::waits::names;

/// Returns the names of the server's own events, in the order of their numbers.
pub fn names() -> Vec<hot::Name> {
    /// Those of the server itself: lightweight locks, locks, buffers, activity, clients, processes, timeouts
    /// and files.
    const CLASSES: [u32; 8] = [1, 3, 4, 5, 6, 8, 9, 10];
    const MOST: u32 = 250;
    let mut found = Vec::new();
    for class in CLASSES {
        for event in (0..MOST).map(|number| class << 24 | number) {
            // From 19 on, an unknown lock is an error.
            let Ok(names) = server::caught(|| names::event_names(event)) else {
                break;
            };
            // Lightweight locks have gaps in their numbers.
            let Some((of, name)) = names else {
                continue;
            };
            if ["unknown wait event", "???", "extension"].contains(&name.as_str()) {
                break;
            }
            let text = format!("{of} {name}");
            let mut name = hot::Name {
                event,
                text: [0; hot::Name::LENGTH],
                length: text.len().min(hot::Name::LENGTH),
            };
            name.text[..name.length].copy_from_slice(&text.as_bytes()[..name.length]);
            if event != 0 && found.try_reserve(1).is_ok() {
                found.push(name);
            }
        }
    }
    found
}
