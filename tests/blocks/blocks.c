/*
 * blocks(how, ms) blocks in a call that SA_RESTART does not restart, like a library that waits for an external service. It returns
 * false if a signal has ended the call early.
 * count_signals() counts this process's signals of timers from now on, and counted_signals() returns how many there were.
 */
#include "postgres.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/select.h>
#include <time.h>

#include "fmgr.h"
#include "utils/builtins.h"

PG_MODULE_MAGIC;

static volatile sig_atomic_t counted = 0;

static void
count(int signal)
{
	counted++;
}

PG_FUNCTION_INFO_V1(blocks);
Datum
blocks(PG_FUNCTION_ARGS)
{
	char	   *how = text_to_cstring(PG_GETARG_TEXT_PP(0));
	int			ms = PG_GETARG_INT32(1);
	struct timeval wait = {ms / 1000, ms % 1000 * 1000};
	struct timespec pause = {ms / 1000, ms % 1000 * 1000000L};
	int			result;

	if (strcmp(how, "poll") == 0)
		result = poll(NULL, 0, ms);
	else if (strcmp(how, "select") == 0)
		result = select(0, NULL, NULL, NULL, &wait);
	else
		result = nanosleep(&pause, NULL);
	PG_RETURN_BOOL(result == 0);
}

PG_FUNCTION_INFO_V1(count_signals);
Datum
count_signals(PG_FUNCTION_ARGS)
{
	const int	signals[] = {SIGALRM, SIGVTALRM, SIGPROF, SIGUSR1, SIGUSR2};

	for (int i = 0; i < lengthof(signals); i++)
	{
		struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};

		sigaction(signals[i], &action, NULL);
	}
	counted = 0;
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(counted_signals);
Datum
counted_signals(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(counted);
}
