//! A server that answers each question as a test says.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio_postgres::NoTls;

use crate::server::Connection;

/// What it answers.
pub enum Answer {
    /// Rows of a single column.
    Rows(Vec<Vec<u8>>),
    /// An error with these fields, after which the connection ends.
    Error(Vec<(u8, &'static str)>),
    /// Nothing, ever.
    Nothing,
}

/// One that runs until the tests end.
pub struct FakeServer {
    pub port: u16,
    /// How many connections, and how many requests to cancel, have come.
    pub connections: Arc<AtomicUsize>,
    pub cancels: Arc<AtomicUsize>,
}

impl FakeServer {
    /// Starts it.
    pub fn start(answer: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let server = Self {
            port: listener.local_addr().expect("its address").port(),
            connections: Arc::default(),
            cancels: Arc::default(),
        };
        let [connections, cancels] = [&server.connections, &server.cancels].map(Arc::clone);
        let answer = Arc::new(answer);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let [connections, cancels] = [&connections, &cancels].map(Arc::clone);
                let answer = Arc::clone(&answer);
                thread::spawn(move || serve(stream.expect("a client"), &*answer, &connections, &cancels));
            }
        });
        server
    }

    /// Connects to it.
    pub async fn connect(&self) -> Connection {
        let address = format!("host=127.0.0.1 port={} user=x dbname=x", self.port);
        let (client, connection) = tokio_postgres::connect(&address, NoTls)
            .await
            .expect("a connection");
        tokio::spawn(connection);
        Connection::new(client)
    }
}

/// Writes a message.
fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32 + 4).to_be_bytes();
    [&[tag], &length[..], body].concat()
}

fn read(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut body = vec![0; u32::from_be_bytes(length) as usize - 4];
    stream.read_exact(&mut body).ok()?;
    Some(body)
}

fn serve(
    mut stream: TcpStream,
    answer: &dyn Fn(&str) -> Answer,
    connections: &AtomicUsize,
    cancels: &AtomicUsize,
) -> Option<()> {
    const CANCEL: [u8; 4] = 80_877_102_u32.to_be_bytes();
    if read(&mut stream)?.starts_with(&CANCEL) {
        cancels.fetch_add(1, Ordering::Relaxed);
        return None;
    }
    connections.fetch_add(1, Ordering::Relaxed);
    let ready = message(b'Z', b"I");
    let greeting = [message(b'R', &[0; 4]), message(b'K', &[7; 8]), ready.clone()];
    stream.write_all(&greeting.concat()).ok()?;
    loop {
        let mut tag = [0];
        stream.read_exact(&mut tag).ok()?;
        let body = read(&mut stream)?;
        if tag != *b"Q" {
            return None;
        }
        let sql = String::from_utf8_lossy(&body);
        match answer(sql.trim_end_matches('\0')) {
            Answer::Rows(rows) => {
                let column = [
                    &[0, 1, b'x', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 25],
                    &[255; 6][..],
                    &[0, 0],
                ];
                let mut reply = message(b'T', &column.concat());
                for row in rows {
                    let length = (row.len() as u32).to_be_bytes();
                    reply.extend(message(b'D', &[&[0, 1], &length[..], &row].concat()));
                }
                reply.extend(message(b'C', b"SELECT 1\0"));
                reply.extend(&ready);
                stream.write_all(&reply).ok()?;
            }
            Answer::Error(fields) => {
                let fields = fields.into_iter();
                let fields = fields.map(|(kind, text)| [&[kind], text.as_bytes(), &[0]].concat());
                let body: Vec<u8> = fields.flatten().chain([0]).collect();
                stream.write_all(&message(b'E', &body)).ok()?;
                return None;
            }
            Answer::Nothing => {}
        }
    }
}
