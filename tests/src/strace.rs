//! Traces a server's requests to its temporary files with strace.

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
        let deadline = Instant::now() + Duration::from_secs(20);
        while process::tracer(server.postmaster()) == Some(0) {
            assert!(
                Instant::now() < deadline,
                "strace cannot attach to the server (see kernel.yama.ptrace_scope)"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        Trace { child, folder }
    }

    /// Ends the trace. Returns the requests to each file type, and how many processes made requests.
    pub fn stop(mut self) -> ([Io; 2], usize) {
        let _ = Command::new("kill")
            .args(["-INT", &self.child.id().to_string()])
            .status();
        let _ = self.child.wait();
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

/// Reads a line such as `pread64(17</data/base/pgsql_tmp/pgsql_tmp12.0>, ""..., 8192, 0) = 8192 <0.000012>`. Returns the file
/// type, whether it is a read, the requested bytes, the returned bytes, and milliseconds.
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
