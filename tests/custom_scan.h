/*
 * custom_scan.h: how the extensions of tests begin that provide a custom scan.
 */
#include "postgres.h"

#include "commands/explain.h"
#if PG_VERSION_NUM >= 180000
#include "commands/explain_format.h"
#include "commands/explain_state.h"
#endif
#include "executor/executor.h"
#include "fmgr.h"
#include "nodes/extensible.h"
#include "nodes/makefuncs.h"
#include "optimizer/planner.h"
#include "utils/guc.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

/* From 19 on, the planner has one argument more. */
#if PG_VERSION_NUM >= 190000
#define MORE_PARAMETERS , ExplainState *explain
#define MORE_ARGUMENTS , explain
#else
#define MORE_PARAMETERS
#define MORE_ARGUMENTS
#endif

/* Makes scan_methods of the file's functions scan_begin and so on, and of the type of a scan's state. */
#define PROVIDE_SCAN(name, State) \
static const CustomExecMethods exec_methods = { \
	.CustomName = name, \
	.BeginCustomScan = scan_begin, \
	.ExecCustomScan = scan_exec, \
	.EndCustomScan = scan_end, \
	.ReScanCustomScan = scan_rescan, \
	.ExplainCustomScan = scan_explain, \
}; \
\
static Node * \
create_state(CustomScan *scan) \
{ \
	CustomScanState *state = (CustomScanState *) newNode(sizeof(State), T_CustomScanState); \
\
	state->methods = &exec_methods; \
	return (Node *) state; \
} \
\
static const CustomScanMethods scan_methods = { \
	.CustomName = name, \
	.CreateCustomScanState = create_state, \
}
