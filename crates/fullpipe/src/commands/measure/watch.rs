//! The live view of a measurement on a terminal (`--watch`): a line for each stream and one for all, redrawn at each interval.

use std::cell::RefCell;

use console::Term;
use fullpipe_path::Direction;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::intervals::Interval;

/// Lines of a table besides its streams: its title, its heading, the number of streams that are left out, and the sum.
const OTHER_LINES: usize = 4;

/// Whether there is a terminal on standard error to draw on.
pub fn has_terminal() -> bool {
    !ProgressDrawTarget::stderr().is_hidden()
}

/// A view on standard error, until [`View::finish`].
pub struct View {
    bar: ProgressBar,
    /// The last interval of each direction.
    latest: RefCell<Vec<(Direction, Interval)>>,
}

impl View {
    /// Makes a view that shows nothing yet.
    pub fn new() -> View {
        let bar = ProgressBar::no_length();
        if let Ok(style) = ProgressStyle::with_template("{msg}") {
            bar.set_style(style);
        }
        View { bar, latest: RefCell::default() }
    }

    /// Shows an interval in the place of the one before it.
    pub fn show(&self, direction: Direction, interval: &Interval) {
        let mut latest = self.latest.borrow_mut();
        latest.retain(|(other, _)| *other != direction);
        latest.push((direction, interval.clone()));
        latest.sort_by_key(|(direction, _)| *direction != Direction::Send);
        // The terminal may have another size each time. The cursor needs a line of its own.
        let (rows, columns) = Term::stderr().size();
        let rows = usize::from(rows).saturating_sub(1) / latest.len();
        let lines = latest.iter().flat_map(|(direction, interval)| table(*direction, interval, rows));
        let fitting = lines.map(|line| line.chars().take(usize::from(columns)).collect::<String>());
        self.bar.set_message(fitting.collect::<Vec<_>>().join("\n"));
    }

    /// Does something that writes to the terminal, with the view out of its way.
    pub fn suspend(&self, write: impl FnOnce()) {
        self.bar.suspend(write);
    }

    /// Takes the view from the terminal.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// The lines of an interval, no more than `rows` if that is enough for the sum: the slowest streams where not all have room.
fn table(direction: Direction, interval: &Interval, rows: usize) -> Vec<String> {
    let what = if direction == Direction::Send { "sent" } else { "received" };
    let mut lines =
        vec![format!("{what}, {:.1}-{:.1} s", interval.begin_s, interval.end_s), interval.heading_of("stream")];
    let mut streams: Vec<_> = interval.streams.iter().collect();
    let room = rows.saturating_sub(OTHER_LINES);
    let left_out = streams.len().saturating_sub(room + 1);
    if left_out > 0 {
        streams.sort_by(|(_, a), (_, b)| a.bps.total_cmp(&b.bps));
        streams.truncate(room);
    }
    lines.extend(streams.iter().map(|(stream, part)| part.line_of(&stream.to_string())));
    if left_out > 0 {
        lines.push(format!("{:>12} {} faster streams", "", interval.streams.len() - room));
    }
    lines.push(interval.line_of("all"));
    lines
}

#[cfg(test)]
mod tests {
    use super::super::intervals::Intervals;
    use super::super::intervals::SampleLine;
    use super::*;

    /// An interval of streams, the first of which is the fastest.
    fn interval(streams: u32) -> Interval {
        let line = |stream: u32| {
            let bytes = 1_000 * (streams - stream);
            let text = format!(
                r#"{{"kind":"sample","t":1.0,"end":"sender","stream":{stream},"bytes":{bytes},"rtt":5000,"snd_cwnd":10,"snd_mss":1000}}"#
            );
            SampleLine::read(&text, "sender").unwrap()
        };
        Intervals::new(1.0, true).take((0..streams).map(line)).remove(0)
    }

    #[test]
    fn the_slowest_streams_are_shown_where_not_all_have_room() {
        let first_column = |lines: &[String]| -> Vec<String> {
            lines.iter().map(|line| line.get(..12).unwrap_or_default().trim().to_owned()).collect()
        };
        let all = table(Direction::Send, &interval(5), 8);
        assert_eq!(first_column(&all), ["sent, 0.0-1.", "stream", "0", "1", "2", "3", "4", "all"]);
        assert_eq!(all[2], "           0     40.00 kb/s             0      5.000 ms    10.00 KB");
        assert!(all[7].ends_with("120.0 kb/s             0      5.000 ms    50.00 KB"), "{all:?}");
        let slowest = table(Direction::Receive, &interval(5), 7);
        assert_eq!(first_column(&slowest), ["received, 0.", "stream", "4", "3", "2", "", "all"]);
        assert_eq!(slowest[5].trim(), "2 faster streams");
        for rows in [0, 4, 5, 6, 20] {
            let lines = table(Direction::Send, &interval(64), rows);
            assert_eq!(lines.len(), rows.max(OTHER_LINES), "{lines:?}");
        }
        assert_eq!(first_column(&table(Direction::Send, &interval(1), 9)), ["sent, 0.0-1.", "stream", "all"]);
    }
}
