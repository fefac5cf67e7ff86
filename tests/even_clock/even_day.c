/*
 * A time of day that advances by 100 ns with each reading, however long a program runs. LD_PRELOAD loads this library before libc.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define STEP 100

static int64_t ns;

__attribute__((constructor)) static void
begin(void)
{
	struct timespec now;

	syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
	ns = (int64_t) now.tv_sec * 1000000000 + now.tv_nsec;
}

int
clock_gettime(clockid_t id, struct timespec *now)
{
	if (id != CLOCK_REALTIME)
		return (int) syscall(SYS_clock_gettime, id, now);
	ns += STEP;
	now->tv_sec = ns / 1000000000;
	now->tv_nsec = ns % 1000000000;
	return 0;
}

int
gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	struct timespec time;

	(void) zone;
	clock_gettime(CLOCK_REALTIME, &time);
	now->tv_sec = time.tv_sec;
	now->tv_usec = time.tv_nsec / 1000;
	return 0;
}
