//! Runs a session one instruction at a time, and looks at it from outside after each one of the library. So
//! what others see is tested at each moment at which a session can lose its processor.

use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use procfs::process::{MMPermissions, MMapPath, Process};
use std::ops::Range;

/// Runs a session, which runs a statement already, until `look` was called so often: after each instruction
/// of the library. Then the session goes on.
pub fn step(pid: i32, looks: usize, mut look: impl FnMut()) {
    let code = code_of_library(pid);
    let pid = Pid::from_raw(pid);
    ptrace::attach(pid).expect("the process can be traced (see kernel.yama.ptrace_scope)");
    let mut signal = None;
    let mut looked = 0;
    while looked < looks {
        match waitpid(pid, None).expect("the process stops") {
            WaitStatus::Stopped(_, Signal::SIGTRAP | Signal::SIGSTOP) => {}
            WaitStatus::Stopped(_, other) => signal = Some(other),
            other => panic!("the process does not stop: {other:?}"),
        }
        let registers = ptrace::getregs(pid).expect("the process has stopped");
        if code.iter().any(|code| code.contains(&registers.rip)) {
            look();
            looked += 1;
        }
        ptrace::step(pid, signal.take()).expect("the process can run");
    }
    waitpid(pid, None).expect("the process stops");
    ptrace::detach(pid, None).expect("the process continues");
}

/// Returns where the library's code is in a process.
fn code_of_library(pid: i32) -> Vec<Range<u64>> {
    let maps = Process::new(pid)
        .and_then(|process| process.maps())
        .expect("the process's memory map");
    let code = maps.into_iter().filter(|map| {
        map.perms.contains(MMPermissions::EXECUTE)
            && matches!(&map.pathname, MMapPath::Path(path) if path.ends_with("pg_rowsource.so"))
    });
    code.map(|map| map.address.0..map.address.1).collect()
}
