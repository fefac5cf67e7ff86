/* A system that maps no memory at a second address. LD_PRELOAD loads this library before libc. */

#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>

void *
mremap(void *address, size_t before, size_t after, int flags,...)
{
	(void) address;
	(void) before;
	(void) after;
	(void) flags;
	errno = EINVAL;
	return MAP_FAILED;
}
