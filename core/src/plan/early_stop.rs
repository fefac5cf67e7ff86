//! Decides which nodes of a plan may be stopped before their last row. The rows of such a node say nothing
//! about the planner's estimate, which is for all of its rows.

use rustc_hash::FxHashMap;

/// How far a node is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// To its end, even if its reader is stopped: the input of a sort, a hashed subplan.
    ToEnd,
    /// As far as its parent is read: the input of a filter.
    LikeParent,
    /// Possibly not to its end: the input of a limit, the inner side of a semi-join, EXISTS.
    MayStop,
    /// As far as the scans of this CTE go. A CTE is identified by the id of its subplan.
    LikeScansOf(i32),
}

/// How a node is connected with the others.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// The index of the parent, which is lower than the node's own; `None` at the root.
    pub parent: Option<usize>,
    /// How far the node is read.
    pub read: Read,
    /// The CTE that the node scans.
    pub scans: Option<i32>,
}

/// What is known of a node before the scans of CTEs are looked at.
#[derive(Clone, Copy)]
enum State {
    MayStop(bool),
    /// The same as the CTE with this index.
    LikeCte(usize),
}

/// Returns for each node whether it may be stopped before its last row. A parent comes before its children. A
/// CTE comes before the nodes that scan it. The root is read to its end.
pub fn may_stop_early(links: &[Link]) -> Vec<bool> {
    let mut states: Vec<State> = Vec::with_capacity(links.len());
    let mut ctes = FxHashMap::default();
    for link in links {
        states.push(match link.read {
            Read::ToEnd => State::MayStop(false),
            Read::MayStop => State::MayStop(true),
            Read::LikeParent => link
                .parent
                .and_then(|parent| states.get(parent).copied())
                .unwrap_or(State::MayStop(false)),
            Read::LikeScansOf(cte) => {
                let next = ctes.len();
                State::LikeCte(*ctes.entry(cte).or_insert(next))
            }
        });
    }
    let of_ctes = ctes_may_stop(links, &states, &ctes);
    let resolved = states.iter().map(|state| match state {
        State::MayStop(may_stop) => *may_stop,
        State::LikeCte(cte) => of_ctes[*cte],
    });
    resolved.collect()
}

/// Returns for each CTE whether it may be stopped early: whether all nodes that scan it may be. A CTE is
/// scanned by the main query or by later CTEs, so the last one comes first.
fn ctes_may_stop(links: &[Link], states: &[State], ctes: &FxHashMap<i32, usize>) -> Vec<bool> {
    let mut scans: Vec<(usize, State)> = links
        .iter()
        .zip(states)
        .filter_map(|(link, state)| Some((*ctes.get(&link.scans?)?, *state)))
        .collect();
    scans.sort_by_key(|(cte, _)| std::cmp::Reverse(*cte));
    let mut may_stop = vec![true; ctes.len()];
    for (cte, state) in scans {
        may_stop[cte] &= match state {
            State::MayStop(may_stop) => may_stop,
            State::LikeCte(later) => later <= cte || may_stop[later],
        };
    }
    may_stop
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(parent: usize, read: Read) -> Link {
        Link {
            parent: Some(parent),
            read,
            scans: None,
        }
    }

    fn scan(parent: usize, read: Read, cte: i32) -> Link {
        Link {
            scans: Some(cte),
            ..link(parent, read)
        }
    }

    const ROOT: Link = Link {
        parent: None,
        read: Read::LikeParent,
        scans: None,
    };

    #[test]
    fn a_limit_may_stop_all_below_it_up_to_a_sort() {
        let links = [
            ROOT,
            link(0, Read::MayStop),
            link(1, Read::LikeParent),
            link(2, Read::ToEnd),
            link(3, Read::LikeParent),
        ];
        assert_eq!(may_stop_early(&links), [false, true, true, false, false]);
        assert!(may_stop_early(&[]).is_empty());
    }

    #[test]
    fn a_cte_is_read_as_far_as_its_farthest_scan() {
        let (first, second) = (1, 2);
        let plan = |inner: Read| {
            may_stop_early(&[
                ROOT,
                link(0, Read::LikeScansOf(first)),
                link(1, Read::LikeParent),
                link(0, Read::LikeScansOf(second)),
                scan(3, Read::LikeParent, first),
                scan(0, Read::MayStop, second),
                scan(0, inner, second),
            ])
        };
        assert_eq!(plan(Read::MayStop), [false, true, true, true, true, true, true]);
        assert_eq!(
            plan(Read::LikeParent),
            [false, false, false, false, false, true, false]
        );
    }

    /// These links do not come from a plan.
    #[test]
    fn a_cte_without_scans_may_stop() {
        let alone = [ROOT, link(0, Read::LikeScansOf(1)), scan(1, Read::LikeParent, 1)];
        assert_eq!(may_stop_early(&alone), [false, true, true]);
        assert_eq!(
            may_stop_early(&[ROOT, scan(7, Read::LikeParent, 9)]),
            [false, false]
        );
    }
}
