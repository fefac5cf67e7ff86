/*
 * Makes functions of the server fail when pg_rowsource calls them. This library patches pg_rowsource's import table.
 * After failing(name) the next call of that function raises "out of memory". All other calls are passed on. For
 * "tuplesort_get_stats internally" it is an internal error.
 * closedir raises nothing: it says that it could not close the folder, which makes code of Rust's library panic.
 */
#define _GNU_SOURCE
#include "postgres.h"

#include "fmgr.h"
#include "nodes/nodes.h"
#include "optimizer/optimizer.h"
#include "storage/dsm.h"
#include "utils/builtins.h"
#include "utils/dsa.h"
#include "utils/tuplesort.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

PG_MODULE_MAGIC;

void		_PG_init(void);

static bool copy_fails;
static bool look_fails;
static bool create_fails;
static bool allocate_fails;
static bool sort_fails;
static bool close_fails;
static bool is_internal;
static int	patched;

static void
raise_out_of_memory(void)
{
	if (is_internal)
		elog(ERROR, "internal error, as a test wants it");
	ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory, as a test wants it")));
}

static ErrorData *
failing_copy(void)
{
	if (copy_fails)
	{
		copy_fails = false;
		raise_out_of_memory();
	}
	return CopyErrorData();
}

static bool
failing_look(Node *clause)
{
	if (look_fails)
	{
		look_fails = false;
		raise_out_of_memory();
	}
	return contain_volatile_functions(clause);
}

/* Fails after the segment was created, so that the caller's error handling must remove it. */
static dsm_segment *
failing_create(Size size, int flags)
{
	dsm_segment *segment = dsm_create(size, flags);

	if (create_fails)
	{
		create_fails = false;
		raise_out_of_memory();
	}
	return segment;
}

static dsa_pointer
failing_allocate(dsa_area *area, size_t size, int flags)
{
	if (allocate_fails)
	{
		allocate_fails = false;
		raise_out_of_memory();
	}
	return dsa_allocate_extended(area, size, flags);
}

static void
failing_sort(Tuplesortstate *state, TuplesortInstrumentation *stats)
{
	if (sort_fails)
	{
		sort_fails = false;
		raise_out_of_memory();
	}
	tuplesort_get_stats(state, stats);
}

/* Returns an error after the folder was closed. */
static int
failing_close(DIR *folder)
{
	int			result = closedir(folder);

	if (close_fails)
	{
		close_fails = false;
		errno = EIO;
		return -1;
	}
	return result;
}

static void *
instead_of(const char *name)
{
	if (strcmp(name, "CopyErrorData") == 0)
		return failing_copy;
	if (strcmp(name, "contain_volatile_functions") == 0)
		return failing_look;
	if (strcmp(name, "dsm_create") == 0)
		return failing_create;
	if (strcmp(name, "dsa_allocate_extended") == 0)
		return failing_allocate;
	if (strcmp(name, "tuplesort_get_stats") == 0)
		return failing_sort;
	if (strcmp(name, "closedir") == 0)
		return failing_close;
	return NULL;
}

static void
patch_slots(ElfW(Addr) base, ElfW(Rela) *slots, size_t bytes, ElfW(Sym) *symbols, const char *names)
{
	for (size_t i = 0; i < bytes / sizeof(*slots); i++)
	{
		void	   *instead = instead_of(names + symbols[ELF64_R_SYM(slots[i].r_info)].st_name);
		void	  **slot = (void **) (base + slots[i].r_offset);
		size_t		page = sysconf(_SC_PAGESIZE);
		void	   *start = (void *) ((uintptr_t) slot & ~(page - 1));

		if (instead == NULL)
			continue;
		if (mprotect(start, page, PROT_READ | PROT_WRITE) != 0)
			elog(FATAL, "failing: %m");
		*slot = instead;
		patched++;
	}
}

static int
patch(struct dl_phdr_info *info, size_t size, void *arg)
{
	ElfW(Dyn) *dynamic = NULL;
	ElfW(Rela) *slots[2] = {NULL, NULL};
	size_t		bytes[2] = {0, 0};
	ElfW(Sym) *symbols = NULL;
	const char *names = NULL;

	if (strstr(info->dlpi_name, "/pg_rowsource.so") == NULL)
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			dynamic = (ElfW(Dyn) *) (info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++)
	{
		if (dynamic->d_tag == DT_JMPREL)
			slots[0] = (ElfW(Rela) *) dynamic->d_un.d_ptr;
		if (dynamic->d_tag == DT_PLTRELSZ)
			bytes[0] = dynamic->d_un.d_val;
		if (dynamic->d_tag == DT_RELA)
			slots[1] = (ElfW(Rela) *) dynamic->d_un.d_ptr;
		if (dynamic->d_tag == DT_RELASZ)
			bytes[1] = dynamic->d_un.d_val;
		if (dynamic->d_tag == DT_SYMTAB)
			symbols = (ElfW(Sym) *) dynamic->d_un.d_ptr;
		if (dynamic->d_tag == DT_STRTAB)
			names = (const char *) dynamic->d_un.d_ptr;
	}
	for (int i = 0; i < 2; i++)
		if (slots[i] && symbols && names)
			patch_slots(info->dlpi_addr, slots[i], bytes[i], symbols, names);
	return 1;
}

void
_PG_init(void)
{
	dl_iterate_phdr(patch, NULL);
	if (patched < 6)
		elog(FATAL, "failing: %d slots", patched);
}

PG_FUNCTION_INFO_V1(failing);
Datum
failing(PG_FUNCTION_ARGS)
{
	char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(0));

	copy_fails = strcmp(name, "CopyErrorData") == 0;
	look_fails = strcmp(name, "contain_volatile_functions") == 0;
	create_fails = strcmp(name, "dsm_create") == 0;
	allocate_fails = strcmp(name, "dsa_allocate_extended") == 0;
	is_internal = strcmp(name, "tuplesort_get_stats internally") == 0;
	sort_fails = is_internal || strcmp(name, "tuplesort_get_stats") == 0;
	close_fails = strcmp(name, "closedir") == 0;
	PG_RETURN_VOID();
}
