//! What a started query is made of.

use super::handle::{Handle, ListOf, name};
use pgrx::pg_sys::{self, EState, NodeTag, Plan, PlanState, PlannedStmt, QueryDesc, SubPlanState};
use std::ops::Deref;

/// A query, which may not be started yet, or have ended.
pub type QueryRef<'q> = Handle<'q, QueryDesc>;

/// A started query.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct StartedQuery<'q>(QueryRef<'q>);

/// The plan of a statement.
pub type PlannedStmtRef<'q> = Handle<'q, PlannedStmt>;
/// A node of a plan.
pub type PlanRef<'q> = Handle<'q, Plan>;
/// An open relation.
pub type RelationRef<'q> = Handle<'q, pg_sys::RelationData>;
/// The state of a node of a started query.
pub type PlanStateRef<'q> = Handle<'q, PlanState>;

impl<'q> Deref for StartedQuery<'q> {
    type Target = QueryRef<'q>;

    #[inline(always)]
    fn deref(&self) -> &QueryRef<'q> {
        &self.0
    }
}

impl<'q> StartedQuery<'q> {
    /// Returns the executor's state.
    #[inline(always)]
    pub fn estate(self) -> Handle<'q, EState> {
        // SAFETY: a started query has a state, which is as live as it.
        unsafe { Handle::new(self.estate) }
    }

    /// Returns the state of the plan's root.
    #[inline(always)]
    pub fn root(self) -> PlanStateRef<'q> {
        // SAFETY: a started query has it, and it is as live as the query.
        unsafe { Handle::new(self.planstate) }
    }
}

impl<'q> QueryRef<'q> {
    /// Returns the query as a started one, if it is that.
    #[inline(always)]
    pub fn started(self) -> Option<StartedQuery<'q>> {
        (!self.estate.is_null() && !self.planstate.is_null()).then_some(StartedQuery(self))
    }

    /// Returns the query's plan.
    #[inline(always)]
    pub fn plan(self) -> PlannedStmtRef<'q> {
        // SAFETY: a query has a plan, which is as live as it.
        unsafe { Handle::new(self.plannedstmt) }
    }

    /// Returns the number of parameters.
    pub fn parameters(self) -> usize {
        // SAFETY: the parameters of a query are null, or as live as it.
        unsafe { self.params.as_ref() }.map_or(0, |parameters| parameters.numParams.max(0) as usize)
    }

    /// Returns what receives the rows of the query, unless nothing does.
    pub fn receiver(self) -> Option<pg_sys::CommandDest::Type> {
        // SAFETY: the receiver of a query is null, or as live as it.
        unsafe { self.dest.as_ref() }.map(|receiver| receiver.mydest)
    }
}

impl<'q> PlanStateRef<'q> {
    /// Returns the node's plan.
    #[inline(always)]
    pub fn plan(self) -> PlanRef<'q> {
        // SAFETY: the state of a started query's node has its plan, which is as live as it.
        unsafe { Handle::new((*self.as_ptr()).plan) }
    }

    /// Returns the executor's state of the query.
    #[inline(always)]
    pub fn estate(self) -> Handle<'q, EState> {
        // SAFETY: the state of a started query's node has it, and it is as live.
        unsafe { Handle::new((*self.as_ptr()).state) }
    }

    /// Returns the plan of the query.
    #[inline(always)]
    pub fn statement(self) -> PlannedStmtRef<'q> {
        // SAFETY: the executor has the plan that it runs, and it is as live.
        unsafe { Handle::new(self.estate().es_plannedstmt) }
    }

    /// Returns the InitPlans that the node runs.
    #[inline(always)]
    pub fn init_plans(self) -> ListOf<'q, SubPlanState> {
        self.list(|state| &state.initPlan)
    }

    /// Returns the subplans in the node's expressions.
    #[inline(always)]
    pub fn subplans(self) -> ListOf<'q, SubPlanState> {
        self.list(|state| &state.subPlan)
    }

    /// Returns the index that the node scans.
    pub fn index(self) -> Option<RelationRef<'q>> {
        match self.tag() {
            NodeTag::T_IndexScanState => {
                let scan = self.cast::<pg_sys::IndexScanState>();
                scan.relation(|scan| &scan.iss_RelationDesc)
            }
            NodeTag::T_IndexOnlyScanState => {
                let scan = self.cast::<pg_sys::IndexOnlyScanState>();
                scan.relation(|scan| &scan.ioss_RelationDesc)
            }
            NodeTag::T_BitmapIndexScanState => {
                let scan = self.cast::<pg_sys::BitmapIndexScanState>();
                scan.relation(|scan| &scan.biss_RelationDesc)
            }
            _ => None,
        }
    }

    /// Returns the table that the node scans or changes.
    pub fn table(self) -> Option<RelationRef<'q>> {
        match self.tag() {
            NodeTag::T_IndexScanState
            | NodeTag::T_IndexOnlyScanState
            | NodeTag::T_SeqScanState
            | NodeTag::T_SampleScanState
            | NodeTag::T_BitmapHeapScanState
            | NodeTag::T_TidScanState
            | NodeTag::T_TidRangeScanState
            | NodeTag::T_ForeignScanState
            | NodeTag::T_CustomScanState => {
                let scan = self.cast::<pg_sys::ScanState>();
                scan.relation(|scan| &scan.ss_currentRelation)
            }
            NodeTag::T_ModifyTableState => {
                let modify = self.cast::<pg_sys::ModifyTableState>();
                let root = modify.follow(|modify| &modify.rootResultRelInfo)?;
                root.relation(|root| &root.ri_RelationDesc)
            }
            _ => None,
        }
    }

    /// Returns the inputs of a node that has them in an array.
    pub fn members(self) -> &'q [PlanStateRef<'q>] {
        let (members, count) = match self.tag() {
            NodeTag::T_AppendState => {
                let append = self.cast::<pg_sys::AppendState>();
                (append.appendplans, append.as_nplans)
            }
            NodeTag::T_MergeAppendState => {
                let append = self.cast::<pg_sys::MergeAppendState>();
                (append.mergeplans, append.ms_nplans)
            }
            NodeTag::T_BitmapAndState => {
                let and = self.cast::<pg_sys::BitmapAndState>();
                (and.bitmapplans, and.nplans)
            }
            NodeTag::T_BitmapOrState => {
                let or = self.cast::<pg_sys::BitmapOrState>();
                (or.bitmapplans, or.nplans)
            }
            NodeTag::T_SubqueryScanState => {
                let scan = self.cast::<pg_sys::SubqueryScanState>();
                (scan.part(|scan| &scan.subplan).as_ptr(), 1)
            }
            _ => return &[],
        };
        // SAFETY: each array has so many members. They are states of nodes of this query, and none is null.
        unsafe { array(members.cast(), count) }
    }
}

impl<'q> Handle<'q, SubPlanState> {
    /// Returns the expression that runs the subplan.
    #[inline(always)]
    pub fn expression(self) -> Handle<'q, pg_sys::SubPlan> {
        // SAFETY: the state of a subplan has its expression, which is as live.
        unsafe { Handle::new(self.subplan) }
    }

    /// Returns the root of the subplan, unless it has none.
    #[inline(always)]
    pub fn root(self) -> Option<PlanStateRef<'q>> {
        self.follow(|state| &state.planstate)
    }
}

impl<'q> Handle<'q, EState> {
    /// Returns an entry of the range table. They count from 1.
    #[inline(always)]
    pub fn entry(self, number: pg_sys::Index) -> Option<Handle<'q, pg_sys::RangeTblEntry>> {
        let at = (number as usize).wrapping_sub(1);
        let table = self.follow(|estate| &estate.es_range_table)?;
        // SAFETY: the range table is a List of its entries, none of which is null.
        (at < table.length as usize)
            .then(|| unsafe { Handle::new((*table.elements.add(at)).ptr_value.cast()) })
    }

    /// Returns the relations of the range table that are open: as many as it has entries, null for others.
    pub fn relations(self) -> &'q [Option<RelationRef<'q>>] {
        if self.es_relations.is_null() {
            return &[];
        }
        // SAFETY: the array has a member for each entry of the range table. They are null, or open.
        unsafe { array(self.es_relations.cast(), self.es_range_table_size as i32) }
    }
}

impl<'q> RelationRef<'q> {
    /// Returns the relation's row of pg_class.
    #[inline(always)]
    pub fn class(self) -> &'q pg_sys::FormData_pg_class {
        // SAFETY: an open relation has it.
        unsafe { &*self.rd_rel }
    }

    /// Returns the number of its blocks when this session last asked for it. PostgreSQL forgets that number
    /// if the file is truncated or replaced.
    pub fn known_blocks(self) -> Option<u32> {
        // SAFETY: an open relation's storage is null, or live.
        let storage = unsafe { self.rd_smgr.as_ref() };
        let blocks =
            storage.map(|storage| storage.smgr_cached_nblocks[pg_sys::ForkNumber::MAIN_FORKNUM as usize]);
        blocks.filter(|blocks| *blocks != pg_sys::InvalidBlockNumber)
    }

    /// Returns the name of the relation.
    pub fn name(self) -> &'q std::ffi::CStr {
        name(&self.class().relname)
    }

    /// Returns the number of columns.
    pub fn columns(self) -> usize {
        self.class().relnatts.max(0) as usize
    }

    /// Returns whether the relation is temporary.
    pub fn is_temporary(self) -> bool {
        self.class().relpersistence as u8 == pg_sys::RELPERSISTENCE_TEMP
    }
}

impl<'q> Handle<'q, pg_sys::ModifyTableState> {
    /// Returns the tables that the node changes.
    pub fn tables(self) -> impl Iterator<Item = Handle<'q, pg_sys::ResultRelInfo>> {
        // SAFETY: the array has so many members.
        (0..self.mt_nrels.max(0) as usize).map(move |i| unsafe { Handle::new(self.resultRelInfo.add(i)) })
    }
}

/// By what a node sorts.
pub struct SortKeys<'q> {
    pub columns: &'q [pg_sys::AttrNumber],
    pub operators: &'q [pg_sys::Oid],
    pub collations: &'q [pg_sys::Oid],
    pub nulls_first: &'q [bool],
}

impl<'q> Handle<'q, pg_sys::Sort> {
    /// Returns by what the node sorts.
    #[inline(always)]
    pub fn keys(self) -> SortKeys<'q> {
        let count = self.numCols;
        // SAFETY: a sort's arrays have so many members.
        unsafe {
            SortKeys {
                columns: array(self.sortColIdx, count),
                operators: array(self.sortOperators, count),
                collations: array(self.collations, count),
                nulls_first: array(self.nullsFirst, count),
            }
        }
    }
}

impl<'q> PlanRef<'q> {
    /// Returns the columns by which a node groups; of a window, those of its partitions and of its order.
    pub fn grouping_columns(self) -> [&'q [pg_sys::AttrNumber]; 2] {
        // SAFETY: the arrays of these nodes have so many members.
        unsafe {
            match self.tag() {
                NodeTag::T_Agg => {
                    let agg = self.cast::<pg_sys::Agg>();
                    [array(agg.grpColIdx, agg.numCols), &[]]
                }
                NodeTag::T_Group => {
                    let group = self.cast::<pg_sys::Group>();
                    [array(group.grpColIdx, group.numCols), &[]]
                }
                NodeTag::T_Unique => {
                    let unique = self.cast::<pg_sys::Unique>();
                    [array(unique.uniqColIdx, unique.numCols), &[]]
                }
                NodeTag::T_WindowAgg => {
                    let window = self.cast::<pg_sys::WindowAgg>();
                    let partition = array(window.partColIdx, window.partNumCols);
                    [partition, array(window.ordColIdx, window.ordNumCols)]
                }
                _ => [&[], &[]],
            }
        }
    }
}

/// Returns an array of PostgreSQL's.
///
/// # Safety
/// There must be so many members, and they must live as long as the result is used.
#[inline(always)]
unsafe fn array<'q, T>(first: *const T, count: i32) -> &'q [T] {
    match count {
        // SAFETY: the caller promises so many members.
        1.. => unsafe { std::slice::from_raw_parts(first, count as usize) },
        _ => &[],
    }
}
