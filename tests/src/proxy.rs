//! A server that is far away: a proxy before it that passes everything on late.

use crate::Server;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread::{sleep, spawn};
use std::time::Duration;

/// Starts a proxy before a server that needs this time there and back, and returns its port on 127.0.0.1. It
/// runs until the test ends.
pub fn far_away(server: &Server, round_trip: Duration) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let socket = server.folder().join(".s.PGSQL.5432");
    spawn(move || {
        for client in listener.incoming() {
            let client = client.expect("a client");
            // The server may be gone.
            let Ok(server) = UnixStream::connect(&socket) else {
                continue;
            };
            client.set_nodelay(true).expect("a socket");
            let back = (server.try_clone().expect("it"), client.try_clone().expect("it"));
            spawn(move || pass(client, server, round_trip / 2));
            spawn(move || pass(back.0, back.1, round_trip / 2));
        }
    });
    port
}

/// One end of a connection.
trait End: Read + Write {
    fn close(&self);
}

impl End for TcpStream {
    fn close(&self) {
        // The other end may have closed it.
        drop(self.shutdown(Shutdown::Both));
    }
}

impl End for UnixStream {
    fn close(&self) {
        drop(self.shutdown(Shutdown::Both));
    }
}

/// Passes bytes on until one end closes, each time after a delay.
fn pass(mut from: impl End, mut to: impl End, delay: Duration) {
    let mut bytes = [0; 65_536];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        sleep(delay);
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    from.close();
    to.close();
}
