/*
 * A library whose hook takes long: it sleeps for two milliseconds before the executor ends a statement.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "fmgr.h"

#include <errno.h>
#include <time.h>

PG_MODULE_MAGIC;

void		_PG_init(void);

static ExecutorEnd_hook_type next;

static void
end(QueryDesc *query)
{
	struct timespec rest = {0, 2000000};

	while (nanosleep(&rest, &rest) != 0 && errno == EINTR)
		;
	if (next)
		next(query);
	else
		standard_ExecutorEnd(query);
}

void
_PG_init(void)
{
	next = ExecutorEnd_hook;
	ExecutorEnd_hook = end;
}
