/*
 * Patches the entry of pread in the server's import table, as another library may do before or after pg_rowsource. It
 * counts the calls and passes them to the previous function. patcher_calls() returns the number of calls in this process.
 */
#define _GNU_SOURCE
#include "postgres.h"

#include "fmgr.h"

#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

PG_MODULE_MAGIC;

typedef ssize_t (*pread_type) (int, void *, size_t, off_t);

static pread_type original;
static int64 calls;

void		_PG_init(void);

static ssize_t
counting(int fd, void *buffer, size_t bytes, off_t offset)
{
	calls++;
	return original(fd, buffer, bytes, offset);
}

static int
patch(struct dl_phdr_info *info, size_t size, void *arg)
{
	ElfW(Dyn) *dynamic = NULL;
	ElfW(Rela) *slots = NULL;
	ElfW(Sym) *symbols = NULL;
	const char *names = NULL;
	size_t		bytes = 0;

	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			dynamic = (ElfW(Dyn) *) (info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++)
	{
		if (dynamic->d_tag == DT_JMPREL)
			slots = (ElfW(Rela) *) dynamic->d_un.d_ptr;
		if (dynamic->d_tag == DT_PLTRELSZ)
			bytes = dynamic->d_un.d_val;
		if (dynamic->d_tag == DT_SYMTAB)
			symbols = (ElfW(Sym) *) dynamic->d_un.d_ptr;
		if (dynamic->d_tag == DT_STRTAB)
			names = (const char *) dynamic->d_un.d_ptr;
	}
	for (size_t i = 0; slots && symbols && names && i < bytes / sizeof(*slots); i++)
		if (strcmp(names + symbols[ELF64_R_SYM(slots[i].r_info)].st_name, "pread") == 0)
		{
			void	  **slot = (void **) (info->dlpi_addr + slots[i].r_offset);
			size_t		page = sysconf(_SC_PAGESIZE);
			void	   *start = (void *) ((uintptr_t) slot & ~(page - 1));

			original = (pread_type) *slot;
			if (mprotect(start, page, PROT_READ | PROT_WRITE) != 0)
				elog(FATAL, "patcher: %m");
			*slot = (void *) counting;
			mprotect(start, page, PROT_READ);
		}
	return 1;
}

void
_PG_init(void)
{
	if (original)
		return;
	dl_iterate_phdr(patch, NULL);
	if (!original)
		elog(FATAL, "patcher: no slot");
}

PG_FUNCTION_INFO_V1(patcher_calls);
Datum
patcher_calls(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(calls);
}
