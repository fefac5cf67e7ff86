//! What EXPLAIN says of a node besides its name, its conditions and its keys.

use super::properties::{Properties, TextLimiter, each_item};
use serde::{Deserialize, Serialize};

/// Which of EXPLAIN's properties names a node's object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ObjectKind {
    /// None, or it is not known.
    #[default]
    Unknown,
    /// `Index Name`.
    Index,
    /// `Relation Name`.
    Relation,
    /// `Function Name`.
    Function,
    /// `Table Function Name`.
    TableFunction,
    /// `CTE Name`.
    Cte,
    /// `Tuplestore Name`.
    Tuplestore,
    /// `Relations`: a foreign scan names what it joins.
    Relations,
    /// `Alias` alone.
    Alias,
}

impl ObjectKind {
    /// All kinds that have a property. If a node has several of them, the first counts: an index scan shows
    /// its index, as in Oracle, even if it also names its table.
    const ALL: [ObjectKind; 8] = [
        ObjectKind::Index,
        ObjectKind::Relation,
        ObjectKind::Function,
        ObjectKind::TableFunction,
        ObjectKind::Cte,
        ObjectKind::Tuplestore,
        ObjectKind::Relations,
        ObjectKind::Alias,
    ];

    /// Returns EXPLAIN's label of the property.
    pub fn label(self) -> &'static str {
        match self {
            ObjectKind::Unknown => "",
            ObjectKind::Index => "Index Name",
            ObjectKind::Relation => "Relation Name",
            ObjectKind::Function => "Function Name",
            ObjectKind::TableFunction => "Table Function Name",
            ObjectKind::Cte => "CTE Name",
            ObjectKind::Tuplestore => "Tuplestore Name",
            ObjectKind::Relations => "Relations",
            ObjectKind::Alias => "Alias",
        }
    }

    /// Returns which property names the node's object.
    pub(super) fn of(json: &Properties) -> Self {
        let mut all = Self::ALL.into_iter();
        all.find(|kind| json.raw(kind.label()).is_some())
            .unwrap_or_default()
    }

    /// Returns which property names what the node's alias stands for.
    pub(super) fn of_alias(json: &Properties) -> Self {
        let mut all = Self::ALL.into_iter().skip(1);
        all.find(|kind| json.raw(kind.label()).is_some())
            .unwrap_or_default()
    }
}

/// How a parent uses a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Relationship {
    /// The node is the root, or it is not known.
    #[default]
    Unknown,
    /// Its first input.
    Outer,
    /// Its second input.
    Inner,
    /// One of a list of inputs.
    Member,
    /// The subquery that it scans.
    Subquery,
    /// It runs before its parent, or when its parent needs the result first.
    InitPlan,
    /// An expression runs it.
    SubPlan,
    /// An input of a custom scan.
    Child,
}

impl Relationship {
    const ALL: [Relationship; 7] = [
        Relationship::Outer,
        Relationship::Inner,
        Relationship::Member,
        Relationship::Subquery,
        Relationship::InitPlan,
        Relationship::SubPlan,
        Relationship::Child,
    ];

    /// Returns EXPLAIN's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Relationship::Unknown => "",
            Relationship::Outer => "Outer",
            Relationship::Inner => "Inner",
            Relationship::Member => "Member",
            Relationship::Subquery => "Subquery",
            Relationship::InitPlan => "InitPlan",
            Relationship::SubPlan => "SubPlan",
            Relationship::Child => "child",
        }
    }

    pub(super) fn of(json: &Properties) -> Self {
        let name = json.keyword("Parent Relationship").unwrap_or_default();
        let mut all = Self::ALL.into_iter();
        all.find(|relationship| relationship.name() == name)
            .unwrap_or_default()
    }
}

/// A property that few nodes have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Attribute {
    /// A join whose inner side has at most one match. It has no text.
    InnerUnique,
    /// A Gather with one worker that does all of the work. It has no text.
    SingleCopy,
    /// The planner was told not to use such nodes (PostgreSQL 18). It has no text.
    Disabled,
    /// An index scan whose order is that of a distance (before PostgreSQL 16, EXPLAIN shows that). It has no
    /// text.
    NoMovement,
    /// How a sample scan chooses its rows.
    SamplingMethod,
    /// An argument of that; there may be several.
    SamplingParameter,
    /// The seed of that.
    RepeatableSeed,
    /// How Memoize compares its keys.
    CacheMode,
    /// A parameter that a Gather passes to its workers (before PostgreSQL 18); there may be several.
    ParamEvaluated,
    /// The definition of a window (PostgreSQL 18).
    Window,
    /// What ON CONFLICT does.
    ConflictResolution,
    /// An index that finds conflicts; there may be several.
    ConflictArbiterIndex,
    /// A table that is changed, if it is not the one that the statement names; there may be several.
    TargetTable,
    /// The alias of the target table before it.
    TargetAlias,
    /// What a Result stands for (PostgreSQL 19).
    Replaces,
    /// How many entries the planner expected a Memoize to have room for (PostgreSQL 19).
    EstimatedCapacity,
    /// How many different keys it expected.
    EstimatedKeys,
    /// How often it expected a key to be looked up.
    EstimatedLookups,
    /// How many percent of that it expected to be found.
    EstimatedHits,
}

/// The attributes that are true or false.
const FLAGS: [(&str, Attribute); 3] = [
    ("Inner Unique", Attribute::InnerUnique),
    ("Single Copy", Attribute::SingleCopy),
    ("Disabled", Attribute::Disabled),
];

/// The attributes that are texts without expressions.
const TEXTS: [(&str, Attribute); 4] = [
    ("Sampling Method", Attribute::SamplingMethod),
    ("Cache Mode", Attribute::CacheMode),
    ("Conflict Resolution", Attribute::ConflictResolution),
    ("Replaces", Attribute::Replaces),
];

/// The attributes that are numbers.
const NUMBERS: [(&str, Attribute); 4] = [
    ("Estimated Capacity", Attribute::EstimatedCapacity),
    ("Estimated Distinct Lookup Keys", Attribute::EstimatedKeys),
    ("Estimated Lookups", Attribute::EstimatedLookups),
    ("Estimated Hit Percent", Attribute::EstimatedHits),
];

/// The attributes that are expressions, which may have constants.
const EXPRESSIONS: [(&str, Attribute); 2] = [
    ("Repeatable Seed", Attribute::RepeatableSeed),
    ("Window", Attribute::Window),
];

/// The attributes that are lists.
const LISTS: [(&str, Attribute); 3] = [
    ("Sampling Parameters", Attribute::SamplingParameter),
    ("Params Evaluated", Attribute::ParamEvaluated),
    ("Conflict Arbiter Indexes", Attribute::ConflictArbiterIndex),
];

impl Attribute {
    /// Returns whether the text is an expression, which may have constants.
    pub(super) fn is_expression(self) -> bool {
        matches!(
            self,
            Attribute::SamplingParameter | Attribute::RepeatableSeed | Attribute::Window
        )
    }
}

/// Returns the attributes of a node. Flags that are false are left out.
pub(super) fn attributes(json: &Properties, texts: &mut TextLimiter) -> Vec<(Attribute, String)> {
    let mut found = Vec::new();
    for (label, attribute) in FLAGS {
        if json.is_true(label) {
            found.push((attribute, String::new()));
        }
    }
    if json.keyword("Scan Direction") == Some("NoMovement") {
        found.push((Attribute::NoMovement, String::new()));
    }
    for (label, attribute) in TEXTS {
        found.extend(json.name(label, texts).map(|text| (attribute, text)));
    }
    for (label, attribute) in NUMBERS {
        let number = json.raw(label).filter(|raw| raw.parse::<f64>().is_ok());
        found.extend(number.map(|number| (attribute, number.to_owned())));
    }
    for (label, attribute) in EXPRESSIONS {
        let text = json.raw(label).and_then(|raw| texts.condition(raw));
        found.extend(text.map(|text| (attribute, text)));
    }
    for (label, attribute) in LISTS {
        each_of(json, label, |raw| {
            let text = match attribute.is_expression() {
                true => texts.condition(raw),
                false => texts.within_plan(raw),
            };
            found.extend(text.map(|text| (attribute, text)));
        });
    }
    each_of(json, "Target Tables", |raw| {
        let Some(table) = Properties::of(raw) else {
            return;
        };
        for (label, attribute) in [
            ("Relation Name", Attribute::TargetTable),
            ("Alias", Attribute::TargetAlias),
        ] {
            let text = table.raw(label).and_then(|raw| texts.within_plan(raw));
            found.extend(text.map(|text| (attribute, text)));
        }
    });
    found
}

/// Visits the items of a property that is a list.
fn each_of(json: &Properties, label: &str, visit: impl FnMut(&str)) {
    let list = json.raw(label).filter(|list| list.starts_with('['));
    let _ = each_item(list.unwrap_or("[]"), visit);
}
