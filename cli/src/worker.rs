//! The threads that talk with the server, so that the screen never waits for it: one for all that is asked
//! for at each refresh and for signals, and one for what may take seconds, so that neither waits for that.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use std::{io, thread};

use tokio::runtime::{Builder, Runtime};

use crate::connect::{Reached, Target};
use crate::model::Snapshot;
use crate::queries::Want;
use crate::server::{Connection, Failure, connect};
use crate::signals::{Addressee, Signal};

/// How long a function that writes text may take, in milliseconds. Nothing else is refreshed meanwhile if the
/// server has no second connection.
const CALL_TIMEOUT: u32 = 10_000;

/// What the threads are asked for.
#[derive(Clone)]
pub enum Request {
    /// A refresh.
    Snapshot(Vec<Want>),
    /// A list that may take seconds.
    Slow(Want),
    /// The lines of a function, and the file for them.
    Call(String, Option<String>),
    /// The process that a signal is for.
    LookUp(Signal, i64),
    /// A signal to a session.
    Signal(Signal, Box<Addressee>),
}

impl Request {
    /// Returns whether it may be sent once more if the connection ends: not what may have ended it, and no
    /// signal.
    fn may_be_repeated(&self) -> bool {
        matches!(self, Self::Snapshot(_) | Self::Slow(_))
    }
}

/// What they answer: one for each request.
pub enum Reply {
    Snapshot(Box<Snapshot>),
    /// A list that may take seconds, or why there is none.
    Slow(Result<Box<Snapshot>, String>),
    /// The lines of a function, with the file that they are for, or why there are none.
    Lines(String, Option<String>, Result<Vec<String>, String>),
    /// The session that a signal is for, or why it is not known.
    Found(Signal, i64, Result<Option<Addressee>, String>),
    /// What came of a signal.
    Said(String),
    /// The server refused a refresh, and why.
    Refused(String),
    /// There is no connection.
    Down(String),
    /// A thread has ended, and answers nothing any more.
    Ended(String),
}

/// What is said of a thread that has ended.
pub const THREAD_ENDED: &str =
    "a thread that talks with the server has ended, which is an error of rowsource itself: please report it";

/// Says it if its thread panics: who waits for an answer would wait for ever.
struct Farewell(Sender<Reply>);

impl Drop for Farewell {
    fn drop(&mut self) {
        if thread::panicking() {
            drop(self.0.send(Reply::Ended(THREAD_ENDED.to_owned())));
        }
    }
}

/// The threads.
pub struct Worker {
    requests: Sender<Request>,
    slow_requests: Sender<Request>,
    /// Their answers.
    pub replies: Receiver<Reply>,
}

impl Worker {
    /// Starts them with a connection. They connect again whenever theirs is gone; the one that takes long
    /// connects when it is asked for the first time.
    pub fn start(reached: Reached) -> io::Result<Self> {
        let Reached {
            target,
            client,
            runtime,
            ..
        } = reached;
        let target = Arc::new(target);
        let slow_runtime = Builder::new_current_thread().enable_all().build()?;
        let (answers, replies) = channel();
        let line = Line {
            target: Arc::clone(&target),
            connection: Some(Connection::new(client)),
            is_patient: false,
            is_unreached: false,
        };
        let requests = start_thread("server", line, runtime, answers.clone(), None)?;
        let line = Line {
            target,
            connection: None,
            is_patient: true,
            is_unreached: false,
        };
        let other = Some(requests.clone());
        let slow_requests = start_thread("slow", line, slow_runtime, answers, other)?;
        Ok(Self {
            requests,
            slow_requests,
            replies,
        })
    }

    /// Makes one that has no threads, and what may answer in their place.
    #[cfg(test)]
    pub fn without_threads() -> (Self, Sender<Reply>) {
        let ((requests, _), (answers, replies)) = (channel(), channel());
        let worker = Self {
            slow_requests: requests.clone(),
            requests,
            replies,
        };
        (worker, answers)
    }

    /// Asks for something.
    pub fn ask(&self, request: Request) {
        let requests = match request {
            Request::Slow(_) | Request::Call(..) => &self.slow_requests,
            _ => &self.requests,
        };
        // If the thread is gone, its answers say so.
        drop(requests.send(request));
    }
}

/// What a thread has of its own.
struct Line {
    target: Arc<Target>,
    connection: Option<Connection>,
    /// Whether the server may work for seconds.
    is_patient: bool,
    /// Whether there was no connection for the last request, so that it was not sent.
    is_unreached: bool,
}

/// Starts a thread that answers what it is asked. One that has `other` lets the server work for seconds, and
/// passes to `other` what it has no connection for: the server may have none left.
fn start_thread(
    name: &str,
    mut line: Line,
    runtime: Runtime,
    answers: Sender<Reply>,
    other: Option<Sender<Request>>,
) -> io::Result<Sender<Request>> {
    let (requests, asked) = channel::<Request>();
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        let _farewell = Farewell(answers.clone());
        runtime.block_on(async {
            while let Ok(request) = asked.recv() {
                let reply = line.serve(request.clone()).await;
                if let (Some(other), true) = (&other, line.is_unreached) {
                    drop(other.send(request));
                } else if answers.send(reply).is_err() {
                    break;
                }
            }
        });
    })?;
    Ok(requests)
}

impl Line {
    async fn serve(&mut self, request: Request) -> Reply {
        // The server may have ended the connection meanwhile: one more attempt.
        let is_new = self.connection.is_none();
        // A new connection may lead to another server than the one that the user has seen.
        let is_signal = matches!(request, Request::LookUp(..) | Request::Signal(..));
        self.is_unreached = false;
        if !request.may_be_repeated() {
            // It shows only now if the connection has ended while nothing was asked.
            tokio::time::sleep(Duration::from_millis(1)).await;
            if is_signal && self.connection.as_ref().is_none_or(Connection::is_closed) {
                let text = "there is no connection".to_owned();
                return self.refused(request, &Failure::Refused(text));
            }
        }
        match self.attempt(&request).await {
            Ok(reply) => reply,
            Err(Failure::Gone(_)) if !is_new && request.may_be_repeated() => {
                self.connection = None;
                tokio::time::sleep(Duration::from_millis(100)).await;
                match self.attempt(&request).await {
                    Ok(reply) => reply,
                    Err(failure) => self.refused(request, &failure),
                }
            }
            Err(failure) => self.refused(request, &failure),
        }
    }

    /// Says why there is no answer.
    fn refused(&mut self, request: Request, failure: &Failure) -> Reply {
        let is_gone = matches!(failure, Failure::Gone(_));
        if is_gone {
            self.connection = None;
        }
        let text = failure.text().to_owned();
        match request {
            Request::Call(call, file) => Reply::Lines(call, file, Err(text)),
            Request::LookUp(signal, pid) => Reply::Found(signal, pid, Err(text)),
            Request::Signal(..) if is_gone => {
                Reply::Said(format!("it is not known whether the signal was sent: {text}"))
            }
            Request::Signal(..) => Reply::Said(format!("nothing was sent: {text}")),
            Request::Slow(_) => Reply::Slow(Err(text)),
            Request::Snapshot(_) if is_gone => Reply::Down(text),
            Request::Snapshot(_) => Reply::Refused(text),
        }
    }

    async fn attempt(&mut self, request: &Request) -> Result<Reply, Failure> {
        let is_closed = |connection: &Connection| connection.is_closed();
        if self.connection.as_ref().is_none_or(is_closed) {
            self.connection = None;
        }
        let connection = match &mut self.connection {
            Some(connection) => connection,
            None => {
                let new = connect(&self.target).await;
                self.is_unreached = new.is_err();
                let new = new?;
                let new = if self.is_patient { new.patient() } else { new };
                self.connection.insert(new)
            }
        };
        Ok(match request {
            Request::Snapshot(wants) => Reply::Snapshot(Box::new(connection.snapshot(wants).await?)),
            Request::Slow(want) => {
                let wants = std::slice::from_ref(want);
                Reply::Slow(Ok(Box::new(connection.snapshot(wants).await?)))
            }
            Request::Call(call, file) => {
                let lines = connection.lines(call, Some(CALL_TIMEOUT)).await?;
                Reply::Lines(call.clone(), file.clone(), Ok(lines))
            }
            Request::LookUp(signal, pid) => {
                Reply::Found(*signal, *pid, Ok(connection.addressee(*pid).await?))
            }
            Request::Signal(signal, session) => Reply::Said(connection.signal(*signal, session).await?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_panics_says_so() {
        let (answers, replies) = channel();
        let thread = thread::spawn(move || {
            let _farewell = Farewell(answers.clone());
            panic!("it ends");
        });
        assert!(thread.join().is_err());
        assert!(matches!(replies.try_recv(), Ok(Reply::Ended(_))));
        let (answers, replies) = channel();
        drop(Farewell(answers));
        assert!(replies.try_recv().is_err());
    }

    /// A function that ends its connection would end others, too, each time that it is sent.
    #[test]
    fn what_may_end_a_connection_is_sent_once() {
        assert!(Request::Snapshot(Vec::new()).may_be_repeated());
        assert!(Request::Slow(Want::Findings).may_be_repeated());
        assert!(!Request::Call(String::new(), None).may_be_repeated());
        assert!(!Request::LookUp(Signal::Cancel, 1).may_be_repeated());
        assert!(!Request::Signal(Signal::Cancel, Box::default()).may_be_repeated());
    }
}
