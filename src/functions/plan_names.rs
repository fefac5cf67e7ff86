//! The names that a plan gives to the samples of its nodes.

use crate::pg::server::memory;
use rowsource_core::lists;
use rowsource_core::model::PlanDescription;
use std::rc::Rc;

/// What is shown of a plan.
pub(super) struct Names {
    pub text: Rc<str>,
    pub nodes: Vec<NodeNames>,
}

/// What is shown of a node.
pub(super) struct NodeNames {
    pub operation: Rc<str>,
    pub object: Option<Rc<str>>,
    /// The table that it works on, or whose index it searches.
    pub relation: Option<Rc<str>>,
}

impl Names {
    pub fn of(description: &PlanDescription) -> Names {
        let mut nodes = memory::with_room(description.nodes.len());
        let all = description.nodes.iter().enumerate();
        nodes.extend(all.map(|(i, node)| NodeNames {
            operation: Rc::from(node.operation.as_str()),
            object: node.object_name.as_deref().map(Rc::from),
            relation: lists::relation(&description.nodes, i),
        }));
        Names {
            text: description.text.as_str().into(),
            nodes,
        }
    }
}
