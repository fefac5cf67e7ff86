/*
 * burn(us) keeps the processor busy for this many microseconds, reads no block, and returns true.
 * burned() returns the milliseconds that burn() really took in this process since the last burned().
 * burn_above() and burned_above() do the same, for another node of the statement.
 * Tests compare the sampled times with burned().
 */
#include "postgres.h"

#include <time.h>

#include "fmgr.h"

PG_MODULE_MAGIC;

static double total_ns = 0;
static double above_ns = 0;

static double
now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1e9 + ts.tv_nsec;
}

static void
burn_ns(double wanted, double *total)
{
	if (wanted > 0)
	{
		double		start = now_ns();
		double		now;

		do
			now = now_ns();
		while (now - start < wanted);
		*total += now - start;
	}
}

static double
taken_ms(double *total)
{
	double		result = *total / 1e6;

	*total = 0;
	return result;
}

PG_FUNCTION_INFO_V1(burn);
Datum
burn(PG_FUNCTION_ARGS)
{
	burn_ns(PG_GETARG_FLOAT8(0) * 1000.0, &total_ns);
	PG_RETURN_BOOL(true);
}

PG_FUNCTION_INFO_V1(burn_above);
Datum
burn_above(PG_FUNCTION_ARGS)
{
	burn_ns(PG_GETARG_FLOAT8(0) * 1000.0, &above_ns);
	PG_RETURN_BOOL(true);
}

PG_FUNCTION_INFO_V1(burned);
Datum
burned(PG_FUNCTION_ARGS)
{
	PG_RETURN_FLOAT8(taken_ms(&total_ns));
}

PG_FUNCTION_INFO_V1(burned_above);
Datum
burned_above(PG_FUNCTION_ARGS)
{
	PG_RETURN_FLOAT8(taken_ms(&above_ns));
}
