/*
 * A clock that advances by 100 ns with each reading, however long a program runs. LD_PRELOAD loads this library before libc.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define STEP 100

int
clock_gettime(clockid_t id, struct timespec *now)
{
	static int64_t ns;

	if (id != CLOCK_MONOTONIC)
		return (int) syscall(SYS_clock_gettime, id, now);
	ns += STEP;
	now->tv_sec = ns / 1000000000;
	now->tv_nsec = ns % 1000000000;
	return 0;
}
