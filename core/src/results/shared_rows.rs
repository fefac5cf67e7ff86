//! Below a Gather, the planner's estimate of a partial node is for one of the processes that share its rows.
//! It is made comparable with the rows of all of them, no matter how many processes were planned and how many
//! ran.

use super::node::add_to_parents;
use crate::model::NodeStats;

/// What a node has to do with the sharing of rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sharing {
    /// A Gather. The planner divides the rows below it by this number.
    Gather(f64),
    /// A scan or join whose rows the processes share.
    Shared,
    /// The same for an Append. The planner divides the rows of each input by a number of its own, at most
    /// that of the Gather.
    SharedAppend,
    /// An Append of which each process runs all inputs. Those whose rows are shared are divided in the same
    /// way.
    Append,
    /// It makes one row of several: an aggregate, for example. If the processes share its input, the number
    /// of its rows depends on how many there are.
    Grouping,
    /// Any other node. Processes share its rows if they share those of an input.
    Plain,
}

/// A node's part in the sharing of rows.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// The index of the node that it is an input of.
    pub input_of: Option<usize>,
    /// What it does.
    pub sharing: Sharing,
}

/// What the rows of a node are, in all processes together.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
enum Rows {
    /// Each process has all of them.
    Whole,
    /// Each process has a part. The planner divided the rows by the number of the Gather.
    Shared,
    /// The same, but the planner divided some rows by a smaller number.
    Appended,
    /// Each process made groups of its part.
    Grouped,
}

/// What is above a node.
#[derive(Clone, Copy)]
struct Above {
    /// The nearest Gather and its divisor.
    gather: usize,
    divisor: f64,
    /// There is an Append in between.
    has_append: bool,
}

/// Returns the divisor of the planner's estimates below a Gather with this number of workers
/// (`get_parallel_divisor` in costsize.c).
pub fn parallel_divisor(workers: i32, leader_participates: bool) -> f64 {
    let leader = if leader_participates {
        1.0 - 0.3 * f64::from(workers)
    } else {
        0.0
    };
    (f64::from(workers) + leader.max(0.0)).max(1.0)
}

/// Makes the estimates of the nodes whose rows processes share comparable with the rows of all processes.
/// Returns `None` if there is no memory.
///
/// If the planner's number for all processes is not known exactly, any number in its range counts as right.
pub fn scale_shared_estimates(shares: &[Share], stats: &mut [NodeStats]) -> Option<()> {
    let rows = rows_of_nodes(shares)?;
    let mut places: Vec<Option<Above>> = Vec::new();
    places.try_reserve_exact(shares.len()).ok()?;
    for (i, share) in shares.iter().enumerate() {
        let above = share.input_of.and_then(|above| match shares[above].sharing {
            Sharing::Gather(divisor) => Some(Above {
                gather: above,
                divisor,
                has_append: false,
            }),
            Sharing::SharedAppend | Sharing::Append => places[above].map(|place| Above {
                has_append: true,
                ..place
            }),
            _ => places[above],
        });
        places.push(above);
        let Some(above) = above.filter(|_| rows[i] != Rows::Whole) else {
            continue;
        };
        let starts = |i: usize| {
            stats
                .get(i)
                .map_or(0, |node: &NodeStats| node.starts.get_or_zero())
        };
        let (starts, gather_starts) = (starts(i), starts(above.gather));
        let Some(node) = stats.get_mut(i) else { continue };
        let one_process = f64::from(node.estimate.plan_rows) * gather_starts as f64;
        let divided = one_process * above.divisor;
        let actual = node.rows as f64;
        let all_processes = match rows[i] {
            Rows::Grouped => actual.min(divided.max(f64::from(node.estimate.plan_rows) * starts as f64)),
            Rows::Shared if !above.has_append => divided,
            _ => actual.min(divided),
        };
        let expected = all_processes.max(one_process);
        node.estimate.set_expected_rows(expected, starts);
        // A Gather returns the rows of its input, and so does a sort above it. The planner's own number for
        // them is that of the planned workers.
        let mut reader = share.input_of.filter(|reader| *reader == above.gather);
        while let Some(at) = reader {
            let Some(node) = stats.get_mut(at) else { break };
            node.estimate
                .set_expected_rows(expected, node.starts.get_or_zero());
            reader = shares[at]
                .input_of
                .filter(|above| rows[i] == Rows::Grouped && shares[*above].sharing == Sharing::Plain);
        }
    }
    Some(())
}

/// Returns what the rows of each node are. Returns `None` if there is no memory.
fn rows_of_nodes(shares: &[Share]) -> Option<Vec<Rows>> {
    let mut rows: Vec<Rows> = Vec::new();
    rows.try_reserve_exact(shares.len()).ok()?;
    rows.extend(shares.iter().map(|share| match share.sharing {
        Sharing::Shared | Sharing::SharedAppend => Rows::Shared,
        _ => Rows::Whole,
    }));
    let reader = |i: usize| {
        let above = shares[i].input_of?;
        let takes_over = matches!(
            shares[above].sharing,
            Sharing::Plain | Sharing::Append | Sharing::Grouping
        );
        takes_over.then_some(above)
    };
    add_to_parents(&mut rows, reader, |above, below, i| {
        let sharing = shares[i].input_of.map(|above| shares[above].sharing);
        let becomes = match (*below, sharing) {
            (Rows::Whole, _) => Rows::Whole,
            (_, Some(Sharing::Grouping)) => Rows::Grouped,
            (Rows::Shared, Some(Sharing::Append)) => Rows::Appended,
            (below, _) => below,
        };
        if becomes > *above {
            *above = becomes;
        }
    });
    Some(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Estimate, Estimates};

    /// A node: the index of its reader, its kind, its starts, the planner's rows per start, and its actual
    /// rows.
    type Node = (Option<usize>, Sharing, u64, f64, u64);

    /// Returns how many rows the planner expected of each node.
    fn expected(nodes: &[Node]) -> Vec<f64> {
        let shares: Vec<Share> = nodes
            .iter()
            .map(|(input_of, sharing, ..)| Share {
                input_of: *input_of,
                sharing: *sharing,
            })
            .collect();
        let mut stats: Vec<NodeStats> = nodes
            .iter()
            .map(|(_, _, starts, plan_rows, rows)| NodeStats {
                starts: (*starts).into(),
                rows: *rows,
                estimate: Estimate::new(*plan_rows, true),
                ..NodeStats::default()
            })
            .collect();
        scale_shared_estimates(&shares, &mut stats).expect("memory");
        let of_node = |node: &NodeStats| {
            let mut sum = Estimates::default();
            sum.add(&node.estimate, node.starts.get_or_zero(), node.rows);
            sum.expected_rows.round()
        };
        stats.iter().map(of_node).collect()
    }

    const GATHER: Sharing = Sharing::Gather(2.4);

    #[test]
    fn the_divisor_is_the_planners() {
        let divisors = [1, 2, 3, 4].map(|workers| parallel_divisor(workers, true));
        assert_eq!(divisors.map(|d| (d * 10.0).round()), [17.0, 24.0, 31.0, 40.0]);
        assert_eq!(
            (parallel_divisor(2, false), parallel_divisor(0, false)),
            (2.0, 1.0)
        );
    }

    #[test]
    fn shared_rows_are_those_of_all_processes() {
        let nodes = [
            (None, Sharing::Plain, 1, 1.0, 1),
            (Some(0), GATHER, 2, 240.0, 480),
            // A nested loop, its shared outer side, and an inner side that each process scans for itself.
            (Some(1), Sharing::Plain, 6, 100.0, 480),
            (Some(2), Sharing::Shared, 6, 100.0, 480),
            (Some(2), Sharing::Plain, 480, 1.0, 480),
        ];
        assert_eq!(expected(&nodes), [1.0, 480.0, 480.0, 480.0, 480.0]);
    }

    /// The planner multiplies the rows of a Gather Merge by the planned workers.
    #[test]
    fn a_gather_returns_the_rows_of_its_input() {
        for starts in [1, 2, 3] {
            let nodes = [
                (None, GATHER, 1, 200.0, 240),
                (Some(0), Sharing::Plain, starts, 100.0, 240),
                (Some(1), Sharing::Shared, starts, 100.0, 240),
            ];
            assert_eq!(expected(&nodes), [240.0; 3], "{starts} processes");
        }
        let whole = [(None, GATHER, 1, 70.0, 5), (Some(0), Sharing::Plain, 1, 70.0, 5)];
        assert_eq!(expected(&whole), [70.0, 70.0]);
    }

    #[test]
    fn groups_are_those_of_the_processes_that_ran() {
        let nodes = |starts, groups| {
            expected(&[
                (None, Sharing::Grouping, 1, 10.0, 10),
                (Some(0), Sharing::Plain, 1, 20.0, groups),
                (Some(1), GATHER, 1, 20.0, groups),
                (Some(2), Sharing::Plain, starts, 10.0, groups),
                (Some(3), Sharing::Grouping, starts, 10.0, groups),
                (Some(4), Sharing::Shared, starts, 100.0, 240),
            ])
        };
        let of_groups = |rows| [10.0, rows, rows, rows, rows, 240.0];
        // Each process can see all groups, or some.
        assert_eq!(nodes(3, 30), of_groups(30.0));
        assert_eq!(nodes(3, 12), of_groups(12.0));
        assert_eq!(nodes(1, 10), of_groups(10.0));
        // A process alone has the rows of all, which may be in more groups.
        assert_eq!(nodes(1, 24), of_groups(24.0));
        // These are wrong in any case.
        assert_eq!(nodes(3, 500), of_groups(30.0));
        assert_eq!(nodes(3, 1), of_groups(10.0));
    }

    #[test]
    fn an_aggregate_that_each_process_makes_for_itself_is_no_part() {
        let nodes = [
            (None, GATHER, 1, 240.0, 240),
            (Some(0), Sharing::Plain, 3, 100.0, 240),
            (Some(1), Sharing::Shared, 3, 100.0, 240),
            (Some(1), Sharing::Grouping, 3, 10.0, 30),
            (Some(3), Sharing::Plain, 3, 50.0, 150),
        ];
        assert_eq!(expected(&nodes), [240.0, 240.0, 240.0, 30.0, 150.0]);
    }

    #[test]
    fn the_inputs_of_an_append_have_divisors_of_their_own() {
        let shared = |rows| {
            expected(&[
                (None, GATHER, 1, 240.0, rows + 120),
                (Some(0), Sharing::SharedAppend, 3, 100.0, rows + 120),
                (Some(1), Sharing::Shared, 2, 50.0, rows),
                (Some(1), Sharing::Plain, 1, 120.0, 120),
            ])
        };
        // One worker: the planner divided 85 rows by 1.7.
        assert_eq!(shared(85), [240.0, 240.0, 85.0, 120.0]);
        assert_eq!(shared(120), [240.0, 240.0, 120.0, 120.0]);
        assert_eq!(shared(1_200), [240.0, 240.0, 120.0, 120.0]);
        assert_eq!(shared(5), [240.0, 240.0, 50.0, 120.0]);
        let plain = [
            (None, GATHER, 1, 205.0, 205),
            (Some(0), Sharing::Append, 3, 100.0, 205),
            (Some(1), Sharing::Shared, 3, 50.0, 85),
            (Some(1), Sharing::Shared, 3, 50.0, 120),
        ];
        assert_eq!(expected(&plain), [205.0, 205.0, 85.0, 120.0]);
    }
}
