//! Signals that end the program while the terminal shows nothing of what is typed: the terminal is left as it
//! was before.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::task::Poll;
use std::time::Duration;
use std::{io, thread};

use crossterm::terminal::disable_raw_mode;
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How long the program has to end by itself: it may write to a terminal that takes nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// The exit status that a signal asks for, as a shell says it of a program that the signal has ended. None
/// has come if it is 0.
#[derive(Clone, Default)]
pub struct Ending(Arc<AtomicI32>);

impl Ending {
    /// Takes over the signals that end a program, from now on. SIGINT is Ctrl-C elsewhere, so that it is only
    /// taken over if that is a key.
    pub fn watch(with_interrupt: bool) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let kinds = [SignalKind::hangup(), SignalKind::quit(), SignalKind::terminate()];
        let interrupt = with_interrupt.then(SignalKind::interrupt);
        let in_runtime = runtime.enter();
        let streams: io::Result<Vec<(SignalKind, Signal)>> = { kinds.into_iter().chain(interrupt) }
            .map(|kind| signal(kind).map(|stream| (kind, stream)))
            .collect();
        drop(in_runtime);
        let mut streams = streams?;
        let ending = Self::default();
        let status = Arc::clone(&ending.0);
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            let came = runtime.block_on(poll_fn(|context| {
                let mut came = streams
                    .iter_mut()
                    .filter_map(|(kind, signal)| signal.poll_recv(context).is_ready().then_some(*kind));
                came.next().map_or(Poll::Pending, Poll::Ready)
            }));
            let ends_with = 128 + came.as_raw_value();
            status.store(ends_with, Ordering::Release);
            thread::sleep(PATIENCE);
            drop(disable_raw_mode());
            std::process::exit(ends_with);
        })?;
        Ok(ending)
    }

    /// Returns the exit status, if a signal has come.
    pub fn status(&self) -> Option<i32> {
        Some(self.0.load(Ordering::Acquire)).filter(|status| *status != 0)
    }
}
