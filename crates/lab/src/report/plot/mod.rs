//! Plots as SVG: lines, steps, areas, points and bars over linear or logarithmic axes.
//!
//! Colours are CSS classes, so that a page can show the same plot light and dark.

mod scale;

pub use scale::{Axis, Scale};

use scale::Fitted;
use std::fmt::Write;

/// Something drawn in a plot.
#[derive(Clone, Debug)]
pub struct Layer {
    /// Its name in the legend; empty for none.
    pub name: String,
    /// Its colour: one of [`COLOURS`], counted from 0 and round again.
    pub colour: usize,
    /// The form in which it is drawn.
    pub shape: Shape,
    /// Its points; a NaN interrupts a line.
    pub points: Vec<(f64, f64)>,
}

/// The form in which a layer is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// A line through the points.
    Line,
    /// A dashed line through the points.
    Dashed,
    /// Filled down to the axis, pale, so that it can lie behind the other layers.
    Area,
    /// A dot at each point. Its name and numbers appear under the pointer.
    Dots,
    /// A small dot at each point of a line.
    Points,
    /// Pairs of points, the lower before the upper: a confidence interval.
    Ranges,
    /// A bar at each point, from the axis up.
    Bars,
}

/// The number of colours of a page's style.
pub const COLOURS: usize = 8;

/// A plot.
#[derive(Clone, Debug)]
pub struct Plot {
    /// Title of the plot.
    pub title: String,
    /// The axis along the bottom.
    pub x: Axis,
    /// The axis along the left.
    pub y: Axis,
    /// The layers, the last on top.
    pub layers: Vec<Layer>,
    /// Values of x at which something happened: thin lines from top to bottom.
    pub marks: Vec<f64>,
    /// Names in place of numbers along x, for bars at 0, 1, 2, ….
    pub categories: Vec<String>,
}

// In a box of 480 · 290 a label of 12 is read on a phone of 360 pixels as well.
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 290.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 44.0;

impl Plot {
    /// A plot with nothing in it.
    pub fn new(title: &str, x: Axis, y: Axis) -> Self {
        let (layers, marks, categories) = (Vec::new(), Vec::new(), Vec::new());
        Self { title: title.to_owned(), x, y, layers, marks, categories }
    }

    /// Adds a layer.
    pub fn add(&mut self, name: &str, colour: usize, shape: Shape, points: Vec<(f64, f64)>) {
        self.layers.push(Layer { name: name.to_owned(), colour, shape, points });
    }

    /// Whether there is anything to draw.
    pub fn has_points(&self) -> bool {
        self.points().next().is_some()
    }

    /// All points that can be drawn.
    fn points(&self) -> impl Iterator<Item = &(f64, f64)> {
        self.layers.iter().flat_map(|layer| &layer.points).filter(|(x, y)| x.is_finite() && y.is_finite())
    }

    /// The plot with title and legend, as HTML.
    pub fn to_html(&self) -> String {
        let mut html = format!("<figure><figcaption>{}</figcaption>", escape(&self.title));
        let named = self.layers.iter().filter(|layer| !layer.name.is_empty());
        let keys: String = named
            .map(|layer| {
                format!("<span><i class=\"key {}\"></i>{}</span>", class(layer), escape(&layer.name))
            })
            .collect();
        let _ = write!(html, "<div class=\"legend\">{keys}</div>{}</figure>", self.to_svg());
        html
    }

    /// The plot as a file of its own, with its title, its legend and the colours of a light page.
    pub fn to_file(&self) -> String {
        let named: Vec<&Layer> = self.layers.iter().filter(|layer| !layer.name.is_empty()).collect();
        let lines = named.len().div_ceil(2) as f64;
        let top = 30.0 + 18.0 * lines;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {}\" width=\"{WIDTH}\">\
             <style>{}</style><rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\
             <text x=\"10\" y=\"20\" class=\"title\">{}</text>",
            HEIGHT + top,
            include_str!("file.css"),
            escape(&self.title)
        );
        for (index, layer) in named.iter().enumerate() {
            let (x, y) = (12.0 + 230.0 * (index % 2) as f64, 40.0 + 18.0 * (index / 2) as f64);
            let class = class(layer);
            let _ = write!(
                svg,
                "<path class=\"{class} sample\" d=\"M{x} {y}h18\"/><text x=\"{}\" y=\"{}\">{}</text>",
                x + 24.0,
                y + 4.0,
                escape(&layer.name)
            );
        }
        let _ = write!(svg, "<g transform=\"translate(0 {top})\">{}</g></svg>", self.to_svg());
        svg
    }

    /// The plot without title and legend.
    pub fn to_svg(&self) -> String {
        let x = if self.categories.is_empty() {
            Fitted::new(&self.x, self.points().map(|(x, _)| *x))
        } else {
            let end = self.categories.len() as f64 - 0.5;
            Fitted::new(&self.x.clone().from(-0.5).to(end), std::iter::empty())
        };
        let frame = Frame { x, y: Fitted::new(&self.y, self.points().map(|(_, y)| *y)) };
        let label = escape(&self.title);
        let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{label}\">");
        frame.draw_grid(&mut svg, self);
        self.layers.iter().for_each(|layer| frame.draw(&mut svg, layer));
        for mark in &self.marks {
            let x = frame.px(*mark);
            let _ = write!(svg, "<path class=\"mark\" d=\"M{x:.1} {TOP}V{:.1}\"/>", HEIGHT - BOTTOM);
        }
        svg + "</svg>"
    }
}

struct Frame {
    x: Fitted,
    y: Fitted,
}

impl Frame {
    fn px(&self, x: f64) -> f64 {
        LEFT + self.x.position(x) * (WIDTH - LEFT - RIGHT)
    }

    fn py(&self, y: f64) -> f64 {
        HEIGHT - BOTTOM - self.y.position(y) * (HEIGHT - TOP - BOTTOM)
    }

    fn draw_grid(&self, svg: &mut String, plot: &Plot) {
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        for (value, name) in self.y.ticks() {
            let y = self.py(value);
            let _ = write!(svg, "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/>");
            let _ =
                write!(svg, "<text class=\"end\" x=\"{:.0}\" y=\"{:.1}\">{name}</text>", LEFT - 6.0, y + 4.0);
        }
        let ticks = if plot.categories.is_empty() {
            self.x.ticks()
        } else {
            plot.categories.iter().enumerate().map(|(i, name)| (i as f64, escape(name))).collect()
        };
        for (value, name) in ticks {
            let x = self.px(value);
            if plot.categories.is_empty() {
                let _ = write!(svg, "<path class=\"grid\" d=\"M{x:.1} {TOP}V{bottom}\"/>");
            }
            let _ = write!(svg, "<text class=\"mid\" x=\"{x:.1}\" y=\"{:.0}\">{name}</text>", bottom + 16.0);
        }
        let (x_label, y_label) = (escape(&plot.x.label), escape(&plot.y.label));
        let middle = (LEFT + right) / 2.0;
        let _ = write!(
            svg,
            "<text class=\"mid label\" x=\"{middle}\" y=\"{:.0}\">{x_label}</text>",
            HEIGHT - 8.0
        );
        let centre = (TOP + bottom) / 2.0;
        let _ = write!(
            svg,
            "<text class=\"mid label\" transform=\"translate(12 {centre}) rotate(-90)\">{y_label}</text>"
        );
    }

    fn draw(&self, svg: &mut String, layer: &Layer) {
        let class = class(layer);
        match layer.shape {
            Shape::Line | Shape::Dashed => {
                let _ = write!(svg, "<path class=\"{class}\" d=\"{}\"/>", self.way(&layer.points));
            }
            Shape::Area => {
                let (Some(first), Some(last)) = (layer.points.first(), layer.points.last()) else { return };
                let (bottom, way) = (HEIGHT - BOTTOM, self.way(&layer.points));
                let (from, to) = (self.px(first.0), self.px(last.0));
                let _ =
                    write!(svg, "<path class=\"{class}\" d=\"{way}L{to:.1} {bottom}L{from:.1} {bottom}Z\"/>");
            }
            Shape::Dots => {
                for (x, y) in &layer.points {
                    let (cx, cy) = (self.px(*x), self.py(*y));
                    let name = escape(&layer.name);
                    let _ = write!(
                        svg,
                        "<circle class=\"{class}\" cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"5\"><title>{name}: {x:.3}, {y:.3}</title></circle>"
                    );
                }
            }
            Shape::Points => {
                for (x, y) in layer.points.iter().filter(|(x, y)| x.is_finite() && y.is_finite()) {
                    let (cx, cy) = (self.px(*x), self.py(*y));
                    let _ =
                        write!(svg, "<circle class=\"{class}\" cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"2.5\"/>");
                }
            }
            Shape::Ranges => {
                for pair in layer.points.chunks_exact(2) {
                    let (x, low, high) = (self.px(pair[0].0), self.py(pair[0].1), self.py(pair[1].1));
                    let _ = write!(
                        svg,
                        "<path class=\"{class}\" d=\"M{x:.1} {low:.1}V{high:.1}m-3 0h6M{:.1} {low:.1}h6\"/>",
                        x - 3.0
                    );
                }
            }
            Shape::Bars => self.draw_bars(svg, layer, &class),
        }
    }

    fn draw_bars(&self, svg: &mut String, layer: &Layer, class: &str) {
        let half = (self.px(1.0) - self.px(0.0)).min(90.0) * 0.3;
        for (x, y) in &layer.points {
            let (left, top) = (self.px(*x) - half, self.py(*y));
            let (width, height) = (2.0 * half, HEIGHT - BOTTOM - top);
            let _ = write!(
                svg,
                "<rect class=\"{class}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
            );
            let _ = write!(
                svg,
                "<text class=\"mid\" x=\"{:.1}\" y=\"{:.1}\">{y:.2}</text>",
                left + half,
                top - 4.0
            );
        }
    }

    /// The points as a path; a missing value interrupts it.
    fn way(&self, points: &[(f64, f64)]) -> String {
        let mut way = String::new();
        let mut is_down = false;
        for (x, y) in points {
            if !y.is_finite() || !x.is_finite() {
                is_down = false;
                continue;
            }
            let command = if is_down { 'L' } else { 'M' };
            let _ = write!(way, "{command}{:.1} {:.1}", self.px(*x), self.py(*y));
            is_down = true;
        }
        way
    }
}

fn class(layer: &Layer) -> String {
    let shape = match layer.shape {
        Shape::Line => "line",
        Shape::Dashed => "line dashed",
        Shape::Area => "area",
        Shape::Dots | Shape::Points => "dot",
        Shape::Ranges => "range",
        Shape::Bars => "bar",
    };
    format!("{shape} c{}", layer.colour % COLOURS)
}

/// Text that is safe within HTML and SVG.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_in_the_data_is_a_gap_in_the_line() {
        let mut plot = Plot::new("t", Axis::linear("x"), Axis::linear("y"));
        plot.add("a", 0, Shape::Line, vec![(0.0, 1.0), (1.0, 2.0), (2.0, f64::NAN), (3.0, 1.0), (4.0, 2.0)]);
        let svg = plot.to_svg();
        let line = svg.split("class=\"line c0\" d=\"").nth(1).and_then(|rest| rest.split('"').next());
        assert_eq!(line.map(|line| line.matches('M').count()), Some(2), "{svg}");
        assert!(!svg.contains("NaN"));
    }

    #[test]
    fn names_cannot_break_the_page() {
        let mut plot = Plot::new("<script>", Axis::linear("x"), Axis::linear("y"));
        plot.add("a\"><b>", 0, Shape::Dots, vec![(0.0, 1.0)]);
        let html = plot.to_html();
        assert!(!html.contains("<script>") && !html.contains("<b>"), "{html}");
    }

    #[test]
    fn a_plot_of_nothing_is_still_a_plot() {
        let plot = Plot::new("t", Axis::log("x"), Axis::linear("y"));
        assert!(plot.to_svg().ends_with("</svg>"));
    }
}
