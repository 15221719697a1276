//! Compares a simulated machine with the real machine: the errors by cell, and the decision whether the
//! simulator is accurate enough.
//!
//! A *cell* is one phase on one cluster (module, servers, clients): real rates of several repetitions, and
//! the rate that was simulated. It is *within* if the simulated rate differs from the real median by no more
//! than 40 %, or lies between the least and the most that were measured. The validation passes if the median
//! error is at most 25 % and nine of ten cells are within.

use serde::{Deserialize, Serialize};
use shoal_model::{Curve, Figure};

use crate::spread::Spread;
use shoal_model::short;

/// The median error that is accepted, and the error of a cell that is.
pub const MEDIAN_ERROR_MAX: f64 = 0.25;
/// See [`MEDIAN_ERROR_MAX`].
pub const CELL_ERROR_MAX: f64 = 0.40;
/// The share of cells that must be within.
pub const SHARE_WITHIN_MIN: f64 = 0.90;

/// One cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The operation.
    pub phase: String,
    /// Where servers keep their data.
    pub module: String,
    /// Servers.
    pub servers: u16,
    /// Clients.
    pub clients: u16,
    /// Real rates, a second.
    pub real_per_s: Spread,
    /// The simulated one.
    pub simulated_per_s: f64,
}

impl Cell {
    /// How far the simulated rate is from the real median, as a part of this.
    pub fn error(&self) -> f64 {
        self.simulated_per_s / self.real_per_s.median - 1.0
    }

    /// Whether it is near enough.
    pub fn is_within(&self) -> bool {
        let real = &self.real_per_s;
        self.error().abs() <= CELL_ERROR_MAX || (real.min..=real.max).contains(&self.simulated_per_s)
    }
}

/// All cells.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Validation {
    /// The cells.
    pub cells: Vec<Cell>,
}

impl Validation {
    /// The middle one of the errors, without their signs.
    pub fn median_error(&self) -> Option<f64> {
        let errors: Vec<f64> = self.cells.iter().map(|cell| cell.error().abs()).collect();
        Spread::of(&errors).map(|spread| spread.median)
    }

    /// The share of cells within.
    pub fn share_within(&self) -> f64 {
        let within = self.cells.iter().filter(|cell| cell.is_within()).count();
        within as f64 / self.cells.len().max(1) as f64
    }

    /// Whether the simulator is accurate enough.
    pub fn passes(&self) -> bool {
        self.median_error().is_some_and(|error| error <= MEDIAN_ERROR_MAX)
            && self.share_within() >= SHARE_WITHIN_MIN
    }

    /// The verdict in a line.
    pub fn verdict(&self) -> String {
        format!(
            "{} cells: median error {:.0} % (at most {:.0}), {:.0} % of the cells within {:.0} % or between the real least and most (at least {:.0})",
            self.cells.len(),
            self.median_error().unwrap_or(f64::NAN) * 100.0,
            MEDIAN_ERROR_MAX * 100.0,
            self.share_within() * 100.0,
            CELL_ERROR_MAX * 100.0,
            SHARE_WITHIN_MIN * 100.0
        )
    }

    /// One phase alone.
    pub fn of_phase(&self, phase: &str) -> Validation {
        Validation { cells: self.cells.iter().filter(|cell| cell.phase == phase).cloned().collect() }
    }

    /// The phases, in their order.
    pub fn phases(&self) -> Vec<&str> {
        let mut all: Vec<&str> = Vec::new();
        for cell in &self.cells {
            if !all.contains(&cell.phase.as_str()) {
                all.push(&cell.phase);
            }
        }
        all
    }

    /// A line a cell.
    pub fn to_csv(&self) -> String {
        let mut text = String::from(
            "phase,module,servers,clients,real_median_per_s,real_min_per_s,real_max_per_s,simulated_per_s,error_percent,within\n",
        );
        for cell in &self.cells {
            let Cell { phase, module, servers, clients, real_per_s: real, simulated_per_s } = cell;
            text += &format!(
                "{phase},{module},{servers},{clients},{:.1},{:.1},{:.1},{simulated_per_s:.1},{:.1},{}\n",
                real.median,
                real.min,
                real.max,
                cell.error() * 100.0,
                cell.is_within()
            );
        }
        text
    }

    /// Table for docs and terminals: real, simulated, error.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let row = |cell: &Cell| {
            vec![
                cell.phase.clone(),
                cell.module.clone(),
                cell.servers.to_string(),
                cell.clients.to_string(),
                short(cell.real_per_s.median),
                format!("{}–{}", short(cell.real_per_s.min), short(cell.real_per_s.max)),
                short(cell.simulated_per_s),
                format!("{:+.0} %", cell.error() * 100.0),
                if cell.is_within() { "" } else { "out" }.to_owned(),
            ]
        };
        self.cells.iter().map(row).collect()
    }

    /// Simulated, least and most as percent of the real median, cell by cell.
    pub fn figure(&self) -> Figure {
        let curve = |name: &str, of: &dyn Fn(&Cell) -> f64| Curve {
            name: name.to_owned(),
            points: self.cells.iter().enumerate().map(|(at, cell)| (at as f64 + 1.0, of(cell))).collect(),
        };
        let percent = |of: f64, cell: &Cell| of / cell.real_per_s.median * 100.0;
        Figure {
            number: "validation".to_owned(),
            title: "simulated beside real, of the real median".to_owned(),
            x_label: "cell (see the table)".to_owned(),
            y_label: "percent".to_owned(),
            curves: vec![
                curve("real, least", &|cell| percent(cell.real_per_s.min, cell)),
                curve("real, most", &|cell| percent(cell.real_per_s.max, cell)),
                curve("simulated", &|cell| percent(cell.simulated_per_s, cell)),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(real: [f64; 3], simulated_per_s: f64) -> Cell {
        let [min, median, max] = real;
        Cell {
            phase: "stat".into(),
            module: "memory".into(),
            servers: 1,
            clients: 4,
            real_per_s: Spread { median, min, max },
            simulated_per_s,
        }
    }

    #[test]
    fn a_cell_is_within_by_its_error_or_by_what_was_measured() {
        assert!(cell([90.0, 100.0, 110.0], 61.0).is_within());
        assert!(!cell([90.0, 100.0, 110.0], 59.0).is_within());
        assert!(cell([50.0, 100.0, 110.0], 59.0).is_within());
        assert!(!cell([90.0, 100.0, 110.0], 150.0).is_within());
    }

    #[test]
    fn it_passes_with_a_small_median_and_nine_of_ten_within() {
        let with = |far: usize, error: f64| {
            let near = (far..10).map(|_| cell([100.0; 3], 100.0 * (1.0 + error)));
            let cells = (0..far).map(|_| cell([100.0; 3], 300.0)).chain(near).collect();
            Validation { cells }
        };
        assert!(with(1, 0.2).passes());
        assert!(!with(2, 0.2).passes(), "eight of ten");
        assert!(!with(0, -0.3).passes(), "the median");
        assert!(!Validation::default().passes(), "nothing was measured");
    }

    #[test]
    fn every_cell_has_a_line() {
        let all = Validation { cells: vec![cell([90.0, 100.0, 110.0], 80.0)] };
        assert!(all.to_csv().ends_with("stat,memory,1,4,100.0,90.0,110.0,80.0,-20.0,true\n"));
        assert_eq!(all.figure().curves[2].points, [(1.0, 80.0)]);
        assert_eq!(all.rows()[0][7], "-20 %");
    }
}
