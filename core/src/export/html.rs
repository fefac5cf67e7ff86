//! One self-contained page about a plan: no script, no network. It can be mailed, and opened anywhere.

use super::call_plots::call_plots;
use super::frames::{name, own_us};
use super::misestimates::misestimates;

use crate::model::{Buffers, Estimates, HistogramTotals, NamedWaits, NodeStats, own_errors};
use crate::page::page;
use crate::plan::PlanNode;
use maud::{Markup, html};

/// What a page shows.
pub struct Page<'a> {
    /// The page's title.
    pub title: &'a str,
    /// Facts about the statement and its execution, with their names.
    pub facts: &'a [(&'a str, String)],
    /// The statement's text.
    pub statement: &'a str,
    /// The lines of the plan's table.
    pub table: &'a [String],
    /// The plan's nodes.
    pub nodes: &'a [PlanNode],
    /// The statistics of the nodes.
    pub stats: &'a [NodeStats],
    /// The planner's estimates of the nodes, in the executions that the statistics sum up.
    pub estimates: &'a [Estimates],
    /// How long the calls of the nodes took.
    pub histograms: &'a [&'a HistogramTotals],
    /// The waits of the nodes, and of the statement outside of them, in the executions that the statistics
    /// sum up.
    pub waits: &'a [NamedWaits],
    /// The number of executions that the statistics sum up.
    pub executions: f64,
}

const STYLE: &str = "
pre { overflow-x: auto }
.statement { white-space: pre-wrap; overflow-wrap: anywhere; max-height: 20em; overflow-y: auto }
svg { width: 100%; height: auto } svg text { font: 11px monospace; pointer-events: none; fill: #000 }
svg rect { stroke: var(--back); stroke-width: .5 }
.cpu { fill: var(--cpu); background: var(--cpu) } .read { fill: var(--io); background: var(--io) }
.temp { fill: var(--temp); background: var(--temp) } .wait { fill: var(--wait); background: var(--wait) }
";

/// What a node spent its own time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The processor, and everything that is not known to be one of the others.
    Cpu,
    /// Reads and writes of tables and indexes.
    Blocks,
    /// Reads and writes of temporary files.
    Temp,
    /// All other waits: for locks, other processes and times.
    Wait,
}

impl Kind {
    const ALL: [Kind; 4] = [Kind::Cpu, Kind::Blocks, Kind::Temp, Kind::Wait];

    /// Returns its class in the page's style sheet, which has its colour.
    fn class(self) -> &'static str {
        match self {
            Kind::Cpu => "cpu",
            Kind::Blocks => "read",
            Kind::Temp => "temp",
            Kind::Wait => "wait",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Kind::Cpu => "processor and other",
            Kind::Blocks => "table and index I/O",
            Kind::Temp => "temporary files",
            Kind::Wait => "other waits",
        }
    }
}

impl Page<'_> {
    /// Returns the page as HTML. All texts in it are escaped.
    pub fn html(&self) -> String {
        let body = html! {
            dl { @for (label, value) in self.facts { dt { (label) } dd { (value) } } }
            h2 { "Statement" }
            pre.statement tabindex="0" { (self.statement) }
            h2 { "Time by node" (self.of_executions("mean")) }
            (self.icicle())
            h2 { "Plan" (self.of_executions("sums")) }
            pre tabindex="0" { @for line in self.table { (line) "\n" } }
            (self.wait_table())
            (misestimates(self.nodes, self.stats, self.estimates, self.executions))
            (self.call_times())
        };
        page(self.title, STYLE, &body)
    }

    /// Returns what a part of the page shows of several executions.
    fn of_executions(&self, what: &str) -> Markup {
        html! { @if self.executions > 1.0 { " (" (what) " of " (self.executions) " executions)" } }
    }

    /// Returns the plan as a picture. Each node is a box below its parent, as wide as its own time and that
    /// of all nodes below it. What it spent its own time on divides the box.
    fn icicle(&self) -> Markup {
        const WIDTH: f64 = 1000.0;
        const HEIGHT: usize = 18;
        /// Narrower boxes cannot be seen.
        const MIN_WIDTH: f64 = 0.2;
        let own: Vec<f64> = (0..self.nodes.len())
            .map(|i| own_us(self.stats.get(i), self.executions))
            .collect();
        let errors = own_errors(self.nodes, |i| self.stats.get(i).copied());
        let mut widths = own.clone();
        for i in (1..widths.len()).rev() {
            if let Some(parent) = self.nodes[i].parent.filter(|&parent| parent < i) {
                widths[parent] += widths[i];
            }
        }
        let all = widths.first().copied().unwrap_or(0.0);
        if all <= 0.0 {
            return html! { p { "The nodes of this execution were not timed." } };
        }
        let mut left = vec![0.0; widths.len()];
        // Where the next child of each node begins.
        let mut next = vec![0.0; widths.len()];
        for (i, node) in self.nodes.iter().enumerate() {
            if let Some(parent) = node.parent.filter(|&parent| parent < i) {
                left[i] = next[parent];
                next[parent] += widths[i];
            }
            next[i] = left[i];
        }
        let scale = WIDTH / all;
        let depth = self.nodes.iter().map(|node| node.depth + 1).max().unwrap_or(1);
        let parts = self.parts();
        html! {
            p {
                @for kind in Kind::ALL {
                    span.key.(kind.class()) {} (kind.label())
                }
            }
            svg viewBox={ "0 0 " (WIDTH) " " (depth * HEIGHT) } role="img" aria-label="Time by node" {
                @for (i, node) in self.nodes.iter().enumerate() {
                    @let width = widths[i] * scale;
                    @if width >= MIN_WIDTH {
                        @let (x, y) = (left[i] * scale, node.depth * HEIGHT);
                        g {
                            @let error_ms = errors.get(i).copied().unwrap_or(0.0);
                            title { (self.title(i, [own[i], error_ms], widths[i], &parts[i])) }
                            @for (kind, from, part) in shares(&parts[i]) {
                                rect.(kind.class()) x=(format!("{:.1}", x + from * width)) y=(y)
                                    width=(format!("{:.1}", part * width)) height=(HEIGHT) {}
                            }
                            (label(&name(node), x, y, width))
                        }
                    }
                }
            }
        }
    }

    /// Returns what is said about the box of a node: its name, its times per execution as the table has them,
    /// with their errors, the time of all processes that its width stands for if that is more, and what its
    /// own time consists of.
    fn title(
        &self,
        i: usize,
        [own_us, own_error_ms]: [f64; 2],
        width_us: f64,
        parts: &[f64; Kind::ALL.len()],
    ) -> String {
        let node = &self.nodes[i];
        let estimated = |us: f64, error_ms: f64| match error_ms * 1e3 / self.executions {
            error_us if error_us > 0.0 => format!("{} +/- {}", milliseconds(us), milliseconds(error_us)),
            _ => milliseconds(us),
        };
        let own = estimated(own_us, own_error_ms);
        let mut title = format!("{}: {}, own time {own}", node.id, name(node));
        let time = self.stats.get(i).and_then(|stats| stats.time.get());
        if let Some(time) = time {
            let us = time.total_ms * 1e3 / self.executions;
            title += &format!(", A-Time {}", estimated(us, time.error_ms));
            if width_us > us * 1.001 {
                title += &format!(
                    ", {} with all processes of the nodes below",
                    milliseconds(width_us)
                );
            }
        }
        for (kind, _, part) in shares(parts).filter(|(kind, ..)| *kind != Kind::Cpu) {
            title += &format!("; {} {}", kind.label(), milliseconds(part * own_us));
        }
        title
    }

    /// Returns how many milliseconds of its own time each node spent on each kind, as far as it is known.
    fn parts(&self) -> Vec<[f64; Kind::ALL.len()]> {
        // The I/O times of each node: of tables and indexes, and of temporary files.
        let mut own: Vec<[f64; 2]> = (0..self.nodes.len())
            .map(|i| {
                let buffers = self.stats.get(i).and_then(|stats| stats.buffers.get());
                let times = |b: Buffers| {
                    let blocks = b.shared_read_ms + b.shared_write_ms + b.local_read_ms + b.local_write_ms;
                    [blocks, b.temp_read_ms + b.temp_write_ms]
                };
                buffers.map_or([0.0; 2], times)
            })
            .collect();
        // The times of a node include those of its inputs, but not those of its InitPlans and subplans. Nodes
        // follow their parents, so a node's own times are what is left when its turn comes.
        let all = own.clone();
        for (node, times) in self.nodes.iter().zip(all) {
            let is_input = node.subplan_name.is_none();
            if let Some(parent) = node
                .parent
                .and_then(|parent| own.get_mut(parent))
                .filter(|_| is_input)
            {
                parent[0] -= times[0];
                parent[1] -= times[1];
            }
        }
        let parts = |(i, [blocks, temp]): (usize, [f64; 2])| {
            let [waited_for_blocks, waited_for_temp, wait] = self.waited_ms(i);
            // The same requests.
            let (blocks, temp) = (blocks.max(waited_for_blocks), temp.max(waited_for_temp));
            let rest = own_us(self.stats.get(i), 1.0) / 1e3 - blocks - temp - wait;
            [rest, blocks, temp, wait].map(|ms| ms.max(0.0))
        };
        own.into_iter().enumerate().map(parts).collect()
    }

    /// Returns how long a node waited for tables and indexes, for temporary files, and for anything else.
    fn waited_ms(&self, node: usize) -> [f64; 3] {
        let mut sums = [0.0; 3];
        for waits in self.waits.iter().filter(|waits| waits.node == Some(node)) {
            sums[waits.waits_for() as usize] += waits.ms;
        }
        sums
    }

    /// Returns the waits as a table.
    fn wait_table(&self) -> Markup {
        html! {
            @if !self.waits.is_empty() {
                h2 { "Waits" }
                div.wide tabindex="0" role="group" aria-label="Waits" { table {
                    tr { th { "Node" } th { "Event" } th.number { "Waits" } th.number { "Total ms" } th.number { "Longest ms" } }
                    @for waits in self.waits {
                        tr {
                            @match waits.node.and_then(|node| Some((node, self.nodes.get(node)?))) {
                                Some((id, node)) => td { (id) ": " (name(node)) },
                                None => td { "outside of the nodes" },
                            }
                            td { (waits.name()) }
                            td.number { (format!("{:.0}", waits.waits as f64 / self.executions)) }
                            td.number { (format!("{:.3}", waits.ms / self.executions)) }
                            td.number { (format!("{:.3}", waits.max_ms)) }
                        }
                    }
                } }
            }
        }
    }

    /// Returns the histograms of the nodes that have one.
    fn call_times(&self) -> Markup {
        /// Plots of more nodes would make the page large. The nodes with the most own time come first.
        const MAX_NODES: usize = 20;
        let mut chosen: Vec<usize> = (0..self.nodes.len().min(self.histograms.len()))
            .filter(|&i| self.histograms[i].counts().next().is_some())
            .collect();
        chosen.sort_by(|&a, &b| {
            let own = |i| own_us(self.stats.get(i), 1.0);
            own(b).total_cmp(&own(a))
        });
        chosen.truncate(MAX_NODES);
        html! {
            @if !chosen.is_empty() {
                h2 { "Time of calls, all executions" }
                @for i in chosen {
                    details {
                        summary { (self.nodes[i].id) ": " (name(&self.nodes[i])) }
                        @for (heading, lines) in call_plots(self.histograms[i]) {
                            pre tabindex="0" { (heading) "\n" @for line in lines { (line) "\n" } }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the kinds that have a part of a whole: where each begins, and how much it is. A whole of nothing
/// is all processor.
fn shares(parts: &[f64; Kind::ALL.len()]) -> impl Iterator<Item = (Kind, f64, f64)> {
    let sum: f64 = parts.iter().sum();
    let parts = if sum > 0.0 {
        parts.map(|part| part / sum)
    } else {
        [1.0, 0.0, 0.0, 0.0]
    };
    let mut end = 0.0;
    Kind::ALL.into_iter().zip(parts).filter_map(move |(kind, part)| {
        let begin = end;
        end += part;
        (part > 0.0).then_some((kind, begin, part))
    })
}

/// Returns a box's label, cut to its width. Narrow boxes have none.
fn label(name: &str, x: f64, y: usize, width: f64) -> Markup {
    const CHARACTER: f64 = 6.7;
    let room = (width / CHARACTER) as usize;
    html! {
        @if room >= 4 {
            text x=(format!("{:.1}", x + 3.0)) y=(y + 13) { (name.chars().take(room - 1).collect::<String>()) }
        }
    }
}

fn milliseconds(us: f64) -> String {
    format!("{:.3} ms", us / 1e3)
}

#[cfg(test)]
mod tests {
    use super::super::frames::tests::{node, timed};
    use super::*;
    use crate::histogram::Histogram;
    use crate::model::Time;

    fn page(nodes: &[PlanNode], stats: &[NodeStats], statement: &str) -> String {
        let facts = [("user", "a <b>bold</b> name".to_owned())];
        let histogram = HistogramTotals::default();
        let page = Page {
            title: "queryid 1 & planid 2",
            facts: &facts,
            statement,
            table: &["| Id | <Operation> |".to_owned()],
            nodes,
            stats,
            estimates: &[],
            histograms: &vec![&histogram; nodes.len()],
            waits: &[],
            executions: 1.0,
        };
        page.html()
    }

    fn child(id: usize, parent: usize, depth: usize) -> PlanNode {
        PlanNode {
            id,
            parent: Some(parent),
            ..node(depth, "Seq Scan", Some("t"))
        }
    }

    #[test]
    fn texts_are_escaped() {
        let hostile = "SELECT '</pre><script>alert(\"x\")</script>' < 1 && '&amp;'";
        let odd = PlanNode {
            operation: "<img src=x onerror=alert(1)>".to_owned(),
            ..node(0, "", Some("\"><script>"))
        };
        let page = page(&[odd], &[timed(1.0)], hostile);
        assert!(!page.contains("<script") && !page.contains("<img") && !page.contains("<b>"));
        assert!(page.contains("&lt;/pre&gt;&lt;script&gt;") && page.contains("&amp;amp;"));
        assert!(!page.contains("http") && !page.contains("url("), "no network");
    }

    #[test]
    fn a_box_is_as_wide_as_its_time() {
        let nodes = [
            node(0, "Append", None),
            child(1, 0, 1),
            child(2, 0, 1),
            child(3, 2, 2),
        ];
        let page = page(&nodes, &[1.0, 2.0, 3.0, 4.0].map(timed), "");
        let box_of = |x: &str, y: usize, width: &str| {
            format!("<rect class=\"cpu\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"18\">")
        };
        for expected in [
            box_of("0.0", 0, "1000.0"),
            box_of("0.0", 18, "200.0"),
            box_of("200.0", 18, "700.0"),
            box_of("200.0", 36, "400.0"),
        ] {
            assert!(page.contains(&expected), "{expected} in {page}");
        }
    }

    #[test]
    fn the_colours_tell_what_took_the_time() {
        let stats = |self_ms: f64, read: f64, temp: f64| NodeStats {
            time: Time {
                self_ms,
                ..Time::default()
            }
            .into(),
            buffers: Buffers {
                shared_read_ms: read,
                temp_read_ms: temp,
                ..Buffers::default()
            }
            .into(),
            ..NodeStats::default()
        };
        let nodes = [node(0, "Sort", None), child(1, 0, 1), child(2, 1, 2)];
        // The figures of a node include those of its inputs.
        let stats = [
            stats(10.0, 8.0, 4.0),
            stats(10.0, 8.0, 0.0),
            stats(10.0, 1.0, 0.0),
        ];
        let page = Page {
            title: "",
            facts: &[],
            statement: "",
            table: &[],
            nodes: &nodes,
            stats: &stats,
            estimates: &[],
            histograms: &[],
            waits: &[],
            executions: 1.0,
        };
        assert_eq!(
            page.parts(),
            [[6.0, 0.0, 4.0, 0.0], [3.0, 7.0, 0.0, 0.0], [9.0, 1.0, 0.0, 0.0]]
        );
        // The sort spilled. Its box is as wide as all.
        let html = page.html();
        for (class, x, width) in [("cpu", "0.0", "600.0"), ("temp", "600.0", "400.0")] {
            let part = format!("<rect class=\"{class}\" x=\"{x}\" y=\"0\" width=\"{width}\"");
            assert!(html.contains(&part), "{part} in {html}");
        }
        assert!(html.contains("own time 10.000 ms, A-Time 0.000 ms"), "{html}");
        assert!(html.contains("; temporary files 4.000 ms"), "{html}");
    }

    #[test]
    fn waits_have_a_colour_and_a_table() {
        let nodes = [node(0, "Update", Some("t")), child(1, 0, 1), child(2, 0, 1)];
        let one = |node, of: &str, event: &str| NamedWaits {
            node,
            event_type: Some(of.to_owned()),
            event: event.to_owned(),
            waits: 3,
            ms: 6.0,
            max_ms: 5.0,
        };
        let page = Page {
            title: "",
            facts: &[],
            statement: "",
            table: &[],
            nodes: &nodes,
            stats: &[timed(10.0), timed(10.0), timed(20.0)],
            estimates: &[],
            histograms: &[],
            waits: &[
                one(Some(0), "Lock", "transactionid"),
                one(Some(1), "IO", "DataFileRead"),
                one(Some(2), "Lock", "<tuple>"),
                one(None, "IO", "WALSync"),
            ],
            executions: 1.0,
        };
        assert_eq!(
            page.parts(),
            [[4.0, 0.0, 0.0, 6.0], [4.0, 6.0, 0.0, 0.0], [14.0, 0.0, 0.0, 6.0]]
        );
        let html = page.html();
        let cells = "<td>0: Update t</td><td>Lock:transactionid</td><td class=\"number\">3</td><td class=\"number\">6.000</td>";
        assert!(
            html.contains(cells) && html.contains("Lock:&lt;tuple&gt;"),
            "{html}"
        );
        assert!(html.contains("<td>outside of the nodes</td><td>IO:WALSync</td>"));
    }

    #[test]
    fn a_hundred_nodes_make_a_small_page() {
        let mut histogram = HistogramTotals::default();
        for bucket in 0..30 {
            let mut calls = Histogram::default();
            calls.add_to(bucket, bucket % 2 == 0, 1_000_000);
            histogram.add(&calls);
        }
        for count in [100, 300] {
            let nodes: Vec<PlanNode> = (0..count)
                .map(|i| {
                    if i == 0 {
                        node(0, "Append", None)
                    } else {
                        child(i, i - 1, i)
                    }
                })
                .collect();
            let page = Page {
                title: "queryid 1",
                facts: &[],
                statement: "SELECT 1",
                table: &vec!["x".repeat(120); count],
                nodes: &nodes,
                stats: &vec![timed(1.0); count],
                estimates: &[],
                histograms: &vec![&histogram; count],
                waits: &[],
                executions: 1.0,
            };
            let html = page.html();
            assert!(html.len() < count * 2_000, "{count} nodes: {} bytes", html.len());
            assert_eq!(html.matches("<rect").count(), count);
        }
    }

    #[test]
    fn a_plan_without_times_has_no_picture() {
        let page = page(&[node(0, "Result", None)], &[NodeStats::default()], "SELECT 1");
        assert!(page.contains("were not timed") && !page.contains("<svg"));
    }
}
