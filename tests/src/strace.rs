//! Traces a server's requests to its temporary files, and all calls in which a session waits, with strace.

use crate::tempfile::{FILETYPES, Io};
use crate::{Server, environment::environment, process};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CALLS: &str = "trace=pread64,pwrite64,preadv,pwritev,preadv2,pwritev2";
const BLOCK: i64 = 8192;

/// A running trace of the postmaster and of all processes that it starts after this. So connect after this.
pub struct Trace {
    child: Child,
    folder: PathBuf,
}

impl Trace {
    pub fn start(server: &Server, name: &str) -> Trace {
        let folder = environment()
            .run
            .join(format!("strace-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder for the trace");
        let child = Command::new("strace")
            .args([
                "-f",
                "-ff",
                "-y",
                "-T",
                "-s",
                "0",
                // Print all parts of a vectored request, to know its size.
                "-e",
                "abbrev=none",
                "-e",
                CALLS,
                "-e",
                "signal=none",
                "-o",
            ])
            .arg(folder.join("trace"))
            .args(["-p", &server.postmaster().to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("strace can be run");
        until_attached(server.postmaster());
        Trace { child, folder }
    }

    /// Ends the trace. Returns the requests to each file type, and how many processes made requests.
    pub fn stop(mut self) -> ([Io; 2], usize) {
        end(&mut self.child);
        let mut sums = [Io::default(); 2];
        let mut processes = 0;
        for entry in fs::read_dir(&self.folder).expect("the trace").flatten() {
            let text = fs::read_to_string(entry.path()).expect("a process's trace");
            let requests: Vec<_> = text.lines().filter_map(request).collect();
            processes += usize::from(!requests.is_empty());
            for (filetype, read, size, bytes, ms) in requests {
                sums[filetype].add(read, size > BLOCK, bytes, ms);
            }
        }
        let _ = fs::remove_dir_all(&self.folder);
        (sums, processes)
    }
}

fn until_attached(pid: u32) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while process::tracer(pid) == Some(0) {
        assert!(
            Instant::now() < deadline,
            "strace cannot attach to the server (see kernel.yama.ptrace_scope)"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn end(strace: &mut Child) {
    process::send_signal(strace.id(), "INT");
    let _ = strace.wait();
}

/// A call of the system that has returned.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub name: String,
    /// The path of the descriptor in its first argument.
    pub path: String,
    /// When it returned, in seconds since 1970.
    pub ended: f64,
    pub seconds: f64,
}

/// A running trace of the calls of one session in which it may wait.
pub struct SessionTrace {
    strace: Child,
    output: PathBuf,
}

impl SessionTrace {
    /// Starts a trace that delays calls, such as `("fdatasync", 20 ms)`: for the session, the disk is slow.
    pub fn start(pid: u32, delays: &[(&str, Duration)]) -> SessionTrace {
        let output = environment().run.join(format!("session-{pid}.strace"));
        let mut command = Command::new("strace");
        command.args(["-f", "-T", "-ttt", "-y", "-s", "0", "-e"]);
        command.arg("trace=read,pread64,preadv,pwrite64,pwritev,fsync,fdatasync,epoll_wait");
        for (call, delay) in delays {
            command.args(["-e", &format!("inject={call}:delay_enter={}", delay.as_micros())]);
        }
        let strace = command
            .args(["-e", "signal=none", "-p", &pid.to_string(), "-o"])
            .arg(&output)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("strace can be run");
        until_attached(pid);
        SessionTrace { strace, output }
    }

    /// Ends the trace, and returns the calls.
    pub fn stop(mut self) -> Vec<Call> {
        end(&mut self.strace);
        let text = fs::read_to_string(&self.output).expect("the trace");
        let _ = fs::remove_file(&self.output);
        text.lines().filter_map(call).collect()
    }
}

/// Reads a line such as `123 1700000000.5 fdatasync(17</data/pg_wal/1>) = 0 <0.020012>`.
fn call(line: &str) -> Option<Call> {
    let (_, line) = line.split_once(' ')?;
    let (start, line) = line.trim_start().split_once(' ')?;
    let (name, rest) = line.split_once('(')?;
    let path = rest.split_once('<').and_then(|(_, path)| path.split_once('>'));
    let (_, seconds) = line.strip_suffix('>')?.rsplit_once(" <")?;
    let seconds: f64 = seconds.parse().ok()?;
    Some(Call {
        name: name.to_owned(),
        path: path.map_or(String::new(), |(path, _)| path.to_owned()),
        ended: start.parse::<f64>().ok()? + seconds,
        seconds,
    })
}

/// Reads a line such as `pread64(17</data/base/pgsql_tmp/pgsql_tmp12.0>, ""..., 8192, 0) = 8192 <0.000012>`.
/// Returns the file type, whether it is a read, the requested bytes, the returned bytes, and milliseconds.
fn request(line: &str) -> Option<(usize, bool, i64, i64, f64)> {
    let (call, rest) = line.split_once('(')?;
    let path = &rest[rest.find('<')? + 1..rest.find('>')?];
    let name = path.rsplit('/').next()?;
    let filetype = if path.contains("/pgsql_tmp/pgsql_tmp") {
        0
    } else if path.contains("/base/") && name.starts_with('t') {
        1
    } else {
        return None;
    };
    let (arguments, result) = rest.rsplit_once(") = ")?;
    let size = if call.ends_with('v') || call.ends_with('2') {
        let parts = arguments.split("iov_len=").skip(1);
        parts
            .filter_map(|part| part.split(['}', ',']).next()?.parse::<i64>().ok())
            .sum()
    } else {
        arguments.rsplit(", ").nth(1)?.parse().ok()?
    };
    let bytes: i64 = result.split_whitespace().next()?.parse().ok()?;
    let seconds: f64 = result.rsplit_once('<')?.1.trim_end_matches('>').parse().ok()?;
    assert!(FILETYPES.len() > filetype);
    Some((
        filetype,
        call.starts_with("pread"),
        size,
        bytes.max(0),
        seconds * 1e3,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_a_session() {
        let line = "12 100.5 fdatasync(17</d/pg_wal/01>) = 0 <0.250000>";
        let found = Call {
            name: "fdatasync".to_owned(),
            path: "/d/pg_wal/01".to_owned(),
            ended: 100.75,
            seconds: 0.25,
        };
        assert_eq!(call(line), Some(found));
        assert_eq!(
            call("12 100.5 epoll_wait(4<anon_inode:[eventpoll]>, <detached ...>"),
            None
        );
    }

    #[test]
    fn lines_of_strace() {
        let work = "pread64(17</d/base/pgsql_tmp/pgsql_tmp12.0>, \"\"..., 8192, 0) = 8000 <0.000012>";
        assert_eq!(request(work), Some((0, true, 8192, 8000, 0.012)));
        let table = "pwrite64(3</d/base/5/t3_16384>, \"\"..., 8192, 1073733632) = -1 ENOSPC (No space left on device) <0.001000>";
        assert_eq!(request(table), Some((1, false, 8192, 0, 1.0)));
        let vectored = "preadv(3</d/base/5/t3_1>, [{iov_base=\"\"..., iov_len=8192}, {iov_base=\"\"..., iov_len=8192}], 2, 0) = 16384 <0.000001>";
        assert_eq!(request(vectored), Some((1, true, 16384, 16384, 0.001)));
        assert_eq!(
            request("pread64(3</d/base/5/16384>, \"\"..., 8192, 0) = 8192 <0.000001>"),
            None
        );
    }
}
