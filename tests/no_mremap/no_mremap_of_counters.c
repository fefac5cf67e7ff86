/*
 * A system that does not map a page at the place of PostgreSQL's counters of blocks. LD_PRELOAD loads this
 * library before libc.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void *
mremap(void *address, size_t before, size_t after, int flags,...)
{
	char	   *target = NULL;
	char	   *counters = dlsym(RTLD_DEFAULT, "pgBufferUsage");
	va_list		arguments;

	va_start(arguments, flags);
	if (flags & MREMAP_FIXED)
		target = va_arg(arguments, char *);
	va_end(arguments);
	if (target != NULL && counters >= target && counters < target + after)
	{
		errno = EINVAL;
		return MAP_FAILED;
	}
	return (void *) syscall(SYS_mremap, address, before, after, flags, target);
}
