/*
 * doze(ms) sleeps without telling PostgreSQL, like a function that waits for an external service. Signals do not end
 * the sleep early. It returns true.
 */
#include "postgres.h"

#include <errno.h>
#include <time.h>

#include "fmgr.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(doze);
Datum
doze(PG_FUNCTION_ARGS)
{
	int			ms = PG_GETARG_INT32(0);
	struct timespec left = {ms / 1000, ms % 1000 * 1000000L};

	while (nanosleep(&left, &left) != 0 && errno == EINTR)
		;
	PG_RETURN_BOOL(true);
}
