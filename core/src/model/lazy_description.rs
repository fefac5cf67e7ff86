//! A plan's description as a session keeps it. One that another session has made stays as it is stored until
//! somebody needs more of it than an execution does: most sessions display few of the plans that they run.

use super::description::{PlanDescription, PlanIds};
use super::fold::Fold;
use super::unfolding::{NameOf, Unfolding};
use crate::normalise::Constants;
use crate::plan::{Costs, ExplainedPlan, Extent, PlanNode};
use serde::{Deserialize, Serialize};
use std::cell::{Cell, OnceCell};
use std::rc::Rc;

/// What an execution needs of its plan's description.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Summary {
    ids: PlanIds,
    is_truncated: bool,
    /// The fingerprint of the constants that symbols replace; `None` if none are replaced.
    constants: Option<u64>,
    names: Option<u64>,
    nodes: usize,
    /// A bit for each of the first [`MAX_UNDECODED`] nodes that may be stopped before its last row.
    may_stop_early: u64,
}

/// A stored description of more nodes is decoded at once: the summary has one bit for each of 64 nodes.
pub const MAX_UNDECODED: usize = u64::BITS as usize;

impl Summary {
    fn of(description: &PlanDescription) -> Self {
        let mut may_stop_early = 0;
        for (i, node) in description.nodes.iter().take(MAX_UNDECODED).enumerate() {
            may_stop_early |= u64::from(node.may_stop_early) << i;
        }
        Summary {
            ids: description.ids,
            is_truncated: description.is_truncated(),
            constants: description.constants.as_ref().map(Constants::fingerprint),
            names: description.names,
            nodes: description.nodes.len(),
            may_stop_early,
        }
    }
}

/// The description of a plan, decoded or not.
pub struct LazyDescription {
    summary: Summary,
    /// The stored form, unless this session has made the description.
    stored: Box<[u8]>,
    decoded: OnceCell<Rc<PlanDescription>>,
    /// What bounds the nodes; empty if nothing is known.
    extents: Vec<Extent>,
    /// What this session's planner expected of the nodes; empty if the description says it.
    costs: Vec<Costs>,
    published_size: OnceCell<Option<usize>>,
    /// If the plan was folded: the description that is stored, and how this one differs.
    folded: Option<Box<Folded>>,
}

/// The folded description of a plan, and the nodes of an execution.
struct Folded {
    description: Rc<LazyDescription>,
    unfolding: Rc<Unfolding>,
    name_of: NameOf,
    /// The bytes of those that were decoded.
    decoded_bytes: Rc<Cell<usize>>,
}

/// A description as another session has published it, which runs the plan.
pub struct Published {
    /// The description.
    pub description: PlanDescription,
    /// What bounds its nodes; empty if nothing is known.
    pub extents: Vec<Extent>,
}

impl Published {
    /// Returns the description of a plan of which only the statement's text was published.
    pub fn of_text(text: String) -> Published {
        Published {
            description: PlanDescription::new(b"", text, false, ExplainedPlan::default()),
            extents: Vec::new(),
        }
    }
}

impl LazyDescription {
    /// Makes it from a description, whose nodes have these bounds.
    pub fn new(description: PlanDescription, extents: Vec<Extent>) -> Self {
        LazyDescription {
            summary: Summary::of(&description),
            stored: Box::default(),
            decoded: OnceCell::from(Rc::new(description)),
            extents,
            costs: Vec::new(),
            published_size: OnceCell::new(),
            folded: None,
        }
    }

    /// Makes it from its stored form, which another session has made. Returns `None` if it is damaged.
    pub fn from_stored(stored: Vec<u8>) -> Option<Self> {
        let (summary, _) = postcard::take_from_bytes(&stored).ok()?;
        Some(LazyDescription {
            summary,
            stored: stored.into_boxed_slice(),
            decoded: OnceCell::new(),
            extents: Vec::new(),
            costs: Vec::new(),
            published_size: OnceCell::new(),
            folded: None,
        })
    }

    /// Makes the description of an execution whose plan is described folded. Its nodes have these bounds, and
    /// the planner expected this of them. When it is decoded, its size is added to `decoded_bytes`.
    pub fn unfolded(
        description: Rc<LazyDescription>,
        unfolding: Rc<Unfolding>,
        costs: Vec<Costs>,
        extents: Vec<Extent>,
        name_of: NameOf,
        decoded_bytes: Rc<Cell<usize>>,
    ) -> Self {
        let mut summary = Summary {
            nodes: unfolding.nodes.len(),
            may_stop_early: 0,
            ..description.summary
        };
        for node in 0..summary.nodes.min(MAX_UNDECODED) {
            let may_stop_early = description.may_stop_early(unfolding.fold.of(node));
            summary.may_stop_early |= u64::from(may_stop_early) << node;
        }
        LazyDescription {
            summary,
            stored: Box::default(),
            decoded: OnceCell::new(),
            extents,
            costs,
            published_size: OnceCell::new(),
            folded: Some(Box::new(Folded {
                description,
                unfolding,
                name_of,
                decoded_bytes,
            })),
        }
    }

    /// Returns how the plan was folded, if it was.
    #[inline(always)]
    pub fn fold(&self) -> Option<&Fold> {
        self.unfolding().map(|unfolding| &unfolding.fold)
    }

    /// Returns what tells apart the nodes that were folded, if some were.
    #[inline(always)]
    pub fn unfolding(&self) -> Option<&Rc<Unfolding>> {
        self.folded.as_ref().map(|folded| &folded.unfolding)
    }

    /// Returns the description that is stored: that of the folded plan, if it was folded.
    pub fn to_keep(self: &Rc<Self>) -> &Rc<Self> {
        self.folded.as_ref().map_or(self, |folded| &folded.description)
    }

    /// Returns a stored one with what this session's planner expected of the nodes, and their bounds.
    pub fn planned(mut self, costs: impl ExactSizeIterator<Item = Costs>, extents: Vec<Extent>) -> Self {
        if costs.len() > MAX_UNDECODED {
            let mut description = Self::decode(&self.stored).unwrap_or_default();
            set_costs(&mut description.nodes, costs);
            return LazyDescription::new(description, extents);
        }
        self.extents = extents;
        self.costs = costs.collect();
        self.published_size = OnceCell::new();
        self
    }

    /// Returns the whole description.
    pub fn decoded(&self) -> &Rc<PlanDescription> {
        self.decoded.get_or_init(|| {
            let mut description = match &self.folded {
                Some(folded) => folded
                    .unfolding
                    .unfold(folded.description.decoded(), folded.name_of),
                None => Self::decode(&self.stored).unwrap_or_default(),
            };
            set_costs(&mut description.nodes, self.costs.iter().copied());
            if let Some(folded) = &self.folded {
                let bytes = folded.decoded_bytes.get().saturating_add(description.size());
                folded.decoded_bytes.set(bytes);
            }
            Rc::new(description)
        })
    }

    /// Returns the numbers of the plan and of its statement. Decodes nothing.
    pub fn ids(&self) -> PlanIds {
        self.summary.ids
    }

    /// Returns the beginning of the statement's text. Decodes nothing else.
    pub fn text(&self) -> &str {
        if let Some(folded) = &self.folded {
            return folded.description.text();
        }
        if let Some(description) = self.decoded.get() {
            return &description.text;
        }
        let text = postcard::take_from_bytes::<(Summary, &str)>(&self.stored);
        text.map_or("", |((_, text), _)| text)
    }

    /// Decodes a stored form. Returns `None` if it is damaged.
    pub fn decode(stored: &[u8]) -> Option<PlanDescription> {
        decode(stored).map(|(description, _)| description)
    }

    /// Returns the number of bytes that [`publish`](Self::publish) writes.
    pub fn published_size(&self) -> Option<usize> {
        *self.published_size.get_or_init(|| {
            let planned = postcard::experimental::serialized_size(&self.planned_parts()).ok()?;
            Some(self.stored_size()? + planned)
        })
    }

    /// Writes it for other sessions, which see it while the plan runs. Returns its size. Returns `None` if
    /// there is no room for it.
    pub fn publish(&self, room: &mut [u8]) -> Option<usize> {
        let size = self.store_in(room)?;
        let planned = postcard::to_slice(&self.planned_parts(), &mut room[size..]).ok()?;
        Some(size + planned.len())
    }

    /// Returns what is published beside the stored form.
    fn planned_parts(&self) -> (&[Extent], &[Costs], Option<&Unfolding>) {
        (
            &self.extents,
            &self.costs,
            self.unfolding().map(|unfolding| &**unfolding),
        )
    }

    /// Decodes what another session has published. Returns `None` if it is damaged.
    pub fn published(bytes: &[u8], name_of: NameOf) -> Option<Published> {
        let (mut description, rest) = decode(bytes)?;
        let (extents, costs, unfolding): (_, Vec<Costs>, Option<Unfolding>) =
            postcard::from_bytes(rest).ok()?;
        if let Some(unfolding) = unfolding {
            description = unfolding.unfold(&description, name_of);
        }
        set_costs(&mut description.nodes, costs.into_iter());
        Some(Published { description, extents })
    }

    /// Returns the stored form. Returns `None` if there is no memory.
    pub fn stored(&self) -> Option<Vec<u8>> {
        let size = self.stored_size()?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(size).ok()?;
        bytes.resize(size, 0);
        self.store_in(&mut bytes)?;
        Some(bytes)
    }

    /// Returns the size of the stored form.
    fn stored_size(&self) -> Option<usize> {
        if let Some(folded) = &self.folded {
            return folded.description.stored_size();
        }
        match self.stored.len() {
            0 => postcard::experimental::serialized_size(&self.to_store()).ok(),
            size => Some(size),
        }
    }

    /// Writes the stored form. Returns its size. Returns `None` if there is no room for it.
    fn store_in(&self, room: &mut [u8]) -> Option<usize> {
        if let Some(folded) = &self.folded {
            return folded.description.store_in(room);
        }
        if self.stored.is_empty() {
            let written = postcard::to_slice(&self.to_store(), room).ok()?;
            return Some(written.len());
        }
        room.get_mut(..self.stored.len())?.copy_from_slice(&self.stored);
        Some(self.stored.len())
    }

    /// Returns what is stored.
    fn to_store(&self) -> (Summary, &PlanDescription) {
        let description = self.decoded();
        let summary = Summary {
            names: self.summary.names.filter(|_| description.stores_constants()),
            ..self.summary
        };
        (summary, description)
    }

    /// Returns a short form, as [`PlanDescription::outline`] does.
    pub fn outline(&self) -> Self {
        if let Some(folded) = &self.folded {
            return LazyDescription::unfolded(
                Rc::new(folded.description.outline()),
                folded.unfolding.clone(),
                self.costs.clone(),
                self.extents.clone(),
                folded.name_of,
                folded.decoded_bytes.clone(),
            );
        }
        LazyDescription::new(self.decoded().outline(), self.extents.clone())
    }

    /// Returns whether symbols replace the constants.
    #[inline(always)]
    pub fn is_normalised(&self) -> bool {
        self.summary.constants.is_some()
    }

    /// Returns whether at least one text was cut.
    pub fn is_truncated(&self) -> bool {
        self.summary.is_truncated
    }

    /// Returns whether the description is right for all executions with these names of relations and columns
    /// ([`ExplainedPlan::names`](crate::plan::ExplainedPlan::names)).
    pub fn has_names(&self, names: u64) -> bool {
        self.is_normalised() && self.summary.names == Some(names)
    }

    /// Returns whether symbols replace these constants, in a text with the same words.
    pub fn has_constants(&self, constants: &Constants) -> bool {
        self.summary.constants == Some(constants.fingerprint())
    }

    /// Returns the number of nodes.
    pub fn nodes(&self) -> usize {
        self.summary.nodes
    }

    /// Returns whether the node with this index may be stopped before its last row.
    #[inline]
    pub fn may_stop_early(&self, index: usize) -> bool {
        if index < MAX_UNDECODED {
            return self.summary.may_stop_early >> index & 1 != 0;
        }
        if let Some(folded) = &self.folded {
            return folded.description.may_stop_early(folded.unfolding.fold.of(index));
        }
        let node = self.decoded().nodes.get(index);
        node.is_none_or(|node| node.may_stop_early)
    }

    /// Returns how many bytes it takes. One that is stored or unfolded grows when it is decoded, which does
    /// not count here.
    pub fn size(&self) -> usize {
        let description = match (&self.folded, self.stored.len()) {
            (Some(folded), _) => {
                // All sets of partitions share the folded description.
                folded.unfolding.size()
            }
            (None, 0) => self.decoded().size(),
            (None, size) => size,
        };
        size_of::<Self>() + description + size_of_val(&*self.extents) + size_of_val(&*self.costs)
    }
}

/// Decodes a stored form. Also returns the bytes that follow it.
fn decode(stored: &[u8]) -> Option<(PlanDescription, &[u8])> {
    let (summary, rest) = postcard::take_from_bytes::<Summary>(stored).ok()?;
    let (mut description, rest) = postcard::take_from_bytes::<PlanDescription>(rest).ok()?;
    description.ids = summary.ids;
    Some((description, rest))
}

fn set_costs(nodes: &mut [PlanNode], costs: impl Iterator<Item = Costs>) {
    for (node, costs) in nodes.iter_mut().zip(costs) {
        node.set_costs(costs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::sample;
    use crate::normalise::Text;
    use crate::plan::parse_explain_json;

    fn constants(text: &str) -> Constants {
        let text = Text {
            bytes: text.as_bytes(),
            backslashes: false,
        };
        Constants::literals(text).expect("constants")
    }

    /// Returns a normalised description of a scan, whose text has these constants.
    fn normalised(names: Option<u64>, text: &str) -> LazyDescription {
        let json = r#"{"Plan": {"Node Type": "Seq Scan", "Relation Name": "t", "Filter": "(a > $1)"}}"#;
        let mut explained = parse_explain_json(json).expect("a plan");
        explained.names = names;
        let shown = "SELECT a FROM t WHERE a > $1".to_owned();
        let description = PlanDescription::normalised(shown, false, explained, constants(text));
        LazyDescription::new(description, vec![Extent::Unknown])
    }

    fn read(stored: Vec<u8>) -> LazyDescription {
        LazyDescription::from_stored(stored).expect("a description")
    }

    #[test]
    fn a_stored_description_knows_what_an_execution_needs_and_is_decoded_to_the_same() {
        let made = normalised(Some(7), "SELECT a FROM t WHERE a > 5");
        let read = read(made.stored().expect("memory"));
        assert!(read.decoded.get().is_none());
        assert!(read.has_names(7) && !read.has_names(8) && read.is_normalised() && !read.is_truncated());
        assert!(read.has_constants(&constants("SELECT a FROM t WHERE a > 7")));
        for other in [
            "DECLARE c CURSOR FOR SELECT a FROM t WHERE a > 7",
            "SELECT a FROM t WHERE b > 7",
        ] {
            assert!(!read.has_constants(&constants(other)), "{other}");
        }
        assert_eq!(
            (read.nodes(), read.may_stop_early(0)),
            (1, made.may_stop_early(0))
        );
        assert!(read.decoded.get().is_none());
        assert_eq!(
            (read.text(), made.text()),
            (&*made.decoded().text, &*made.decoded().text)
        );
        assert!(read.decoded.get().is_none());
        assert_eq!(read.decoded().text, made.decoded().text);
        assert_eq!(read.decoded().nodes, made.decoded().nodes);
        let text = Text {
            bytes: b"SELECT a FROM t WHERE a > 815",
            backslashes: false,
        };
        let utf8 = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let literal = read.decoded().with_literals(text, utf8);
        assert_eq!(literal.nodes[0].predicates[0].1, "(a > 815)");
    }

    #[test]
    fn a_stored_form_is_passed_on_as_it_is() {
        let made = normalised(Some(7), "SELECT a FROM t WHERE a > 5");
        let stored = made.stored().expect("memory");
        let read = read(stored.clone());
        let mut room = vec![0; stored.len() + 3];
        assert_eq!(read.store_in(&mut room), Some(stored.len()));
        assert_eq!(room[..stored.len()], stored[..]);
        assert_eq!(read.stored(), Some(stored.clone()));
        assert_eq!(read.store_in(&mut room[..stored.len() - 1]), None);
        assert_eq!(made.store_in(&mut room[..stored.len() - 1]), None);
        let decoded = LazyDescription::decode(&stored).expect("a description");
        assert_eq!(decoded.text, made.decoded().text);
    }

    #[test]
    fn a_description_has_the_costs_of_the_sessions_planning() {
        let costs = |rows| Costs {
            startup_cost: 1.0,
            total_cost: 2.0,
            plan_rows: rows,
            plan_width: 4.0,
        };
        let made = normalised(Some(7), "SELECT a FROM t WHERE a > 5");
        let other = read(made.stored().expect("memory"));
        let other = other.planned([costs(815.0)].into_iter(), vec![Extent::ConstantLimit]);
        let mut room = vec![0; other.published_size().expect("a size")];
        assert_eq!(other.publish(&mut room), Some(room.len()));
        let published = LazyDescription::published(&room, |_| None).expect("a description");
        assert_eq!(published.extents, [Extent::ConstantLimit]);
        for nodes in [&published.description.nodes, &other.decoded().nodes] {
            assert_eq!((nodes[0].plan_rows, nodes[0].total_cost), (815.0, 2.0));
        }
        // So do plans of many nodes.
        let node = made.decoded().nodes[0].clone();
        let explained = ExplainedPlan {
            nodes: vec![node; 100],
            ..ExplainedPlan::default()
        };
        let many = PlanDescription::new(b"", String::new(), false, explained);
        let many = read(LazyDescription::new(many, Vec::new()).stored().expect("memory"));
        let many = many.planned((0..100).map(|i| costs(f64::from(i))), Vec::new());
        assert_eq!(many.decoded().nodes[99].plan_rows, 99.0);
    }

    #[test]
    fn very_many_constants_are_not_stored() {
        let few = normalised(Some(7), &"1,".repeat(900));
        assert!(read(few.stored().expect("memory")).decoded().is_normalised());
        let many = normalised(Some(7), &"1,".repeat(2_000));
        let stored = many.stored().expect("memory");
        assert!(stored.len() < 500, "{}", stored.len());
        let read = read(stored);
        assert!(many.has_names(7) && !read.has_names(7) && !read.decoded().is_normalised());
    }

    #[test]
    fn plans_of_many_nodes_know_which_may_stop_early() {
        let mut nodes = Vec::new();
        for i in 0..200 {
            let mut node = sample::plan(2).description.nodes[1].clone();
            node.may_stop_early = i % 3 == 0;
            nodes.push(node);
        }
        let explained = ExplainedPlan {
            nodes,
            ..ExplainedPlan::default()
        };
        let description = PlanDescription::new(b"", String::new(), false, explained);
        let read = read(
            LazyDescription::new(description, Vec::new())
                .stored()
                .expect("memory"),
        );
        for i in 0..200 {
            assert_eq!(read.may_stop_early(i), i % 3 == 0, "{i}");
        }
    }

    #[test]
    fn a_damaged_form_is_refused_or_empty() {
        let stored = normalised(Some(7), "SELECT 1").stored().expect("memory");
        assert!(LazyDescription::from_stored(Vec::new()).is_none());
        let cut = read(stored[..stored.len() - 5].to_vec());
        assert_eq!(cut.text(), "SELECT a FROM t WHERE a > $1");
        assert!(cut.decoded().nodes.is_empty());
    }
}
