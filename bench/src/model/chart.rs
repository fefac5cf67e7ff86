//! Bar charts of the report.

use super::spread::Spread;
use serde::{Deserialize, Serialize};

/// A chart has groups of bars. Each series has one bar in each group.
#[derive(Serialize, Deserialize)]
pub struct BarChart {
    /// The file name without ".svg".
    pub name: String,
    pub title: String,
    pub axis: String,
    pub logarithmic: bool,
    pub groups: Vec<String>,
    pub series: Vec<BarSeries>,
}

#[derive(Serialize, Deserialize)]
pub struct BarSeries {
    pub name: String,
    /// One value for each group. A group without a value has no bar.
    pub values: Vec<Option<Spread>>,
}

impl BarSeries {
    /// Makes a series for each variant but the first. The first is the base of the ratios; `groups` hold the
    /// ratios of all variants.
    pub fn except_base(names: &[String], groups: &[Vec<Spread>]) -> Vec<BarSeries> {
        let others = names.iter().enumerate().skip(1);
        others
            .map(|(at, name)| BarSeries {
                name: name.clone(),
                values: groups.iter().map(|ratios| Some(ratios[at])).collect(),
            })
            .collect()
    }
}
