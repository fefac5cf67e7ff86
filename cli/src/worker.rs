//! The thread that talks with the server, so that the screen never waits for it.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use crate::connect::{Reached, Target};
use crate::model::Snapshot;
use crate::queries::Want;
use crate::server::{Connection, Failure, connect};

/// How long a function that writes text may take, in milliseconds: nothing else is refreshed meanwhile.
const CALL_TIMEOUT: u32 = 10_000;

/// What the thread is asked for.
pub enum Request {
    /// A refresh.
    Snapshot(Vec<Want>),
    /// The lines of a function, and the file for them.
    Call(String, Option<String>),
    /// A signal to a process.
    Signal(&'static str, i64),
}

/// What it answers: one for each request.
pub enum Reply {
    Snapshot(Box<Snapshot>),
    /// The lines of a function, with the file that they are for, or why there are none.
    Lines(String, Option<String>, Result<Vec<String>, String>),
    /// What came of a signal.
    Said(String),
    /// The server refused a refresh, and why.
    Refused(String),
    /// There is no connection.
    Down(String),
}

/// The thread.
pub struct Worker {
    requests: Sender<Request>,
    /// Its answers.
    pub replies: Receiver<Reply>,
}

impl Worker {
    /// Starts it with a connection. It connects again whenever that is gone.
    pub fn start(reached: Reached) -> std::io::Result<Self> {
        let (requests, asked) = channel::<Request>();
        let (answers, replies) = channel();
        let Reached {
            target,
            client,
            runtime,
            ..
        } = reached;
        thread::Builder::new().name("server".to_owned()).spawn(move || {
            runtime.block_on(async {
                let mut connection = Some(Connection::new(client));
                while let Ok(request) = asked.recv() {
                    let reply = serve(&target, &mut connection, request).await;
                    if answers.send(reply).is_err() {
                        break;
                    }
                }
            });
        })?;
        Ok(Self { requests, replies })
    }

    /// Asks for something.
    pub fn ask(&self, request: Request) {
        // If the thread is gone, its answers say so.
        drop(self.requests.send(request));
    }
}

async fn serve(target: &Target, connection: &mut Option<Connection>, request: Request) -> Reply {
    // The server may have ended the connection meanwhile: one more attempt.
    let is_new = connection.is_none();
    match attempt(target, connection, &request).await {
        Ok(reply) => reply,
        Err(Failure::Gone(_)) if !is_new && matches!(request, Request::Snapshot(_)) => {
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
