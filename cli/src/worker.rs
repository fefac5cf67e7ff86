//! The thread that talks with the server, so that the screen never waits for it.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use crate::connect::Target;
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
    /// With the file that they are for.
    Lines(Vec<String>, Option<String>),
    /// What came of a signal, or why there are no lines.
    Said(String),
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
    /// Starts it. It connects at the first request, and again whenever the connection is gone.
    pub fn start(target: Target) -> std::io::Result<Self> {
        let (requests, asked) = channel::<Request>();
        let (answers, replies) = channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        thread::Builder::new().name("server".to_owned()).spawn(move || {
            runtime.block_on(async {
                let mut connection = None;
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
                Err(failure) => down(connection, &failure),
            }
        }
        Err(failure) => down(connection, &failure),
    }
}

fn down(connection: &mut Option<Connection>, failure: &Failure) -> Reply {
    if matches!(failure, Failure::Gone(_)) {
        *connection = None;
        return Reply::Down(failure.text().to_owned());
    }
    Reply::Said(failure.text().to_owned())
}

async fn attempt(
    target: &Target,
    connection: &mut Option<Connection>,
    request: &Request,
) -> Result<Reply, Failure> {
    if connection
        .as_ref()
        .is_none_or(|connection| connection.0.is_closed())
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
            Reply::Lines(connection.lines(call, Some(CALL_TIMEOUT)).await?, file.clone())
        }
        Request::Signal(function, pid) => Reply::Said(match connection.signal(function, *pid).await? {
            true => format!("sent to process {pid}"),
            false => format!("process {pid} is gone"),
        }),
    })
}
