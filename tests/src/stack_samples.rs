//! How much of a statement's time one function of PostgreSQL takes with all that it calls. The session is
//! stopped at random times, and its stack tells whether the function runs. So nothing in the statement reads
//! a clock, and no time is a difference of two.

use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use object::{Object, ObjectSegment, ObjectSymbol};
use procfs::process::{MMPermissions, MMapPath, Process};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// The calls of the function after which its place in the stack is known. The first one may come from another
/// caller.
const CALLS: usize = 3;
/// The bytes of the stack that are compared.
const STACK: usize = 8192;
const BREAKPOINT: u8 = 0xcc;

/// In how many samples the function ran.
#[derive(Clone, Copy, Debug)]
pub struct Samples {
    pub inside: usize,
    pub all: usize,
}

/// The memory of a session, and where its code is.
struct Image {
    memory: File,
    code: Vec<(u64, u64)>,
    function: u64,
}

impl Image {
    /// Returns `None` if the server's program has no symbol with this name.
    fn of(pid: u32, function: &str) -> Option<Image> {
        let process = Process::new(pid as i32).expect("the session's process");
        let program = process.exe().expect("the server's program");
        let bytes = fs::read(&program).expect("the server's program can be read");
        let file = object::File::parse(&*bytes).expect("a program");
        let address = file
            .dynamic_symbols()
            .find(|symbol| symbol.name() == Ok(function))?
            .address();
        // Programs that are not position-independent are mapped where they say.
        let base = file.segments().map(|segment| segment.address()).min()? & !0xfff;
        let maps = process.maps().expect("the process's memory map");
        let first = maps
            .iter()
            .find(|map| matches!(&map.pathname, MMapPath::Path(path) if *path == program))
            .expect("the program is mapped");
        Some(Image {
            memory: File::options()
                .read(true)
                .write(true)
                .open(format!("/proc/{pid}/mem"))
                .expect("the process's memory"),
            code: maps
                .iter()
                .filter(|map| map.perms.contains(MMPermissions::EXECUTE))
                .map(|map| map.address)
                .collect(),
            function: first.address.0 + (address - base),
        })
    }

    fn is_code(&self, word: u64) -> bool {
        self.code.iter().any(|(from, to)| (*from..*to).contains(&word))
    }

    /// Returns the words of the stack from an address on, as far as there are.
    fn stack(&self, from: u64) -> Vec<u64> {
        let mut bytes = vec![0; STACK];
        let read = self.memory.read_at(&mut bytes, from).unwrap_or(0);
        let words = bytes[..read].chunks_exact(8);
        words
            .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
            .collect()
    }

    fn write(&self, byte: u8) {
        self.memory
            .write_at(&[byte], self.function)
            .expect("the code can be changed");
    }
}

/// The stack when the function begins.
struct Place {
    /// The address of the return address.
    at: u64,
    /// The return addresses from there on, and their places.
    callers: Vec<(usize, u64)>,
}

impl Place {
    fn of(image: &Image, at: u64) -> Place {
        let words = image.stack(at).into_iter().enumerate();
        Place {
            at,
            callers: words.filter(|(_, word)| image.is_code(*word)).collect(),
        }
    }

    /// Returns whether the function runs. Its caller runs if the return addresses above are the same. As long
    /// as the stack does not end above it, the last thing that its caller called is the function, if the
    /// return address is that one.
    fn is_in(&self, image: &Image, stack_pointer: u64) -> bool {
        let words = image.stack(self.at);
        stack_pointer <= self.at && self.callers.iter().all(|(i, word)| words.get(*i) == Some(word))
    }
}

/// Samples the session with this process while `statement` runs, which must run a statement in the session.
/// The distance of two samples is `distance` in the mean. Returns `None` if the server has no such function,
/// or if the statement ends before it has called it a few times.
pub fn samples(
    pid: u32,
    function: &str,
    distance: Duration,
    statement: impl FnOnce() + Send,
) -> Option<Samples> {
    let image = Image::of(pid, function)?;
    let pid = Pid::from_raw(pid as i32);
    ptrace::attach(pid).expect("the process can be traced (see kernel.yama.ptrace_scope)");
    stopped(pid, Signal::SIGSTOP);
    let has_ended = AtomicBool::new(false);
    let mut samples = Samples { inside: 0, all: 0 };
    let is_called = std::thread::scope(|scope| {
        let place = {
            let mut original = [0];
            image
                .memory
                .read_exact_at(&mut original, image.function)
                .expect("the code");
            image.write(BREAKPOINT);
            scope.spawn(|| {
                statement();
                has_ended.store(true, SeqCst);
            });
            let mut at = 0;
            for call in 1..=CALLS {
                ptrace::cont(pid, None).expect("the process can run");
                if !has_stopped(pid, Signal::SIGTRAP, &has_ended) {
                    kill(pid, Signal::SIGSTOP).expect("the process runs");
                    stopped(pid, Signal::SIGSTOP);
                    image.write(original[0]);
                    return false;
                }
                let mut registers = ptrace::getregs(pid).expect("the process has stopped");
                registers.rip = image.function;
                at = registers.rsp;
                ptrace::setregs(pid, registers).expect("the process has stopped");
                image.write(original[0]);
                if call < CALLS {
                    ptrace::step(pid, None).expect("the process can run");
                    stopped(pid, Signal::SIGTRAP);
                    image.write(BREAKPOINT);
                }
            }
            Place::of(&image, at)
        };
        let mut random = 1_u64;
        loop {
            ptrace::cont(pid, None).expect("the process can run");
            // Linear congruence is random enough: nothing else has this rhythm.
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let part = (random >> 33) as f64 / (1_u64 << 31) as f64;
            std::thread::sleep(distance.mul_f64(0.5 + part));
            kill(pid, Signal::SIGSTOP).expect("the process runs");
            stopped(pid, Signal::SIGSTOP);
            if has_ended.load(SeqCst) {
                break;
            }
            let registers = ptrace::getregs(pid).expect("the process has stopped");
            samples.all += 1;
            samples.inside += usize::from(place.is_in(&image, registers.rsp));
        }
        true
    });
    ptrace::detach(pid, None).expect("the process continues");
    is_called.then_some(samples)
}

/// Waits until the process stops because of a signal. Passes others on.
fn stopped(pid: Pid, by: Signal) {
    has_stopped(pid, by, &AtomicBool::new(false));
}

/// Does the same, unless the process's statement ends before. Returns whether the process stopped.
fn has_stopped(pid: Pid, by: Signal, has_ended: &AtomicBool) -> bool {
    loop {
        match waitpid(pid, Some(WaitPidFlag::WNOHANG)).expect("the process exists") {
            WaitStatus::Stopped(_, signal) if signal == by => return true,
            WaitStatus::Stopped(_, signal) => ptrace::cont(pid, signal).expect("the process can run"),
            WaitStatus::StillAlive if has_ended.load(SeqCst) => return false,
            WaitStatus::StillAlive => std::thread::sleep(Duration::from_micros(50)),
            other => panic!("the process does not stop: {other:?}"),
        }
    }
}
