//! Curves of a figure, over one axis.

/// A figure: curves over the same places.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Its name in files: `4.1`.
    pub number: String,
    /// Its title.
    pub title: String,
    /// The label of the horizontal axis.
    pub x_label: String,
    /// The label of the vertical axis.
    pub y_label: String,
    /// The curves.
    pub curves: Vec<Curve>,
}

/// One curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// The curve's name.
    pub name: String,
    /// Places and values.
    pub points: Vec<(f64, f64)>,
}

impl Curve {
    /// Of a function at these places.
    pub fn of(name: &str, places: &[f64], value: impl Fn(f64) -> f64) -> Curve {
        Curve { name: name.to_owned(), points: places.iter().map(|&x| (x, value(x))).collect() }
    }

    /// The value at a place of it.
    pub fn at(&self, x: f64) -> Option<f64> {
        self.points.iter().find(|(place, _)| *place == x).map(|(_, y)| *y)
    }
}

impl Figure {
    /// A line a place, a column a curve.
    pub fn to_csv(&self) -> String {
        let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
        let head: Vec<String> = std::iter::once(self.x_label.as_str())
            .chain(self.curves.iter().map(|curve| curve.name.as_str()))
            .map(quoted)
            .collect();
        let mut text = head.join(",") + "\n";
        let places = self.curves.first().map_or(&[][..], |curve| &curve.points);
        for (at, (x, _)) in places.iter().enumerate() {
            let values =
                self.curves.iter().map(|c| c.points.get(at).map_or(String::new(), |p| format!("{:.4}", p.1)));
            let line: Vec<String> = std::iter::once(format!("{x}")).chain(values).collect();
            text += &(line.join(",") + "\n");
        }
        text
    }

    /// A curve by its name.
    pub fn curve(&self, name: &str) -> Option<&Curve> {
        self.curves.iter().find(|curve| curve.name == name)
    }
}

/// So many places from one to another, both included.
pub fn places(from: f64, to: f64, count: u32) -> Vec<f64> {
    let step = (to - from) / f64::from(count.max(2) - 1);
    (0..count.max(2)).map(|at| from + step * f64::from(at)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_as_text_has_a_line_a_place_and_a_column_a_curve() {
        let places = places(1.0, 3.0, 3);
        assert_eq!(places, [1.0, 2.0, 3.0]);
        let curves =
            vec![Curve::of("twice", &places, |x| 2.0 * x), Curve::of("a \"half\"", &places, |x| x / 2.0)];
        let figure = Figure {
            number: "1".into(),
            title: "t".into(),
            x_label: "clients".into(),
            y_label: "y".into(),
            curves,
        };
        assert_eq!(
            figure.to_csv(),
            "\"clients\",\"twice\",\"a \"\"half\"\"\"\n1,2.0000,0.5000\n2,4.0000,1.0000\n3,6.0000,1.5000\n"
        );
        assert_eq!(figure.curve("twice").and_then(|c| c.at(3.0)), Some(6.0));
    }
}
