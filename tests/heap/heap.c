/*
 * heap_bytes(): how much memory of malloc() the session has in use. What it has freed does not count, whether the system has it back or not.
 */
#include "postgres.h"

#include <malloc.h>

#include "fmgr.h"

PG_MODULE_MAGIC;
PG_FUNCTION_INFO_V1(heap_bytes);

Datum
heap_bytes(PG_FUNCTION_ARGS)
{
	struct mallinfo2 info = mallinfo2();

	PG_RETURN_INT64(info.uordblks + info.hblkhd);
}
