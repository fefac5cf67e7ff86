/*
 * A clock whose readings take a microsecond, and ten as long as there is a file named "tired" in the data
 * directory. LD_PRELOAD loads this library before libc.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int64_t
read_clock(clockid_t id, struct timespec *now)
{
	syscall(SYS_clock_gettime, id, now);
	return (int64_t) now->tv_sec * 1000000000 + now->tv_nsec;
}

int
clock_gettime(clockid_t id, struct timespec *now)
{
	int64_t		began = read_clock(id, now);

	if (id == CLOCK_MONOTONIC)
	{
		int64_t		takes = access("tired", F_OK) == 0 ? 10000 : 1000;

		while (read_clock(id, now) - began < takes)
			;
	}
	return 0;
}
