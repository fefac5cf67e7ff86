/*
 * A clock that runs only while the process has a processor, and that shows ten microseconds more after each
 * reading: so a reading takes exactly as long, also on a busy machine. LD_PRELOAD loads this library before libc.
 * The TSC would show another time, so it is forbidden.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define READING_NS 10000

/* The clocks when the postmaster began. Its children have the same. */
static int64_t began[2];
static int64_t readings;

static int64_t
ns_of(clockid_t id)
{
	struct timespec now;

	syscall(SYS_clock_gettime, id, &now);
	return (int64_t) now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t
shown_ns_of(clockid_t id)
{
	return began[id] + ns_of(CLOCK_PROCESS_CPUTIME_ID) + readings * READING_NS;
}

__attribute__((constructor)) static void
begin(void)
{
	began[CLOCK_REALTIME] = ns_of(CLOCK_REALTIME);
	began[CLOCK_MONOTONIC] = ns_of(CLOCK_MONOTONIC);
	/* Programs that start others need it: the dynamic linker reads it. */
	if (strcmp(program_invocation_short_name, "postgres") == 0)
		prctl(PR_SET_TSC, PR_TSC_SIGSEGV);
}

int
clock_gettime(clockid_t id, struct timespec *now)
{
	int64_t		ns;

	if (id != CLOCK_REALTIME && id != CLOCK_MONOTONIC)
		return (int) syscall(SYS_clock_gettime, id, now);
	if (id == CLOCK_MONOTONIC)
		readings++;
	ns = shown_ns_of(id);
	now->tv_sec = ns / 1000000000;
	now->tv_nsec = ns % 1000000000;
	return 0;
}

int
gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	int64_t		ns = shown_ns_of(CLOCK_REALTIME);

	(void) zone;
	now->tv_sec = ns / 1000000000;
	now->tv_usec = ns % 1000000000 / 1000;
	return 0;
}
