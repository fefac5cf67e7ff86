/*
 * gets(rel, blocks) gets this many blocks of a relation, one after the other, and returns the microseconds of one get. It gets a
 * few blocks between two readings of the clock, and releases them outside, as rowsource_logical_io() does. The readings' own time
 * is subtracted. The smallest of several loops, so that other processes do not count.
 */
#include "postgres.h"

#include <time.h>

#include "access/relation.h"
#include "fmgr.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

PG_MODULE_MAGIC;

/* PostgreSQL keeps the pins of so few buffers in an array, as it does for one. */
#define BATCH 4

static double
now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1e6 + ts.tv_nsec / 1e3;
}

PG_FUNCTION_INFO_V1(gets);
Datum
gets(PG_FUNCTION_ARGS)
{
	Relation	rel = relation_open(PG_GETARG_OID(0), AccessShareLock);
	int			batches = PG_GETARG_INT32(1) / BATCH;
	double		best = -1;

	for (int loop = 0; loop < 50; loop++)
	{
		double		took = 0;

		for (int batch = 0; batch < batches; batch++)
		{
			Buffer		buffers[BATCH];
			double		empty = now_us();
			double		start = now_us();

			for (int i = 0; i < BATCH; i++)
				buffers[i] = ReadBuffer(rel, batch * BATCH + i);
			took += (now_us() - start) - (start - empty);
			for (int i = 0; i < BATCH; i++)
				ReleaseBuffer(buffers[i]);
		}
		if (best < 0 || took < best)
			best = took;
	}
	relation_close(rel, AccessShareLock);
	PG_RETURN_FLOAT8(best / (batches * BATCH));
}
