/*
 * A disk whose reads take as long as a file in the current folder says: "slow_reads" has the microseconds. A
 * server's folder is that of its data. The reads of blocks wait, and no others.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 8192

static void
rest(void)
{
	char		text[16] = "";
	int			saved = errno;
	int			file = open("slow_reads", O_RDONLY);
	long		us;
	struct timespec left;

	if (file >= 0)
	{
		if (read(file, text, sizeof(text) - 1) < 0)
			text[0] = 0;
		close(file);
	}
	us = atol(text);
	left.tv_sec = us / 1000000;
	left.tv_nsec = us % 1000000 * 1000;
	while (us > 0 && nanosleep(&left, &left) != 0 && errno == EINTR)
		;
	errno = saved;
}

ssize_t
pread64(int file, void *bytes, size_t size, off64_t at)
{
	static ssize_t (*original) (int, void *, size_t, off64_t);

	if (original == NULL)
		*(void **) &original = dlsym(RTLD_NEXT, "pread64");
	if (size % BLOCK == 0)
		rest();
	return original(file, bytes, size, at);
}

ssize_t
pread(int file, void *bytes, size_t size, off_t at)
{
	return pread64(file, bytes, size, at);
}

ssize_t
preadv64(int file, const struct iovec *parts, int count, off64_t at)
{
	static ssize_t (*original) (int, const struct iovec *, int, off64_t);

	if (original == NULL)
		*(void **) &original = dlsym(RTLD_NEXT, "preadv64");
	rest();
	return original(file, parts, count, at);
}

ssize_t
preadv(int file, const struct iovec *parts, int count, off_t at)
{
	return preadv64(file, parts, count, at);
}
