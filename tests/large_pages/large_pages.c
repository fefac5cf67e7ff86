/*
 * A system with pages of 64 kB, as far as a program can tell: sysconf() says so, in the processes that the server
 * starts. The postmaster learns the true size, because it changes the protection of pages.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

static pid_t first;

__attribute__((constructor)) static void
note_first(void)
{
	first = getpid();
}

long
sysconf(int name)
{
	static long (*original) (int);

	if (name == _SC_PAGESIZE && getpid() != first)
		return 64 << 10;
	if (!original)
		original = (long (*) (int)) dlsym(RTLD_NEXT, "sysconf");
	return original(name);
}
