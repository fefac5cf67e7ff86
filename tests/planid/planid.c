/*
 * Gives every plan the planid 42. An extension may set it from PostgreSQL 18 on.
 */
#include "postgres.h"

#include "fmgr.h"
#include "optimizer/planner.h"

PG_MODULE_MAGIC;

static planner_hook_type previous = NULL;

#if PG_VERSION_NUM >= 190000
#define PARAMETERS Query *query, const char *text, int options, ParamListInfo params, ExplainState *es
#define ARGUMENTS query, text, options, params, es
#else
#define PARAMETERS Query *query, const char *text, int options, ParamListInfo params
#define ARGUMENTS query, text, options, params
#endif

static PlannedStmt *
numbered(PARAMETERS)
{
	PlannedStmt *plan = previous ? previous(ARGUMENTS) : standard_planner(ARGUMENTS);

#if PG_VERSION_NUM >= 180000
	plan->planId = 42;
#endif
	return plan;
}

void		_PG_init(void);

void
_PG_init(void)
{
	previous = planner_hook;
	planner_hook = numbered;
}
