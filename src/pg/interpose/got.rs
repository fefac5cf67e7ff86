//! Finds and replaces slots of imported functions in the main program's global offset table (GOT).
//!
//! The loader fills a slot (a word of the table) with the address of an imported function. With full RELRO,
//! which is usual, it then makes the table read-only. Nothing is replaced unless everything is as expected:
//! the file must be the program that is mapped, a slot must be in its writable part, and its value must be
//! the address of code. If another library has replaced the function in a slot, the replacement calls that
//! library's function.

use crate::pg::compat;
use object::elf::{PF_W, PT_LOAD, RelocationType};
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Object, ObjectSymbol, ObjectSymbolTable, RelocationFlags, RelocationTarget};
use std::ffi::{CStr, c_int, c_void};
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::{fs, io};

/// The relocation types of slots: for calls, and for the address of a function.
#[cfg(target_arch = "x86_64")]
const SLOT_TYPES: [RelocationType; 2] = [object::elf::R_X86_64_JUMP_SLOT, object::elf::R_X86_64_GLOB_DAT];
#[cfg(target_arch = "aarch64")]
const SLOT_TYPES: [RelocationType; 2] = [object::elf::R_AARCH64_JUMP_SLOT, object::elf::R_AARCH64_GLOB_DAT];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const SLOT_TYPES: [RelocationType; 0] = [];

/// A slot of the main program.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// The index of the imported function in the list of names that was passed to [`find`].
    pub name: usize,
    address: *mut usize,
}

/// A part of this process's memory.
struct Mapping {
    start: usize,
    end: usize,
    protection: c_int,
}

/// The list of this process's memory mappings.
pub struct Memory(Vec<Mapping>);

impl Memory {
    /// Reads the list of mappings.
    pub fn read() -> Result<Memory, String> {
        let text = fs::read_to_string("/proc/self/maps").map_err(|e| format!("/proc/self/maps: {e}"))?;
        let mappings = text
            .lines()
            .map(mapping)
            .collect::<Option<_>>()
            .ok_or("/proc/self/maps cannot be understood")?;
        Ok(Memory(mappings))
    }

    fn of(&self, address: usize) -> Option<&Mapping> {
        self.0.iter().find(|m| (m.start..m.end).contains(&address))
    }

    fn protection(&self, address: usize) -> Option<c_int> {
        self.of(address).map(|m| m.protection)
    }

    /// Returns whether an address is in executable memory.
    pub fn is_code(&self, address: usize) -> bool {
        self.protection(address)
            .is_some_and(|protection| protection & libc::PROT_EXEC != 0)
    }
}

/// Parses a line such as `55d0-55d8 r-xp 00000000 fe:01 123 /usr/bin/it`.
fn mapping(line: &str) -> Option<Mapping> {
    let mut fields = line.split(' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let flags = fields.next()?;
    let protection = [
        ('r', libc::PROT_READ),
        ('w', libc::PROT_WRITE),
        ('x', libc::PROT_EXEC),
    ]
    .into_iter()
    .filter(|(letter, _)| flags.contains(*letter))
    .fold(libc::PROT_NONE, |sum, (_, bit)| sum | bit);
    Some(Mapping {
        start: usize::from_str_radix(start, 16).ok()?,
        end: usize::from_str_radix(end, 16).ok()?,
        protection,
    })
}

/// The mapped main program: the difference between its addresses in memory and in the file, and its segments.
struct Program {
    bias: usize,
    segments: Vec<libc::Elf64_Phdr>,
}

impl Program {
    fn mapped() -> Result<Program, String> {
        let mut found: Option<Program> = None;
        // SAFETY: the callback gets the address of `found`, which outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(take_first), (&raw mut found).cast()) };
        found.ok_or_else(|| "the loader does not name the main program".into())
    }

    fn contains(&self, address: usize) -> bool {
        self.segment(address, 0).is_some()
    }

    /// Returns the loaded segment that contains an address, if it has these flags.
    fn segment(&self, address: usize, flags: u32) -> Option<&libc::Elf64_Phdr> {
        self.segments.iter().find(|segment| {
            let start = self.bias.wrapping_add(segment.p_vaddr as usize);
            segment.p_type == PT_LOAD.0
                && segment.p_flags & flags == flags
                && (start..start + segment.p_memsz as usize).contains(&address)
        })
    }
}

/// Stores the first program that the loader lists, which is the main one. Returns 1 to end the iteration.
///
/// # Safety
/// Only the loader may call this, with its description of a program and the address of an `Option<Program>`.
/// No other reference to that may be in use.
unsafe extern "C" fn take_first(info: *mut libc::dl_phdr_info, _size: usize, found: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid description and the address that `mapped` gave to it.
    unsafe {
        let segments = std::slice::from_raw_parts((*info).dlpi_phdr, (*info).dlpi_phnum.into());
        *found.cast::<Option<Program>>() = Some(Program {
            bias: (*info).dlpi_addr as usize,
            segments: segments.to_vec(),
        });
    }
    1
}

/// A file in memory. Only the parts that are used are read: a session that loads the library waits for that.
struct MappedFile {
    start: *mut c_void,
    bytes: usize,
}

impl MappedFile {
    fn open(path: &Path) -> io::Result<MappedFile> {
        let file = fs::File::open(path)?;
        let bytes = file.metadata()?.len() as usize;
        // SAFETY: the kernel chooses the place of this new mapping, which stays valid after the file is
        // closed.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ,
                libc::MAP_PRIVATE,
                file.as_raw_fd(),
                0,
            )
        };
        match start {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            _ => Ok(MappedFile { start, bytes }),
        }
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping has `bytes` bytes and lives as long as `self`. Nobody writes to the program's
        // file: an upgrade puts another file in its place.
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.bytes) }
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `open` made, and no reference into it is left.
        unsafe { libc::munmap(self.start, self.bytes) };
    }
}

/// Returns the main program's slots for these imported functions.
pub fn find(names: &[&CStr]) -> Result<Vec<Slot>, String> {
    let program = Program::mapped()?;
    // The file is first opened by its name, because under a tracer /proc/self/exe may be the tracer. If the
    // file was removed, /proc/self/exe still works.
    let path = fs::read_link("/proc/self/exe").map_err(|e| format!("/proc/self/exe: {e}"))?;
    let bytes = MappedFile::open(&path)
        .or_else(|_| MappedFile::open("/proc/self/exe".as_ref()))
        .map_err(|e| format!("{}: {e}", path.display()))?;
    let file = ElfFile64::<object::Endianness>::parse(&*bytes)
        .map_err(|e| format!("{} cannot be read: {e}", path.display()))?;
    let endian = file.endian();
    let of_file = file.elf_program_headers().iter().map(|header| {
        (
            header.p_type(endian).0,
            header.p_vaddr(endian),
            header.p_memsz(endian),
        )
    });
    let of_memory = program.segments.iter().map(|s| (s.p_type, s.p_vaddr, s.p_memsz));
    if !of_file.eq(of_memory) {
        return Err(format!("{} is not the program that runs", path.display()));
    }
    let symbols = file
        .dynamic_symbol_table()
        .ok_or("the program has no dynamic symbols")?;
    let relocations = file
        .dynamic_relocations()
        .ok_or("the program has no dynamic relocations")?;
    let mut slots = Vec::new();
    for (offset, relocation) in relocations {
        let (RelocationFlags::Elf { r_type }, RelocationTarget::Symbol(symbol)) =
            (relocation.flags(), relocation.target())
        else {
            continue;
        };
        let symbol = symbols.symbol_by_index(symbol).map_err(|e| e.to_string())?;
        let name = symbol.name_bytes().unwrap_or_default();
        let Some(name) = names.iter().position(|wanted| wanted.to_bytes() == name) else {
            continue;
        };
        let address = program.bias.wrapping_add(offset as usize);
        if !SLOT_TYPES.contains(&r_type) || relocation.addend() != 0 || !symbol.is_undefined() {
            return Err(format!("{:?} is imported in an unknown way", names[name]));
        }
        if program.segment(address, PF_W.0).is_none() || !address.is_multiple_of(align_of::<usize>()) {
            return Err(format!("the slot of {:?} is not where it should be", names[name]));
        }
        slots.push(Slot {
            name,
            address: address as *mut usize,
        });
    }
    Ok(slots)
}

impl Slot {
    /// Returns the slot's value.
    pub fn value(self) -> usize {
        // SAFETY: `find` checked that this is an aligned word of a mapped segment.
        unsafe { self.address.read_volatile() }
    }

    /// Returns the function that a call through the slot reaches. If the loader resolves names lazily, the
    /// slot points into the program itself until the first call. Then this returns the function that the slot
    /// will contain after that call.
    pub fn function(self, name: &CStr, memory: &Memory) -> Result<usize, String> {
        let program = Program::mapped()?;
        let mut function = self.value();
        if program.contains(function) {
            function = resolved(name);
        }
        if program.contains(function) || !memory.is_code(function) {
            return Err(format!("the slot of {name:?} does not lead to a library's code"));
        }
        Ok(function)
    }

    /// Returns the protection of the slot's page.
    pub fn protection(self, memory: &Memory) -> Result<c_int, String> {
        let protection = memory.protection(self.address as usize);
        protection.ok_or_else(|| "a slot is not mapped".into())
    }

    /// Writes to the slot, and restores the protection of its page.
    pub fn replace(self, value: usize, protection: c_int) -> Result<(), String> {
        if protection & libc::PROT_WRITE == 0 {
            self.protect(protection | libc::PROT_WRITE)?;
        }
        // SAFETY: the slot is mapped, aligned, and writable now. This process has one thread.
        unsafe { self.address.write_volatile(value) };
        if protection & libc::PROT_WRITE == 0 {
            self.protect(protection)?;
        }
        Ok(())
    }

    /// Returns whether the slot has this value, and its page the same protection before and after.
    pub fn is_replaced(self, value: usize, before: &Memory, after: &Memory) -> bool {
        let address = self.address as usize;
        self.value() == value && before.protection(address) == after.protection(address)
    }

    fn protect(self, protection: c_int) -> Result<(), String> {
        let page = compat::page();
        let start = self.address as usize & !(page - 1);
        // SAFETY: this is a page of the main program's data, and an aligned slot does not cross pages.
        match unsafe { libc::mprotect(start as *mut c_void, page, protection) } {
            0 => Ok(()),
            _ => Err(format!(
                "its import table cannot be written: {}",
                std::io::Error::last_os_error()
            )),
        }
    }
}

/// Returns the address to which the loader resolves a name.
fn resolved(name: &CStr) -> usize {
    // SAFETY: the name is a C string, which ends with a zero.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) as usize }
}
