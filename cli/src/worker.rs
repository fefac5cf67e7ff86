//! The threads that talk with the server, so that the screen never waits for it: one for all that is asked
//! for at each refresh and by keys, and one for what may take seconds, so that nothing else waits for that.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use std::{io, thread};

use tokio::runtime::{Builder, Runtime};

use crate::connect::{Reached, Target};
use crate::model::Snapshot;
use crate::queries::Want;
use crate::server::{Connection, Failure, connect};

/// How long a function that writes text may take, in milliseconds: nothing else is refreshed meanwhile.
const CALL_TIMEOUT: u32 = 10_000;

/// What the threads are asked for.
pub enum Request {
    /// A refresh.
    Snapshot(Vec<Want>),
    /// A list that may take seconds.
    Slow(Want),
    /// The lines of a function, and the file for them.
    Call(String, Option<String>),
    /// A signal to a process.
    Signal(&'static str, i64),
}

/// What they answer: one for each request.
pub enum Reply {
    Snapshot(Box<Snapshot>),
    /// A list that may take seconds, or why there is none.
    Slow(Result<Box<Snapshot>, String>),
    /// The lines of a function, with the file that they are for, or why there are none.
    Lines(String, Option<String>, Result<Vec<String>, String>),
    /// What came of a signal.
    Said(String),
    /// The server refused a refresh, and why.
    Refused(String),
    /// There is no connection.
    Down(String),
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
        let first = Some(Connection::new(client));
        let slow_requests = start_thread("slow", Arc::clone(&target), None, slow_runtime, answers.clone())?;
        let requests = start_thread("server", target, first, runtime, answers)?;
        Ok(Self {
            requests,
            slow_requests,
            replies,
        })
    }

    /// Asks for something.
    pub fn ask(&self, request: Request) {
        let requests = match request {
            Request::Slow(_) => &self.slow_requests,
            _ => &self.requests,
        };
        // If the thread is gone, its answers say so.
        drop(requests.send(request));
    }
}

/// Starts a thread that answers what it is asked.
fn start_thread(
    name: &str,
    target: Arc<Target>,
    mut connection: Option<Connection>,
    runtime: Runtime,
    answers: Sender<Reply>,
) -> io::Result<Sender<Request>> {
    let (requests, asked) = channel::<Request>();
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        runtime.block_on(async {
            while let Ok(request) = asked.recv() {
                let reply = serve(&target, &mut connection, request).await;
                if answers.send(reply).is_err() {
                    break;
                }
            }
        });
    })?;
    Ok(requests)
}

async fn serve(target: &Target, connection: &mut Option<Connection>, request: Request) -> Reply {
    // The server may have ended the connection meanwhile: one more attempt.
    let is_new = connection.is_none();
    match attempt(target, connection, &request).await {
        Ok(reply) => reply,
        Err(Failure::Gone(_)) if !is_new && matches!(request, Request::Snapshot(_) | Request::Slow(_)) => {
            *connection = None;
            tokio::time::sleep(Duration::from_millis(100)).await;
            match attempt(target, connection, &request).await {
                Ok(reply) => reply,
                Err(failure) => refused(connection, request, &failure),
            }
        }
        Err(failure) => refused(connection, request, &failure),
    }
}

/// Says why there is no answer.
fn refused(connection: &mut Option<Connection>, request: Request, failure: &Failure) -> Reply {
    let is_gone = matches!(failure, Failure::Gone(_));
    if is_gone {
        *connection = None;
    }
    let text = failure.text().to_owned();
    match request {
        Request::Call(call, file) => Reply::Lines(call, file, Err(text)),
        Request::Signal(..) => Reply::Said(text),
        Request::Slow(_) => Reply::Slow(Err(text)),
        Request::Snapshot(_) if is_gone => Reply::Down(text),
        Request::Snapshot(_) => Reply::Refused(text),
    }
}

async fn attempt(
    target: &Target,
    connection: &mut Option<Connection>,
    request: &Request,
) -> Result<Reply, Failure> {
    if connection
        .as_ref()
        .is_none_or(|connection| connection.is_closed())
    {
        *connection = None;
    }
    let connection = match connection {
        Some(connection) => connection,
        None => connection.insert(connect(target).await?),
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
        Request::Signal(function, pid) => Reply::Said(match connection.signal(function, *pid).await? {
            true => format!("sent to process {pid}"),
            false => format!("process {pid} is gone"),
        }),
    })
}
