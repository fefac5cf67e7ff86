/*
 * Traces system calls without the cost of a tracer. LD_PRELOAD loads this library before libc. It makes the calls itself,
 * and counts and times those on temporary files. The SQL functions:
 * - tracer_totals() returns the counts and times;
 * - tracer_delay() simulates a slow disk: every n-th request of a session takes longer;
 * - tracer_faults() simulates a bad disk: some requests are interrupted, and some writes are short.
 */
#define _GNU_SOURCE
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"

#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

PG_MODULE_MAGIC;

enum
{
	UNKNOWN, OTHER, WORK_FILE, TEMP_TABLE
};

#define DESCRIPTORS 65536
static unsigned char kinds[DESCRIPTORS];
/* Calls, bytes, nanoseconds, and calls that took longer than a delay, by kind and operation (read, write). */
static int64 totals[TEMP_TABLE + 1][2][4];
static int	delay_us = 0;
static int	delay_every = 1;
static int	until_delay = 1;
static int	fault_every = 0;
static int	requests = 0;

static int64
monotonic(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64CONST(1000000000) + t.tv_nsec;
}

static int
kind_of(int fd)
{
	char		link[64];
	char		path[4096];
	char	   *name;
	ssize_t		length;

	if (fd < 0 || fd >= DESCRIPTORS)
		return OTHER;
	if (kinds[fd] != UNKNOWN)
		return kinds[fd];
	sprintf(link, "/proc/self/fd/%d", fd);
	length = readlink(link, path, sizeof(path) - 1);
	path[length > 0 ? length : 0] = '\0';
	name = strrchr(path, '/');
	if (strstr(path, "/pgsql_tmp/pgsql_tmp"))
		kinds[fd] = WORK_FILE;
	else if (name && strstr(path, "/base/") && name[1] == 't')
		kinds[fd] = TEMP_TABLE;
	else
		kinds[fd] = OTHER;
	return kinds[fd];
}

/* PostgreSQL does not retry an interrupted extension of a temporary table from 16 on, nor a read of one from 18 on. */
static bool
may_be_interrupted(int operation, int kind, int fd, off_t offset)
{
#if PG_VERSION_NUM >= 160000
	struct stat file;

	if (PG_VERSION_NUM >= 180000 && operation == 0 && kind == TEMP_TABLE)
		return false;
	if (operation == 1 && kind == TEMP_TABLE)
		return fstat(fd, &file) == 0 && offset < file.st_size;
#endif
	return true;
}

static ssize_t
traced(int operation, long number, int fd, void *data, size_t size, off_t offset)
{
	int			kind = kind_of(fd);
	int64		start;
	int64		took;
	ssize_t		result;

	if (kind == OTHER)
		return syscall(number, fd, data, size, offset, 0);
	start = monotonic();
	requests++;
	if (fault_every > 0 && requests % fault_every == 0 && may_be_interrupted(operation, kind, fd, offset))
	{
		errno = EINTR;
		result = -1;
	}
	else if (fault_every > 0 && requests % fault_every == 1 && number == SYS_pwrite64 && kind == WORK_FILE)
		result = syscall(number, fd, data, size / 2, offset, 0);
	else
		result = syscall(number, fd, data, size, offset, 0);
	if (delay_us > 0 && --until_delay <= 0)
	{
		struct timespec pause = {delay_us / 1000000, delay_us % 1000000 * 1000L};

		until_delay = delay_every;
		nanosleep(&pause, NULL);
	}
	totals[kind][operation][0]++;
	totals[kind][operation][1] += result > 0 ? result : 0;
	took = monotonic() - start;
	totals[kind][operation][2] += took;
	totals[kind][operation][3] += delay_us > 0 && took >= delay_us * INT64CONST(1000);
	return result;
}

ssize_t
pread(int fd, void *buffer, size_t bytes, off_t offset)
{
	return traced(0, SYS_pread64, fd, buffer, bytes, offset);
}

ssize_t
pwrite(int fd, const void *buffer, size_t bytes, off_t offset)
{
	return traced(1, SYS_pwrite64, fd, (void *) buffer, bytes, offset);
}

ssize_t
preadv(int fd, const struct iovec *parts, int count, off_t offset)
{
	return traced(0, SYS_preadv, fd, (void *) parts, count, offset);
}

ssize_t
pwritev(int fd, const struct iovec *parts, int count, off_t offset)
{
	return traced(1, SYS_pwritev, fd, (void *) parts, count, offset);
}

int
close(int fd)
{
	if (fd >= 0 && fd < DESCRIPTORS)
		kinds[fd] = UNKNOWN;
	return syscall(SYS_close, fd);
}

/* tracer_totals(temporary table?, write?) returns the totals of this process so far. */
PG_FUNCTION_INFO_V1(tracer_totals);
Datum
tracer_totals(PG_FUNCTION_ARGS)
{
	int			kind = PG_GETARG_BOOL(0) ? TEMP_TABLE : WORK_FILE;
	int64	   *found = totals[kind][PG_GETARG_BOOL(1) ? 1 : 0];

	PG_RETURN_TEXT_P(cstring_to_text(psprintf(INT64_FORMAT " " INT64_FORMAT " " INT64_FORMAT " " INT64_FORMAT,
											  found[0], found[1], found[2], found[3])));
}

/* tracer_faults(n): of n requests, one is interrupted and one write is short. 0: no faults. */
PG_FUNCTION_INFO_V1(tracer_faults);
Datum
tracer_faults(PG_FUNCTION_ARGS)
{
	fault_every = PG_GETARG_INT32(0);
	PG_RETURN_VOID();
}

/* tracer_delay(us, n): every n-th request takes this many microseconds longer. */
PG_FUNCTION_INFO_V1(tracer_delay);
Datum
tracer_delay(PG_FUNCTION_ARGS)
{
	delay_us = PG_GETARG_INT32(0);
	until_delay = delay_every = PG_GETARG_INT32(1);
	PG_RETURN_VOID();
}
