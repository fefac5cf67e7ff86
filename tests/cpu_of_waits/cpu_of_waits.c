/*
 * Sums up the calls in which a process of the server waits: how long they take, and the processor time that
 * the kernel uses inside of them. The server loads this library before the C library (LD_PRELOAD), so
 * pg_rowsource's functions call these. Its functions return nanoseconds of this process: time_of_waits() and
 * cpu_of_waits() return the sums, cpu_of_process() all of its processor time.
 */
#define _GNU_SOURCE
#include "postgres.h"

#include "fmgr.h"

#include <dlfcn.h>
#include <errno.h>
#include <time.h>

PG_MODULE_MAGIC;

/* Programs other than the server load this library too. They have no wait events. */
extern PGDLLIMPORT uint32 *my_wait_event_info __attribute__((weak));

static int64 sum;
static int64 time_sum;

static int64
read_clock(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * INT64CONST(1000000000) + now.tv_nsec;
}

static int64
cpu(void)
{
	return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

#define COUNTED(result, name, parameters, arguments) \
	result name parameters; \
	result \
	name parameters \
	{ \
		static result (*original) parameters; \
		result		returned; \
		int64		start; \
		int64		began; \
		int			error; \
		\
		if (original == NULL) \
			original = dlsym(RTLD_NEXT, #name); \
		if (&my_wait_event_info == NULL || *my_wait_event_info == 0) \
			return original arguments; \
		start = cpu(); \
		began = read_clock(CLOCK_MONOTONIC); \
		returned = original arguments; \
		error = errno; \
		time_sum += read_clock(CLOCK_MONOTONIC) - began; \
		sum += cpu() - start; \
		errno = error; \
		return returned; \
	}

COUNTED(int, epoll_wait, (int a, void *b, int c, int d), (a, b, c, d))
COUNTED(int, sem_wait, (void *a), (a))
COUNTED(int, fsync, (int a), (a))
COUNTED(int, fdatasync, (int a), (a))
COUNTED(ssize_t, pread, (int a, void *b, size_t c, off_t d), (a, b, c, d))
COUNTED(ssize_t, pread64, (int a, void *b, size_t c, off_t d), (a, b, c, d))
COUNTED(ssize_t, pwrite, (int a, const void *b, size_t c, off_t d), (a, b, c, d))
COUNTED(ssize_t, pwrite64, (int a, const void *b, size_t c, off_t d), (a, b, c, d))
COUNTED(ssize_t, preadv, (int a, const void *b, int c, off_t d), (a, b, c, d))
COUNTED(ssize_t, preadv64, (int a, const void *b, int c, off_t d), (a, b, c, d))
COUNTED(ssize_t, pwritev, (int a, const void *b, int c, off_t d), (a, b, c, d))
COUNTED(ssize_t, pwritev64, (int a, const void *b, int c, off_t d), (a, b, c, d))
COUNTED(int, posix_fallocate, (int a, off_t b, off_t c), (a, b, c))
COUNTED(int, posix_fallocate64, (int a, off_t b, off_t c), (a, b, c))
COUNTED(int, posix_fadvise, (int a, off_t b, off_t c, int d), (a, b, c, d))
COUNTED(int, posix_fadvise64, (int a, off_t b, off_t c, int d), (a, b, c, d))

PG_FUNCTION_INFO_V1(cpu_of_waits);
Datum
cpu_of_waits(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(sum);
}

PG_FUNCTION_INFO_V1(time_of_waits);
Datum
time_of_waits(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(time_sum);
}

PG_FUNCTION_INFO_V1(cpu_of_process);
Datum
cpu_of_process(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(cpu());
}
