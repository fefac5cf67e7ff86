/*
 * explain_probe: a scan provider and a foreign data wrapper whose Explain callbacks do what the setting explain_probe.action
 * says. It replaces the plan of every plain SELECT from the table named "probed" by a custom scan that counts from 1 to 3. A
 * scan of a foreign table does the same. So do hooks, if explain_probe.hooks is on.
 *
 * explain_probe_calls() returns how often a callback or a hook was called in this session, and
 * explain_probe_searches() how often it was asked whether a schema may be searched since it said that.
 */
#include "../custom_scan.h"

#include <unistd.h>

#include "access/table.h"
#include "access/xact.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "executor/spi.h"
#include "foreign/fdwapi.h"
#include "miscadmin.h"
#include "nodes/pathnodes.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/planmain.h"
#include "optimizer/restrictinfo.h"
#include "parser/parsetree.h"
#include "storage/lwlock.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

static set_rel_pathlist_hook_type next_pathlist_hook = NULL;
static char *action = NULL;
static bool hooks = false;
static int	rows_made = 3;
static int	explained = 0;

typedef struct ProbeState
{
	CustomScanState css;
	int			next;
	int			end;
} ProbeState;

PG_FUNCTION_INFO_V1(explain_probe_calls);
Datum
explain_probe_calls(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(explained);
}

static int	searches = 0;

PG_FUNCTION_INFO_V1(explain_probe_searches);
Datum
explain_probe_searches(PG_FUNCTION_ARGS)
{
	int			counted = searches;

	searches = 0;
	PG_RETURN_INT32(counted);
}

static void
scan_begin(CustomScanState *node, EState *estate, int eflags)
{
	ProbeState *state = (ProbeState *) node;

	state->next = 1;
	state->end = rows_made;
}

static TupleTableSlot *
probe_next(ScanState *node)
{
	ProbeState *state = (ProbeState *) node;
	TupleTableSlot *slot = node->ss_ScanTupleSlot;

	ExecClearTuple(slot);
	if (state->next <= state->end)
	{
		memset(slot->tts_isnull, true, slot->tts_tupleDescriptor->natts * sizeof(bool));
		slot->tts_values[0] = Int32GetDatum(state->next++);
		slot->tts_isnull[0] = false;
		ExecStoreVirtualTuple(slot);
	}
	return slot;
}

static bool
probe_recheck(ScanState *node, TupleTableSlot *slot)
{
	return true;
}

static TupleTableSlot *
scan_exec(CustomScanState *node)
{
	return ExecScan(&node->ss, probe_next, probe_recheck);
}

static void
scan_end(CustomScanState *node)
{
}

static void
scan_rescan(CustomScanState *node)
{
	((ProbeState *) node)->next = 1;
}

/* Sleeps in small steps; "deaf" ignores cancel requests, as a library that waits in C does. */
static void
sleep_ms(int ms, bool deaf)
{
	while (ms > 0)
	{
		if (!deaf)
			CHECK_FOR_INTERRUPTS();
		pg_usleep(Min(ms, 20) * 1000L);
		ms -= 20;
	}
}

/* Does what the setting says. The positions are those of a scan: the next number, and the last. */
static void
act(int *next, int *end)
{
	explained++;
	if (strcmp(action, "sleep") == 0)
		sleep_ms(3000, false);
	else if (strcmp(action, "deaf") == 0)
		sleep_ms(3000, true);
	else if (strcmp(action, "error") == 0)
		ereport(ERROR, (errmsg("explain_probe: cannot explain")));
	else if (strcmp(action, "first") == 0 && explained == 1)
		ereport(ERROR, (errmsg("explain_probe: cannot explain for the first time")));
	else if (strcmp(action, "remote_cancel") == 0)
		/* A remote server's own SQLSTATE, passed on as postgres_fdw does: its statement_timeout, or its shutdown. */
		ereport(ERROR, (errcode(ERRCODE_QUERY_CANCELED), errmsg("explain_probe: the remote server cancelled")));
	else if (strcmp(action, "remote_shutdown") == 0)
		ereport(ERROR, (errcode(ERRCODE_ADMIN_SHUTDOWN), errmsg("explain_probe: the remote server shuts down")));
	else if (strcmp(action, "warning") == 0)
		ereport(WARNING, (errmsg("explain_probe: the remote side is old")));
	else if (strcmp(action, "fatal") == 0)
		ereport(FATAL, (errmsg("explain_probe: gave up")));
	else if (strcmp(action, "changes_rows") == 0)
		(*end)++;
	else if (strcmp(action, "consume") == 0)
		*next = *end + 1;
	else if (strncmp(action, "wrote ", 6) == 0)
	{
		SPI_connect();
		SPI_execute(action + 6, false, 0);
		SPI_finish();
		ereport(ERROR, (errmsg("explain_probe: failed after it wrote")));
	}
	else if (strncmp(action, "spi ", 4) == 0)
	{
		int			code;

		SPI_connect();
		code = SPI_execute(action + 4, false, 0);
		SPI_finish();
		if (code < 0)
			elog(ERROR, "explain_probe: SPI says %s", SPI_result_code_string(code));
	}
	else if (strncmp(action, "subxact ", 8) == 0)
	{
		/* As a provider that asks a remote server inside a savepoint, and undoes it */
		MemoryContext context = CurrentMemoryContext;
		ResourceOwner owner = CurrentResourceOwner;

		BeginInternalSubTransaction(NULL);
		SPI_connect();
		SPI_execute(action + 8, false, 0);
		SPI_finish();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
	}
	else if (strcmp(action, "portal") == 0)
	{
		SPI_connect();
		SPI_cursor_open("explain_probe", SPI_prepare("select 1", 0, NULL), NULL, NULL, true);
		ereport(ERROR, (errmsg("explain_probe: a cursor is open")));
	}
	else if (strcmp(action, "cursor") == 0)
	{
		/* As above, but without a connection of SPI */
		SPI_connect();
		SPI_cursor_open("explain_probe", SPI_prepare("select 1", 0, NULL), NULL, NULL, true);
		SPI_finish();
		ereport(ERROR, (errmsg("explain_probe: only a cursor is open")));
	}
	else if (strcmp(action, "lock") == 0)
	{
		(void) table_openrv(makeRangeVar(NULL, "effects", -1), ExclusiveLock);
		ereport(ERROR, (errmsg("explain_probe: a table is open and locked")));
	}
	else if (strcmp(action, "state") == 0)
	{
		/* Leaves what can be taken away without the abort of a transaction. */
		(void) NewGUCNestLevel();
		(void) set_config_option("work_mem", "12MB", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
		PushActiveSnapshot(GetActiveSnapshot());
		PushActiveSnapshot(GetTransactionSnapshot());
		SetUserIdAndSecContext(BOOTSTRAP_SUPERUSERID, SECURITY_LOCAL_USERID_CHANGE);
		LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
		ereport(ERROR, (errmsg("explain_probe: everything is left")));
	}
}

static void
scan_explain(CustomScanState *node, List *ancestors, ExplainState *es)
{
	ProbeState *state = (ProbeState *) node;

	ExplainPropertyText("Probe", action, es);
	act(&state->next, &state->end);
}

PROVIDE_SCAN("ExplainProbe", ProbeState);

static Plan *
probe_plan(PlannerInfo *root, RelOptInfo *rel, CustomPath *path, List *tlist, List *clauses,
		   List *custom_plans)
{
	CustomScan *scan = makeNode(CustomScan);

	scan->scan.plan.targetlist = tlist;
	scan->scan.plan.qual = extract_actual_clauses(clauses, false);
	scan->scan.scanrelid = rel->relid;
	scan->flags = path->flags;
	scan->methods = &scan_methods;
	return &scan->scan.plan;
}

static const CustomPathMethods path_methods = {
	.CustomName = "ExplainProbe",
	.PlanCustomPath = probe_plan,
};

static void
probe_pathlist(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte)
{
	char	   *name;

	if (next_pathlist_hook)
		next_pathlist_hook(root, rel, rti, rte);
	if (rte->rtekind != RTE_RELATION || rte->relkind != RELKIND_RELATION ||
		root->parse->commandType != CMD_SELECT)
		return;
	name = get_rel_name(rte->relid);
	if (name && strcmp(name, "probed") == 0)
	{
		CustomPath *path = makeNode(CustomPath);

		path->path.pathtype = T_CustomScan;
		path->path.parent = rel;
		path->path.pathtarget = rel->reltarget;
		path->path.rows = rows_made;
		path->path.total_cost = 1;
		path->flags = 0;
		path->methods = &path_methods;
		rel->pathlist = list_make1(path);
		rel->partial_pathlist = NIL;
	}
}

/* The foreign data wrapper. Its scan has the same two positions, and each INSERT is accepted and forgotten. */

static void
foreign_size(PlannerInfo *root, RelOptInfo *rel, Oid table)
{
	rel->rows = rows_made;
}

static void
foreign_paths(PlannerInfo *root, RelOptInfo *rel, Oid table)
{
	add_path(rel, (Path *) create_foreignscan_path(root, rel, NULL, rel->rows,
#if PG_VERSION_NUM >= 180000
												   0,
#endif
												   1, 2, NIL, NULL, NULL,
#if PG_VERSION_NUM >= 170000
												   NIL,
#endif
												   NIL));
}

static ForeignScan *
foreign_plan(PlannerInfo *root, RelOptInfo *rel, Oid table, ForeignPath *path, List *tlist, List *clauses,
			 Plan *outer)
{
	return make_foreignscan(tlist, extract_actual_clauses(clauses, false), rel->relid, NIL, NIL, NIL, NIL, outer);
}

static void
foreign_begin(ForeignScanState *node, int eflags)
{
	int		   *positions = palloc(2 * sizeof(int));

	positions[0] = 1;
	positions[1] = rows_made;
	node->fdw_state = positions;
}

static TupleTableSlot *
foreign_next(ForeignScanState *node)
{
	int		   *positions = node->fdw_state;
	TupleTableSlot *slot = node->ss.ss_ScanTupleSlot;

	ExecClearTuple(slot);
	if (positions[0] <= positions[1])
	{
		slot->tts_values[0] = Int32GetDatum(positions[0]++);
		slot->tts_isnull[0] = false;
		ExecStoreVirtualTuple(slot);
	}
	return slot;
}

static void
foreign_rescan(ForeignScanState *node)
{
	((int *) node->fdw_state)[0] = 1;
}

static void
foreign_end(ForeignScanState *node)
{
}

static void
foreign_explain(ForeignScanState *node, ExplainState *es)
{
	int		   *positions = node->fdw_state;

	act(&positions[0], &positions[1]);
}

static TupleTableSlot *
foreign_insert(EState *estate, ResultRelInfo *table, TupleTableSlot *slot, TupleTableSlot *plan)
{
	return slot;
}

static void
foreign_explain_modify(ModifyTableState *node, ResultRelInfo *table, List *private, int index, ExplainState *es)
{
	int			next = 0;
	int			end = 0;

	act(&next, &end);
}

/* UPDATE and DELETE are the foreign server's: it says that all rows were changed. */

static TupleTableSlot *
foreign_change(EState *estate, ResultRelInfo *table, TupleTableSlot *slot, TupleTableSlot *plan)
{
	elog(ERROR, "explain_probe: the foreign server changes all rows itself");
}

static bool
foreign_plan_direct(PlannerInfo *root, ModifyTable *modify, Index table, int index)
{
	ForeignScan *scan = (ForeignScan *) outerPlan(modify);

	if (modify->operation == CMD_INSERT || !IsA(scan, ForeignScan))
		return false;
	scan->operation = modify->operation;
	scan->resultRelation = table;
	return true;
}

static TupleTableSlot *
foreign_next_direct(ForeignScanState *node)
{
	int		   *positions = node->fdw_state;

	for (; positions[0] <= positions[1]; positions[0]++)
		node->ss.ps.state->es_processed++;
	return ExecClearTuple(node->ss.ss_ScanTupleSlot);
}

PG_FUNCTION_INFO_V1(explain_probe_fdw);
Datum
explain_probe_fdw(PG_FUNCTION_ARGS)
{
	FdwRoutine *routine = makeNode(FdwRoutine);

	routine->GetForeignRelSize = foreign_size;
	routine->GetForeignPaths = foreign_paths;
	routine->GetForeignPlan = foreign_plan;
	routine->BeginForeignScan = foreign_begin;
	routine->IterateForeignScan = foreign_next;
	routine->ReScanForeignScan = foreign_rescan;
	routine->EndForeignScan = foreign_end;
	routine->ExplainForeignScan = foreign_explain;
	routine->ExecForeignInsert = foreign_insert;
	routine->ExplainForeignModify = foreign_explain_modify;
	routine->ExecForeignUpdate = foreign_change;
	routine->ExecForeignDelete = foreign_change;
	routine->PlanDirectModify = foreign_plan_direct;
	routine->BeginDirectModify = foreign_begin;
	routine->IterateDirectModify = foreign_next_direct;
	routine->EndDirectModify = foreign_end;
	routine->ExplainDirectModify = foreign_explain;
	PG_RETURN_POINTER(routine);
}

/* A type whose values and modifiers are printed by functions that count their calls. */

PG_FUNCTION_INFO_V1(probe_in);
Datum
probe_in(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(atoi(PG_GETARG_CSTRING(0)));
}

PG_FUNCTION_INFO_V1(probe_out);
Datum
probe_out(PG_FUNCTION_ARGS)
{
	explained++;
	PG_RETURN_CSTRING(psprintf("probe %d", PG_GETARG_INT32(0)));
}

PG_FUNCTION_INFO_V1(probe_modifier_in);
Datum
probe_modifier_in(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(3);
}

PG_FUNCTION_INFO_V1(probe_modifier_out);
Datum
probe_modifier_out(PG_FUNCTION_ARGS)
{
	explained++;
	PG_RETURN_CSTRING(psprintf("(%d)", PG_GETARG_INT32(0)));
}

/* Returns its first argument. The others are a modifier, or values to compare it with. */
PG_FUNCTION_INFO_V1(probe_same);
Datum
probe_same(PG_FUNCTION_ARGS)
{
	PG_RETURN_DATUM(PG_GETARG_DATUM(0));
}

/* The hooks of EXPLAIN, and others: they count only while the executor starts a query, when it is described. */

static explain_get_index_name_hook_type next_index_name = NULL;

static const char *
index_name(Oid index)
{
	if (hooks)
		explained++;
	return next_index_name ? next_index_name(index) : NULL;
}

#if PG_VERSION_NUM >= 180000
static explain_per_node_hook_type next_per_node = NULL;

static void
per_node(PlanState *node, List *ancestors, const char *relationship, const char *name, ExplainState *es)
{
	if (hooks)
		explained++;
	if (next_per_node)
		next_per_node(node, ancestors, relationship, name, es);
}

static explain_per_plan_hook_type next_per_plan = NULL;

static void
per_plan(PlannedStmt *planned, IntoClause *into, ExplainState *es, const char *text, ParamListInfo params,
		 QueryEnvironment *environment)
{
	if (hooks)
		explained++;
	if (next_per_plan)
		next_per_plan(planned, into, es, text, params, environment);
}
#endif

static int	starting = 0;
static ExecutorStart_hook_type next_start = NULL;
static planner_hook_type next_planner = NULL;
static object_access_hook_type next_access = NULL;
static emit_log_hook_type next_log = NULL;

static void
start(QueryDesc *query, int eflags)
{
	starting++;
	PG_TRY();
	{
		if (next_start)
			next_start(query, eflags);
		else
			standard_ExecutorStart(query, eflags);
	}
	PG_FINALLY();
	{
		starting--;
	}
	PG_END_TRY();
}

static PlannedStmt *
plan(Query *query, const char *text, int options, ParamListInfo params MORE_PARAMETERS)
{
	if (hooks && starting > 0)
		explained++;
	return next_planner ? next_planner(query, text, options, params MORE_ARGUMENTS)
		: standard_planner(query, text, options, params MORE_ARGUMENTS);
}

static void
access_object(ObjectAccessType access, Oid class, Oid object, int part, void *argument)
{
	if (access == OAT_NAMESPACE_SEARCH)
		searches++;
	/* The executor itself says that it may execute a function. */
	if (hooks && starting > 0 && access != OAT_FUNCTION_EXECUTE)
		explained++;
	if (next_access)
		next_access(access, class, object, part, argument);
}

static void
log_message(ErrorData *error)
{
	if (hooks && starting > 0)
		explained++;
	if (next_log)
		next_log(error);
}

void
_PG_init(void)
{
	DefineCustomStringVariable("explain_probe.action", "What the Explain callback does.", NULL, &action,
							   "none", PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("explain_probe.rows", "The rows of each scan.", NULL, &rows_made, 3, 0, INT_MAX,
							PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("explain_probe.hooks", "Whether the hooks count their calls.", NULL, &hooks, false,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	RegisterCustomScanMethods(&scan_methods);
	next_index_name = explain_get_index_name_hook;
	explain_get_index_name_hook = index_name;
#if PG_VERSION_NUM >= 180000
	next_per_node = explain_per_node_hook;
	explain_per_node_hook = per_node;
	next_per_plan = explain_per_plan_hook;
	explain_per_plan_hook = per_plan;
#endif
	next_start = ExecutorStart_hook;
	ExecutorStart_hook = start;
	next_planner = planner_hook;
	planner_hook = plan;
	next_access = object_access_hook;
	object_access_hook = access_object;
	next_log = emit_log_hook;
	emit_log_hook = log_message;
	next_pathlist_hook = set_rel_pathlist_hook;
	set_rel_pathlist_hook = probe_pathlist;
}
