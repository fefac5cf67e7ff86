//! Which cache lines of shared memory a session reads and writes. The session's process runs one instruction
//! at a time, and the operands of each instruction are computed before it runs. So nothing is missed: neither
//! a lock that is taken and released, nor a write of the value that is already there. What the kernel does in
//! a system call is not seen. A statement takes seconds.

use iced_x86::{
    Decoder, DecoderOptions, Instruction, InstructionInfoFactory, OpAccess, Register, UsedMemory,
};
use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use procfs::process::{MMPermissions, MMapPath, Process};
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// The bytes of a cache line.
pub const LINE: u64 = 64;

/// A segment of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Segment(u64);

/// A line of shared memory. It is the same for all processes, wherever they have mapped it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line {
    /// Main shared memory is a segment, too.
    pub segment: Segment,
    /// The offset in the segment.
    pub offset: u64,
}

/// The lines that a session has used.
#[derive(Default)]
pub struct Lines {
    pub read: BTreeSet<Line>,
    pub written: BTreeSet<Line>,
}

impl Lines {
    /// Returns all lines.
    pub fn used(&self) -> impl Iterator<Item = &Line> {
        self.read.iter().chain(&self.written)
    }

    pub fn add(&mut self, more: Lines) {
        self.read.extend(more.read);
        self.written.extend(more.written);
    }

    /// Returns the lines that one of two sessions writes, and the other one reads or writes.
    pub fn shared_with(&self, other: &Lines) -> BTreeSet<Line> {
        let uses = |by: &Lines, line: &Line| by.read.contains(line) || by.written.contains(line);
        let by_self = self.written.iter().filter(|line| uses(other, line));
        let by_other = other.written.iter().filter(|line| uses(self, line));
        by_self.chain(by_other).copied().collect()
    }
}

/// A part of shared memory, as one process has mapped it.
struct Part {
    from: u64,
    to: u64,
    inode: u64,
    offset: u64,
    is_dynamic: bool,
}

/// The shared memory that a process has mapped.
pub struct SharedMemory(Vec<Part>);

impl SharedMemory {
    /// Returns the parts of PostgreSQL's shared memory that the process has mapped now.
    pub fn of(pid: u32) -> SharedMemory {
        let process = Process::new(pid as i32).expect("the session's process");
        let maps = process.maps().expect("the process's memory map");
        let shared = maps
            .into_iter()
            .filter(|map| map.perms.contains(MMPermissions::SHARED));
        let parts = shared.filter_map(|map| {
            let MMapPath::Path(path) = &map.pathname else {
                return None;
            };
            let path = path.to_string_lossy();
            let is_dynamic = path.starts_with("/dev/shm/PostgreSQL.");
            (is_dynamic || path.starts_with("/dev/zero")).then_some(Part {
                from: map.address.0,
                to: map.address.1,
                inode: map.inode,
                offset: map.offset,
                is_dynamic,
            })
        });
        SharedMemory(parts.collect())
    }

    fn line(&self, address: u64) -> Option<Line> {
        let part = self
            .0
            .iter()
            .find(|part| (part.from..part.to).contains(&address))?;
        Some(Line {
            segment: Segment(part.inode),
            offset: (part.offset + address - part.from) / LINE * LINE,
        })
    }

    /// Returns the segments of dynamic shared memory.
    pub fn segments(&self) -> BTreeSet<Segment> {
        let dynamic = self.0.iter().filter(|part| part.is_dynamic);
        dynamic.map(|part| Segment(part.inode)).collect()
    }
}

/// Returns the lines of shared memory that the session with this process uses while `statement` runs, which
/// must run a statement in the session. What the session does before it waits for the next statement belongs
/// to it.
pub fn lines_of(pid: u32, statement: impl FnOnce() + Send) -> Lines {
    let memory = SharedMemory::of(pid);
    let bytes = File::open(format!("/proc/{pid}/mem")).expect("the process's memory");
    let pid = Pid::from_raw(pid as i32);
    ptrace::attach(pid).expect("the process can be traced (see kernel.yama.ptrace_scope)");
    let mut lines = Lines::default();
    std::thread::scope(|scope| {
        let stopped = waitpid(pid, None).expect("the process stops");
        assert!(matches!(stopped, WaitStatus::Stopped(..)), "{stopped:?}");
        scope.spawn(move || {
            statement();
            // It has sent its answer, and does the rest.
            std::thread::sleep(Duration::from_millis(50));
            kill(pid, Signal::SIGSTOP).expect("the process runs");
        });
        let mut decoded = HashMap::new();
        let mut signal = None;
        loop {
            let registers = ptrace::getregs(pid).expect("the process has stopped");
            let operands = decoded
                .entry(registers.rip)
                .or_insert_with(|| operands_at(&bytes, registers.rip));
            for operand in operands {
                note(operand, &registers, &memory, &mut lines);
            }
            ptrace::step(pid, signal.take()).expect("the process can run");
            match waitpid(pid, None).expect("the process stops") {
                WaitStatus::Stopped(_, Signal::SIGTRAP) => {}
                WaitStatus::Stopped(_, Signal::SIGSTOP) => break,
                WaitStatus::Stopped(_, other) => signal = Some(other),
                other => panic!("the process does not stop: {other:?}"),
            }
        }
    });
    ptrace::detach(pid, None).expect("the process continues");
    lines
}

/// Returns what the instruction at an address reads and writes in memory, except on the stack.
fn operands_at(bytes: &File, address: u64) -> Vec<UsedMemory> {
    const LONGEST: usize = 15;
    let mut code = [0; LONGEST];
    let read = bytes
        .read_at(&mut code, address)
        .expect("the code of the process");
    let mut instruction = Instruction::default();
    Decoder::with_ip(64, &code[..read], address, DecoderOptions::NONE).decode_out(&mut instruction);
    assert!(!instruction.is_invalid(), "no instruction at {address:x}");
    let mut factory = InstructionInfoFactory::new();
    let operands = factory.info(&instruction).used_memory().iter();
    operands
        .filter(|operand| operand.base() != Register::RSP)
        .copied()
        .collect()
}

/// Notes the lines of an operand.
fn note(
    operand: &UsedMemory,
    registers: &nix::libc::user_regs_struct,
    memory: &SharedMemory,
    lines: &mut Lines,
) {
    let (reads, writes) = match operand.access() {
        OpAccess::Read | OpAccess::CondRead => (true, false),
        OpAccess::Write | OpAccess::CondWrite => (false, true),
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
        OpAccess::None | OpAccess::NoMemAccess => return,
    };
    // A vector of addresses (gather) has no single one.
    let Some(first) = operand.virtual_address(0, |register, _, _| value(register, registers)) else {
        return;
    };
    let size = (operand.memory_size().size() as u64).max(1);
    for address in [first, first + size - 1] {
        let Some(line) = memory.line(address) else {
            continue;
        };
        if reads {
            lines.read.insert(line);
        }
        if writes {
            lines.written.insert(line);
        }
    }
}

fn value(register: Register, registers: &nix::libc::user_regs_struct) -> Option<u64> {
    Some(match register.full_register() {
        Register::RAX => registers.rax,
        Register::RBX => registers.rbx,
        Register::RCX => registers.rcx,
        Register::RDX => registers.rdx,
        Register::RSI => registers.rsi,
        Register::RDI => registers.rdi,
        Register::RBP => registers.rbp,
        Register::RSP => registers.rsp,
        Register::R8 => registers.r8,
        Register::R9 => registers.r9,
        Register::R10 => registers.r10,
        Register::R11 => registers.r11,
        Register::R12 => registers.r12,
        Register::R13 => registers.r13,
        Register::R14 => registers.r14,
        Register::R15 => registers.r15,
        Register::FS => registers.fs_base,
        Register::GS => registers.gs_base,
        Register::ES | Register::CS | Register::SS | Register::DS => 0,
        _ => return None,
    })
}
