//! What is shown of a measurement while it runs: its intervals, a live view or a progress bar.

use std::cell::{Cell, RefCell};

use fullpipe_net::{Measured, Progress};
use fullpipe_path::transport::UNLIMITED;
use fullpipe_path::{Direction, Run, Workload};
use indicatif::ProgressBar;
use serde::Serialize;

use super::args::Args;
use super::csv;
use super::intervals::{Interval, Intervals};
use super::watch::View;
use crate::output::outln;
use crate::progress;

/// Shows a run, with at most one display on the terminal: two would disturb each other.
pub struct Live<'a> {
    run: &'a Run,
    args: &'a Args,
    printer: Printer<'a>,
    intervals: RefCell<Vec<(Direction, Intervals)>>,
    view: Option<View>,
    bar: ProgressBar,
    /// Whether there is anything to show.
    pub is_shown: bool,
}

impl<'a> Live<'a> {
    /// Shows a run as the flags say.
    pub fn new(run: &'a Run, args: &'a Args, number: u32) -> Live<'a> {
        let quiet = args.quiet || args.prints_data() || args.every().is_some();
        let total = match run.workload {
            Workload::Size(size) => size.0,
            Workload::Duration(UNLIMITED) => 0,
            Workload::Duration(time) => time.0,
        };
        let intervals = args.every().map(|every| {
            let of =
                |direction| (direction, Intervals::new(every.duration().as_secs_f64(), direction == Direction::Send));
            directions(run).into_iter().map(of).collect()
        });
        Live {
            run,
            args,
            printer: Printer::new(args, number),
            is_shown: intervals.is_some() || progress::watched(quiet),
            intervals: RefCell::new(intervals.unwrap_or_default()),
            view: args.watch.then(View::new),
            bar: progress::bar(total, &run.transport.to_string(), quiet),
        }
    }

    /// Shows how far the run has come.
    pub fn show(&self, seen: &Progress<'_>) {
        for (direction, intervals) in &mut *self.intervals.borrow_mut() {
            self.tell(&intervals.live(seen.samples), *direction);
        }
        self.bar.set_position(match self.run.workload {
            Workload::Size(_) => seen.bytes,
            Workload::Duration(_) => (seen.seconds * 1e9) as u64,
        });
        self.bar.set_message(format!("{:.2} Gb/s", seen.bytes as f64 * 8e-9 / seen.seconds.max(1e-9)));
    }

    /// Shows the intervals that are left of a run that is over, given its results in the order of [`directions`], and takes the
    /// display from the terminal.
    pub fn finish(&self, measured: &[Measured]) {
        for ((direction, intervals), measured) in self.intervals.borrow_mut().iter_mut().zip(measured) {
            self.tell(&intervals.finish(&measured.samples), *direction);
        }
        self.view.iter().for_each(View::finish);
        self.bar.finish_and_clear();
    }

    fn tell(&self, over: &[Interval], direction: Direction) {
        let print = || over.iter().for_each(|interval| self.printer.print(direction, interval));
        let Some(view) = &self.view else { return print() };
        over.iter().for_each(|interval| view.show(direction, interval));
        if !over.is_empty() && (self.args.csv || self.args.json && self.args.interval.is_some()) {
            view.suspend(print);
        }
    }
}

/// The directions in which the data of a run move; in the order of their results.
pub fn directions(run: &Run) -> Vec<Direction> {
    if run.bidir { vec![Direction::Send, Direction::Receive] } else { vec![run.direction] }
}

/// Prints the intervals of one measurement, for people below a heading.
pub struct Printer<'a> {
    args: &'a Args,
    /// Number of the measurement, from 1.
    number: u32,
    /// Whether the heading has been printed.
    is_headed: Cell<bool>,
}

impl<'a> Printer<'a> {
    pub fn new(args: &'a Args, number: u32) -> Printer<'a> {
        Printer { args, number, is_headed: Cell::default() }
    }

    /// Prints an interval that is over.
    pub fn print(&self, direction: Direction, interval: &Interval) {
        let Printer { args, number, .. } = self;
        if args.csv {
            return csv::print_interval(interval, *number, direction);
        }
        // With one direction, each line is of it.
        let shown = args.bidir.then_some(direction);
        if args.json {
            let line = serde_json::to_string(&Directed { interval, direction: shown });
            return line.iter().for_each(|line| outln!("{line}"));
        }
        if args.quiet || args.iperf3_json {
            return;
        }
        let first = |word: &str| shown.map_or(String::new(), |_| format!("{word:<9}"));
        if !self.is_headed.replace(true) {
            outln!("{}{}", first(""), interval.heading());
        }
        outln!("{}{}", first(direction.word()), interval.line());
    }
}

/// An interval, and its direction where there are two.
#[derive(Serialize)]
struct Directed<'a> {
    #[serde(flatten)]
    interval: &'a Interval,
    #[serde(skip_serializing_if = "Option::is_none")]
    direction: Option<Direction>,
}
