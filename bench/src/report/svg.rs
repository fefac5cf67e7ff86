//! Bar charts of ratios as SVG. Bars begin at 1, where nothing is gained or lost.

use crate::model::chart::BarChart;
use crate::model::spread::Spread;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use std::fmt::Debug;

const HEIGHT: u32 = 420;
/// The width at the left of the bars, in pixels.
const LEFT: u32 = 90;
/// The smallest width of a group of bars, in pixels.
const GROUP: u32 = 90;
/// The smallest width of all groups, in pixels.
const GROUPS: u32 = 560;
/// The width of the legend, in pixels.
const LEGEND: u32 = 260;
/// The share of a group's width that its bars fill.
const FILLED: f64 = 0.8;
/// The value at which bars begin.
const BASE: f64 = 1.0;
/// The share of the bars' height that stays free above and below them.
const FREE: f64 = 0.05;
const COLOURS: [RGBColor; 12] = [
    RGBColor(31, 119, 180),
    RGBColor(255, 127, 14),
    RGBColor(44, 160, 44),
    RGBColor(214, 39, 40),
    RGBColor(148, 103, 189),
    RGBColor(140, 86, 75),
    RGBColor(227, 119, 194),
    RGBColor(127, 127, 127),
    RGBColor(188, 189, 34),
    RGBColor(23, 190, 207),
    RGBColor(174, 199, 232),
    RGBColor(255, 187, 120),
];

/// Draws the chart and returns the text of an SVG file.
pub fn draw(chart: &BarChart) -> Result<String, String> {
    let mut text = String::new();
    draw_into(chart, &mut text).map_err(|error| format!("{}: {error}", chart.name))?;
    Ok(text)
}

fn draw_into(bars: &BarChart, text: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let all = || {
        bars.series
            .iter()
            .flat_map(|series| series.values.iter().flatten())
    };
    let highest = all().map(|value| value.high).fold(BASE, f64::max);
    let lowest = all().map(|value| value.low).fold(BASE, f64::min);
    let group = (GROUPS / bars.groups.len().max(1) as u32).max(GROUP);
    let groups = group * bars.groups.len() as u32;
    let area = SVGBackend::with_string(text, (LEFT + groups + LEGEND, HEIGHT)).into_drawing_area();
    area.fill(&WHITE)?;
    // The legend stands at the right of the bars.
    let right = bars.groups.len() as f64 - 0.5 + f64::from(LEGEND) / f64::from(group);
    let across = -0.5..right;
    let mut chart = ChartBuilder::on(&area);
    chart
        .caption(&bars.title, ("sans-serif", 17))
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(64);
    if bars.logarithmic {
        let free = (highest / lowest).powf(FREE);
        let up = (lowest.max(0.01) / free..highest * free).log_scale();
        fill(bars, chart.build_cartesian_2d(across, up)?)?;
    } else {
        let free = (highest - lowest) * FREE;
        fill(
            bars,
            chart.build_cartesian_2d(across, lowest - free..highest + free)?,
        )?;
    }
    area.present()?;
    Ok(())
}

fn fill<'a, Y>(
    bars: &BarChart,
    mut chart: ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, Y>>,
) -> Result<(), Box<dyn std::error::Error>>
where
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y::ValueType: Debug,
{
    let name_of = |place: &f64| {
        let nearest = place.round();
        if (place - nearest).abs() > 0.01 || nearest < 0.0 {
            return String::new();
        }
        bars.groups.get(nearest as usize).cloned().unwrap_or_default()
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(4 * bars.groups.len() + 8)
        .light_line_style(WHITE)
        .x_label_formatter(&name_of)
        .y_desc(&bars.axis)
        .label_style(("sans-serif", 12))
        .draw()?;
    let wide = FILLED / bars.series.len() as f64;
    for (at, series) in bars.series.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        let left = |group: usize| group as f64 - FILLED / 2.0 + wide * at as f64;
        let values = || {
            series
                .values
                .iter()
                .enumerate()
                .filter_map(|(group, value)| value.map(|value: Spread| (group, value)))
        };
        chart
            .draw_series(values().map(|(group, value)| {
                Rectangle::new(
                    [(left(group), BASE), (left(group) + wide * 0.92, value.median)],
                    colour.mix(0.8).filled(),
                )
            }))?
            .label(&series.name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 10, y + 5)], colour.filled()));
        chart.draw_series(
            values()
                .filter(|(_, value)| value.high > value.low)
                .map(|(group, value)| {
                    let middle = left(group) + wide * 0.46;
                    PathElement::new(vec![(middle, value.low), (middle, value.high)], BLACK)
                }),
        )?;
    }
    let right = bars.groups.len() as f64 - 0.5;
    chart.draw_series(std::iter::once(PathElement::new(
        vec![(-0.5, BASE), (right, BASE)],
        BLACK,
    )))?;
    if bars.series.len() > 1 {
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .label_font(("sans-serif", 12))
            .draw()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::chart::BarSeries;

    #[test]
    fn every_bar_is_drawn() {
        for logarithmic in [false, true] {
            let value = |median: f64| {
                Some(Spread {
                    median,
                    low: median * 0.9,
                    high: median * 1.1,
                })
            };
            let text = draw(&BarChart {
                name: "test".to_string(),
                title: "A title".to_string(),
                axis: "ratio".to_string(),
                logarithmic,
                groups: vec!["first group".to_string(), "second".to_string()],
                series: vec![
                    BarSeries {
                        name: "first series".to_string(),
                        values: vec![value(1.04), value(1.2)],
                    },
                    BarSeries {
                        name: "second series".to_string(),
                        values: vec![value(11.0), None],
                    },
                ],
            })
            .unwrap();
            for words in [
                "A title",
                "first group",
                "second",
                "first series",
                "second series",
            ] {
                assert!(text.contains(words), "{words}");
            }
            let bars = |colour: &str| {
                text.matches(&format!("fill=\"{colour}\" stroke=\"none\""))
                    .count()
            };
            // The legend has one more of each colour.
            assert_eq!((bars("#1F77B4"), bars("#FF7F0E")), (3, 2), "{text}");
        }
    }
}
