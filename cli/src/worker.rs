//! The threads that talk with the server, so that the screen never waits for it: one for all that is asked
//! for at each refresh and for signals, and one for what may take seconds, so that neither waits for that.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
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
            silence: Silence::default(),
        };
        let requests = start_thread("server", line, runtime, answers.clone(), None)?;
        let line = Line {
            target,
            connection: None,
            is_patient: true,
            is_unreached: false,
            silence: Silence::default(),
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
    silence: Silence,
}

/// How often in a row no answer came in time, and when the last time was. A server that answers nothing may
/// still work for each connection that was given up, so it gets fewer and fewer new ones.
#[derive(Default)]
struct Silence {
    times: u32,
    since: Option<Instant>,
    text: String,
}

/// How long no connection is made after the second silence, twice that after the third, and at most.
const FIRST_REST: Duration = Duration::from_secs(4);
const MOST_REST: Duration = Duration::from_secs(60);
/// How long a request to cancel what a connection has asked for may take.
const CANCEL: Duration = Duration::from_secs(1);

impl Silence {
    fn note(&mut self, text: &str) {
        self.times += 1;
        self.since = Some(Instant::now());
        text.clone_into(&mut self.text);
    }

    /// Returns for how long no connection is made.
    fn rest(&self) -> Duration {
        let doublings = self.times.saturating_sub(2).min(8);
        match self.times {
            0 | 1 => Duration::ZERO,
            _ => (FIRST_REST * 2_u32.pow(doublings)).min(MOST_REST),
        }
    }

    /// Returns why no connection is made now.
    fn refuses(&self) -> Option<String> {
        let left = self.rest().checked_sub(self.since?.elapsed())?;
        let seconds = left.as_secs() + 1;
        Some(format!("{}: rowsource connects again in {seconds} s", self.text))
    }
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
        if self.silence.times > 0 {
            // A connection that was given up ends only while something is awaited.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
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
            Err(failure) if failure.is_end() && !is_new && request.may_be_repeated() => {
                self.give_up(&failure).await;
                tokio::time::sleep(Duration::from_millis(100)).await;
                match self.attempt(&request).await {
                    Ok(reply) => reply,
                    Err(failure) => {
                        self.give_up(&failure).await;
                        self.refused(request, &failure)
                    }
                }
            }
            Err(failure) => {
                self.give_up(&failure).await;
                self.refused(request, &failure)
            }
        }
    }

    /// Gives a connection up that has ended. If no answer came, the server is asked to cancel what it still
    /// does for it.
    async fn give_up(&mut self, failure: &Failure) {
        if !failure.is_end() {
            return;
        }
        let connection = self.connection.take();
        if let (Failure::Silent(text), Some(old)) = (failure, &connection) {
            self.silence.note(text);
            let sent = self.target.cancel(old.cancel_token());
            drop(tokio::time::timeout(CANCEL, sent).await);
        }
    }

    /// Says why there is no answer.
    fn refused(&self, request: Request, failure: &Failure) -> Reply {
        let is_gone = failure.is_end();
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
                if let Some(text) = self.silence.refuses() {
                    return Err(Failure::Gone(text));
                }
                let new = connect(&self.target).await;
                if let Err(Failure::Silent(text)) = &new {
                    self.silence.note(text);
                }
                self.is_unreached = new.is_err();
                let new = new?;
                let new = if self.is_patient { new.patient() } else { new };
                self.connection.insert(new)
            }
        };
        let reply = match request {
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
        };
        self.silence = Silence::default();
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::connect::{Environment, Params};
    use crate::tests::fake_server::{Answer, FakeServer};

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

    /// It may have many that wait for the same, and none of them ends.
    #[test]
    fn a_server_that_is_silent_gets_fewer_and_fewer_connections() {
        let server = FakeServer::start(|_| Answer::Nothing);
        let params = Params::parse(&format!(
            "host=127.0.0.1 port={} user=x dbname=x sslmode=disable",
            server.port
        ));
        let environment = Environment {
            read: |_| None,
            home: None,
            user: String::new(),
        };
        let target = Target::new(&params.expect("parameters"), None, &environment).expect("a target");
        let mut line = Line {
            target: Arc::new(target),
            connection: None,
            is_patient: false,
            is_unreached: false,
            silence: Silence::default(),
        };
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let mut ask = || match runtime.block_on(line.serve(Request::Snapshot(Vec::new()))) {
            Reply::Down(text) => (text, std::mem::take(&mut line.silence.since)),
            _ => panic!("an answer"),
        };
        assert_eq!(ask().0, "no answer for 0 s");
        assert_eq!(ask().0, "no answer for 0 s");
        let (text, since) = ask();
        line_is_at(&server, 3, 3);
        assert_eq!((text.as_str(), since.is_some()), ("no answer for 0 s", true));
        // The time was taken away until here.
        line.silence.since = since;
        for _ in 0..3 {
            let reply = runtime.block_on(line.serve(Request::Snapshot(Vec::new())));
            let Reply::Down(text) = reply else {
                panic!("an answer")
            };
            assert_eq!(text, "no answer for 0 s: rowsource connects again in 8 s");
        }
        line_is_at(&server, 3, 3);
        let rests = (0..9).map(|times| {
            let silence = Silence {
                times,
                ..Silence::default()
            };
            silence.rest().as_secs()
        });
        assert_eq!(rests.collect::<Vec<_>>(), [0, 0, 4, 8, 16, 32, 60, 60, 60]);
    }

    /// Waits until so many connections, and requests to cancel, have come.
    fn line_is_at(server: &FakeServer, connections: usize, cancels: usize) {
        let begin = Instant::now();
        let now = || [&server.connections, &server.cancels].map(|it| it.load(Ordering::Relaxed));
        while now() != [connections, cancels] {
            assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", now());
        }
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
