/*
 * A clock that steps back. LD_PRELOAD loads this library before libc. On average one reading of CLOCK_MONOTONIC in 64
 * is up to 20 us too early. One in a hundred of these is up to 2 ms too early. All other readings are right.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static uint64_t state = 88172645463325252ULL;

static uint64_t
next(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

int
clock_gettime(clockid_t id, struct timespec *now)
{
	int			result = (int) syscall(SYS_clock_gettime, id, now);

	if (result == 0 && id == CLOCK_MONOTONIC && next() % 64 == 0)
	{
		int64_t		back = (int64_t) (next() % (next() % 100 == 0 ? 2000000 : 20000));
		int64_t		ns = (int64_t) now->tv_sec * 1000000000 + now->tv_nsec - back;

		now->tv_sec = ns / 1000000000;
		now->tv_nsec = ns % 1000000000;
	}
	return result;
}
