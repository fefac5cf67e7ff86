/*
 * burn(us) keeps the processor busy for this many microseconds, reads no block, and returns true.
 * burned() returns the milliseconds that burn() really took in this process since the last burned().
 * Tests compare the sampled times with burned().
 */
#include "postgres.h"

#include <time.h>

#include "fmgr.h"

PG_MODULE_MAGIC;

static double total_ns = 0;

static double
now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1e9 + ts.tv_nsec;
}

PG_FUNCTION_INFO_V1(burn);
Datum
burn(PG_FUNCTION_ARGS)
{
	double		wanted = PG_GETARG_FLOAT8(0) * 1000.0;

	if (wanted > 0)
	{
		double		start = now_ns();
		double		now;

		do
			now = now_ns();
		while (now - start < wanted);
		total_ns += now - start;
	}
	PG_RETURN_BOOL(true);
}

PG_FUNCTION_INFO_V1(burned);
Datum
burned(PG_FUNCTION_ARGS)
{
	double		result = total_ns / 1e6;

	total_ns = 0;
	PG_RETURN_FLOAT8(result);
}
